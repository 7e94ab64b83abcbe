"""How well the rounds of a tuning run measure what they chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import REQUEST, Ranks
from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.core.calibration import calibration_record
from tuner.core.measurement import REQUESTED_CALLS_KEY, launches_of_calls, read_measurements
from tuner.launch import CompletedRun, Hosts
from tuner.machines.topology_files import parse_topology
from tuner.probe.multi_host import probe_cluster
from tuner.probe.probe_plan import ProbePoint
from tuner.probe.probe_spec import ProbeShape
from tuner.select.build_table import make_table
from tuner.select.constraints import Constraints
from tuner.select.experiment_design import Experiment, RegretBound
from tuner.workflows import active_tuning
from tuner.workflows.active_tuning import Callbacks, StoppingRule, run_active_tuning
from tuner.workflows.batches import TARGET_CI_HALF_WIDTH

pytestmark = pytest.mark.slow

FLAT = parse_topology("{name: flat, nodes: 4, latency: 2us, bandwidth: 1GB/s}")[1]
HALF = parse_topology("{name: half, nodes: 2, latency: 2us, bandwidth: 1GB/s}")[1]


@dataclass(frozen=True)
class Never(Ranks):
    """Ranks that must not be started."""

    def run(self, ranks: int, arguments: Sequence[str], **known: Any) -> CompletedRun:
        raise AssertionError(f"{ranks} ranks were started: {arguments}")


FEW = replace(REQUEST, shapes=(ProbeShape(2, 1), ProbeShape(4, 1)), sizes=(1024, 65536))


def test_messages_are_measured_to_the_target_and_rounds_roughly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler: what the default runs is not asked
    ranks = Ranks()
    found = run_active_tuning(tmp_path / "m.ndjson", FEW, ranks, StoppingRule(600.0, 1e-9))
    first, *rounds = [plan.ci_half_width for plan in ranks.plans]
    assert first == FEW.ci_half_width < TARGET_CI_HALF_WIDTH
    assert rounds
    assert set(rounds) == {TARGET_CI_HALF_WIDTH}
    assert {one.subject for one in found.measurements.series} >= {"bcast", "allreduce"}


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        (
            RegretBound(0.2, 0.5, 9, 0.3),
            "a mean regret of 20.0% (the default: 30.0%), with 95 % certainty below 50.0%",
        ),
        (
            RegretBound(2.0, 2.0, 9, 2.0),
            "a mean regret of 200% or more (the default: 200% or more)",
        ),
        (RegretBound(0.5, 2.0, 9, 2.0), "a mean regret of 50.0% (the default: 200% or more)"),
    ],
)
def test_a_regret_that_reaches_its_cap_is_told_as_that(bound: RegretBound, told: str) -> None:
    assert str(bound) == told


@pytest.mark.parametrize(
    ("bound", "met", "met_quickly"),
    [
        (RegretBound(0.20, 0.50, 9, 0.30), False, False),
        (RegretBound(0.14, 0.50, 9, 0.30), False, True),
        (RegretBound(0.01, 0.015, 9, 0.011), True, True),
        (RegretBound(0.01, 0.025, 9, 0.011), False, False),
        (RegretBound(0.0, 0.03, 9, 0.0), False, False),
    ],
)
def test_a_table_is_good_enough(bound: RegretBound, met: bool, met_quickly: bool) -> None:
    assert StoppingRule(60.0, 0.02).is_met(bound) == met
    assert StoppingRule(60.0, 0.02, 0.5).is_met(bound) == met_quickly


def test_half_of_the_gain_takes_fewer_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    whole, quick = (
        Ranks(seconds=lambda choice: 3e-3 if choice.is_default else 1e-3) for _ in range(2)
    )
    run_active_tuning(tmp_path / "whole.ndjson", FEW, whole, StoppingRule(600.0, 1e-9))
    found = run_active_tuning(tmp_path / "half.ndjson", FEW, quick, StoppingRule(600.0, 1e-9, 0.5))
    assert found.regret_bound is not None
    assert found.regret_bound.expected < found.regret_bound.default / 2
    assert 1 < len(quick.plans) < len(whole.plans)


def test_a_low_regret_ends_a_run_after_the_launches_that_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    launches = []
    for least in (1, 4):
        rule = StoppingRule(600.0, 10.0, min_launches=least)
        found = run_active_tuning(tmp_path / f"{least}.ndjson", FEW, Ranks(), rule)
        launches.append(launches_of_calls(found.measurements.series))
    assert launches[0] < launches[1] == 4


def holding_up(times: float) -> Callable[[ProbePoint], float]:
    """Return by which factor the first calls that are measured take longer, the smaller ones."""
    first = ("collective", 1024, 1)
    return lambda point: times if (point.kind, point.nbytes, point.launch) == first else 1.0


@pytest.mark.parametrize("needed_s", [active_tuning.MIN_SIMULATION_S, 1e6])
def test_a_run_measures_again_what_was_held_up(
    needed_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regret that is wanted is reached at once, with time for simulations and without."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(active_tuning, "MIN_SIMULATION_S", needed_s)
    launches, one_shape = [], replace(FEW, shapes=(ProbeShape(4, 1),))
    for name, times in (("quiet", 1.0), ("busy", 50.0)):
        ranks = Ranks(held_up=holding_up(times))
        found = run_active_tuning(
            tmp_path / f"{name}.ndjson", one_shape, ranks, StoppingRule(600.0, 10.0)
        )
        launches.append(launches_of_calls(found.measurements.series))
    assert launches == [1, 2]


def test_the_calibration_is_that_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the messages alone said that there had been no rounds."""
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "m.ndjson"
    found = run_active_tuning(out, FEW, Ranks(), StoppingRule(600.0, 1e-9))
    assert found.calibration is not None
    assert calibration_record(found.calibration) == calibration_record(
        calibrate(read_measurements(out))
    )


def test_the_table_is_what_anybody_makes_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of calls that were not measured."""
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "m.ndjson"
    found = run_active_tuning(out, FEW, Ranks(), StoppingRule(600.0, 0.5))
    kept = read_measurements(out)
    assert len(kept.provenance[REQUESTED_CALLS_KEY]) == 8
    _, table = make_table(kept, calibrate(kept))
    assert table.rules == found.table.rules
    _, fewer = make_table(
        replace(kept, provenance={**kept.provenance, REQUESTED_CALLS_KEY: []}), calibrate(kept)
    )
    assert {rule.key for rule in fewer.rules} <= {rule.key for rule in table.rules}
    with pytest.raises(InputError, match="the calls that a table is for are damaged"):
        make_table(replace(kept, provenance={REQUESTED_CALLS_KEY: [{}]}), calibrate(kept))
    other = calibrate(kept)
    with pytest.raises(InputError, match="was made without a topology, not with flat"):
        make_table(kept, other, topology=FLAT)


def test_what_is_forbidden_is_not_measured_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    wishes = Constraints(excluded_algorithms=frozenset({"ring"}))
    found = run_active_tuning(
        tmp_path / "m.ndjson", FEW, Ranks(), StoppingRule(600.0, 1e-9), constraints=wishes
    )
    assert "ring" not in {one.algorithm for one in found.measurements.series}
    assert found.table.provenance["constraints"] == {"forbidden": ["ring"]}


@pytest.mark.parametrize(
    ("change", "wishes", "sentence"),
    [
        ({"shapes": (ProbeShape(5, 1),)}, Constraints(), "shape 5x1 does not fit 4 hosts"),
        ({"topology": HALF}, Constraints(), "has 2 nodes, 4 hosts are to be probed"),
        ({"topology": HALF, "hosts": Hosts(("node0", "b"))}, Constraints(), "has no node b"),
        ({}, Constraints(excluded_algorithms=frozenset({"rign"})), "'rign' is not an algorithm"),
        ({"hosts": Hosts(("u", "v"))}, Constraints(), "holds a probe of another cluster"),
        ({"ppn": 2}, Constraints(), "holds a probe of another plan"),
    ],
)
def test_what_needs_no_ranks_to_be_known_is_said_before_any_are_started(
    change: dict[str, Any], wishes: Constraints, sentence: str, tmp_path: Path
) -> None:
    out, asked = tmp_path / "m.ndjson", replace(REQUEST, parts=("messages",))
    probe_cluster(out, asked, Ranks())
    before = out.read_bytes()
    with pytest.raises(InputError, match=sentence):
        run_active_tuning(
            out, replace(asked, **change), Never(), StoppingRule(60.0, 0.02), constraints=wishes
        )
    assert out.read_bytes() == before


def test_a_file_that_cannot_be_written_is_noticed_before_any_rank_is_started(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="is a folder"):
        run_active_tuning(tmp_path, FEW, Never(), StoppingRule(60.0, 0.02))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        probe_cluster(tmp_path / "file" / "m.ndjson", FEW, Never())


def test_a_run_reports_what_it_plans_and_what_it_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    planned: list[Experiment] = []
    counts: list[int] = []
    bounds: list[float] = []
    found = run_active_tuning(
        tmp_path / "m.ndjson",
        FEW,
        Ranks(),
        StoppingRule(600.0, 1e-9),
        callbacks=Callbacks(
            on_plan=planned.extend,
            on_measured=lambda series: counts.append(len(series)),
            on_batch=lambda bound, _: bounds.append(bound.upper),
        ),
    )
    measured = {(one.subject, one.nbytes) for one in found.measurements.series}
    assert {(str(task.point.collective), task.point.nbytes) for task in planned} <= measured
    assert counts == sorted(counts)
    assert counts[-1] == len(found.measurements.series)
    assert bounds[-1] <= bounds[0]
