"""Budgets that are used up: by simulations, by earlier runs and by commands that ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.budgets import FLAT, TWO, Never, Slow, borrowed, messages_of, plan_of, tuned
from tests.support.ranks import Ranks
from tests.support.waiting import be_slow
from tuner.base.errors import InputError, ProbeError
from tuner.calibrate import calibrate
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, read_measurements, read_partial
from tuner.core.path_classes import NODE
from tuner.core.table import AlgorithmChoice
from tuner.probe.driver import RunLimits, SingleHostSpec, plan_single_host, run_plan
from tuner.probe.monitor import ProbeProgress
from tuner.probe.multi_host import probe_cluster
from tuner.probe.probe_file import BEGAN_KEY
from tuner.probe.probe_plan import ProbePoint
from tuner.probe.probe_spec import ProbeShape
from tuner.select.dataset import CallPoint as Call
from tuner.select.simulated_times import Simulator
from tuner.workflows import batches
from tuner.workflows.active_tuning import StoppingRule, run_active_tuning
from tuner.workflows.batches import MeasurementBatches, ProbeLaunches
from tuner.workflows.candidates import CandidateGenerator, candidate_points
from tuner.workflows.time_limit import TimeLimit

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody asks the ranks what the default runs."""
    monkeypatch.setenv("PATH", str(tmp_path))


def begun(out: Path) -> float:
    """Return when the unfinished run of a file began, in seconds since the epoch."""
    header = read_partial(out)[0]
    assert header is not None
    return float(header["provenance"][BEGAN_KEY])


def test_reductions_with_a_typical_cost_are_doubted_and_nothing_else() -> None:
    calibration = borrowed(FLAT, NODE)
    assert set(calibration.borrowed_costs) == {""}
    simulator = Simulator(calibration, FLAT)
    assert simulator.uses_unmeasured_costs(Call("allreduce", 2, 1, "host", 4096))
    assert not simulator.uses_unmeasured_costs(Call("bcast", 2, 2, "host", 4096))


def test_the_command_that_ran_before_in_the_same_process_costs_no_budget() -> None:
    """A shell replaces itself with the last command of its list."""
    module = "tuner.workflows.time_limit"
    program = f"import {module} as one; one.MAX_START_S = 1.0; print(one.process_age())"
    words = ["/bin/sh", "-c", f'/bin/sleep 2; exec {sys.executable} -c "{program}"']
    ran = subprocess.run(
        words,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 < float(ran.stdout) <= 1.0


def test_sizes_of_which_no_rank_gets_a_share_are_refused(tmp_path: Path) -> None:
    request = replace(
        TWO, shapes=(ProbeShape(4, 2),), collectives=(Collective.ALLGATHER,), sizes=(4, 16)
    )
    out = tmp_path / "m.ndjson"
    with pytest.raises(InputError, match="no size of --sizes gives each of 8 ranks 4 bytes"):
        tuned(out, Never(), request=request)
    assert not out.exists()
    mixed = replace(request, sizes=(4, 2**20))  # of the small sizes alone nothing is left
    found, _ = tuned(out, Ranks(), 15.0, request=mixed)
    assert {one.nbytes for one in found.measurements.series} == {2**20}


def test_a_larger_budget_counts_the_finished_run_when_it_is_interrupted(tmp_path: Path) -> None:
    out, request = tmp_path / "m.ndjson", replace(TWO, parts=("messages",))
    kept = {point.key for point in plan_of(request).points[:6]}
    probe_cluster(out, request, Ranks(fits=lambda q: q.key in kept), budget=60.0)
    text = out.read_text()
    seconds = read_measurements(out).provenance["seconds"]
    out.write_text(text.replace(f'"seconds": {seconds}', '"seconds": 50.0', 1))
    with pytest.raises(ProbeError, match="a host was lost"):
        probe_cluster(out, request, Ranks(dies=lambda q: q.kind == "exchange"), budget=120.0)
    os.utime(out, (begun(out) + 20.0, begun(out) + 20.0))
    ranks, shown = Ranks(), list[ProbeProgress]()
    probe_cluster(out, request, ranks, budget=120.0, on_progress=shown.append)
    assert ranks.budgets == pytest.approx([50.0], abs=1.0)
    assert shown[0].fraction == pytest.approx(70 / 120, abs=0.02)


SLOW = 0.2  # seconds


@dataclass
class Busy:
    """A simulator that takes `SLOW` for every pair."""

    inner: Simulator
    asked: int = 0

    def simulator(self) -> Simulator:
        usual = self.inner._seconds

        def slowly(point: Call, choice: AlgorithmChoice) -> float:
            self.asked += 1
            be_slow(SLOW)
            return usual(point, choice)

        self.inner._seconds = slowly  # type: ignore[method-assign]  # delays the real one
        return self.inner


def rounds_of_slow_simulations(out: Path, seconds: float) -> tuple[MeasurementBatches, Busy]:
    simulator = Busy(Simulator(calibrate(messages_of(plan_of(TWO).points, TWO), FLAT), FLAT))
    limit = TimeLimit(seconds)
    launches = ProbeLaunches(out, TWO, Never(), limit, {}, lambda _: None)
    batches = MeasurementBatches(
        CandidateGenerator(TWO),
        simulator.simulator(),
        launches,
        limit,
        8,
        lambda _: None,
        lambda _: None,
        lambda _: None,
    )
    return batches, simulator


def test_simulating_what_was_measured_earlier_ends_in_time(tmp_path: Path) -> None:
    own, simulator = rounds_of_slow_simulations(tmp_path / "m.ndjson", 8.0)
    measured = messages_of(plan_of(TWO).points, TWO)
    series = tuple(
        Measurement("collective", "bcast", 4, 2, 8, 4096 * k, (1e-3,) * 8, "linear", {}, launch=1)
        for k in range(1, 60)
    )
    next(
        own.iter_results(candidate_points(TWO), replace(measured, series=measured.series + series))
    )
    assert 0 < simulator.asked * SLOW < 6.0


def test_where_few_calls_were_simulated_a_small_regret_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_SIMULATION_SHARE", 1e-9)
    ranks = Ranks()
    found = run_active_tuning(tmp_path / "m.ndjson", TWO, ranks, StoppingRule(1e4, 10.0))
    assert found.regret_bound is not None
    assert found.regret_bound.points < len(candidate_points(TWO))
    assert len(ranks.plans) > 2  # messages, and more than one round


def test_a_simulator_without_time_for_a_round_still_measures_some_calls(tmp_path: Path) -> None:
    limit = TimeLimit(25.0)
    limit.record_step("table", 18.0)
    ranks = Ranks()
    found = run_active_tuning(
        tmp_path / "m.ndjson", TWO, ranks, StoppingRule(25.0, 1e-9), limit=limit
    )
    assert "bcast" in {one.subject for one in found.measurements.series}


def test_calls_are_measured_directly_as_long_as_there_is_time(tmp_path: Path) -> None:
    request = replace(TWO, sizes=tuple(4**k for k in range(1, 9)))
    out = tmp_path / "m.ndjson"
    every = {(q.collective, q.nodes, q.ppn, q.nbytes) for q in candidate_points(request)}
    assert len(every) > 24
    ranks = Ranks()
    found, _ = tuned(out, ranks, 15.0, request=request)
    measured = [(s.subject, s.nodes, s.ppn, s.nbytes) for s in found.measurements.series]
    assert set(measured) == every
    before = len(ranks.plans)
    tuned(out, ranks, 15.0, request=request)
    assert len(ranks.plans) == before  # nothing is measured twice


def test_a_start_of_an_earlier_command_says_nothing_about_the_next(tmp_path: Path) -> None:
    def launches(ranks: Ranks) -> ProbeLaunches:
        request = replace(TWO, parts=("messages",))
        return ProbeLaunches(
            tmp_path / "m.ndjson", request, ranks, TimeLimit(100.0), {}, lambda _: None
        )

    launches(Slow(start=60.0)).measure_messages((), True)
    later = launches(Never())
    later.measure_messages((), False)
    assert later.start_seconds == 3.0


@pytest.fixture
def here() -> Cluster:
    return Cluster("here", 1, 4, "cpu", 2**30)


def one_computer(out: Path, here: Cluster, ranks: Ranks, budget: float) -> list[ProbeProgress]:
    shown = list[ProbeProgress]()
    plan = plan_single_host(SingleHostSpec(ranks=4, sizes=(1024,), launches=2))
    run_plan(plan, ranks, out, here, {}, RunLimits(budget), shown.append)
    return shown


def test_on_one_computer_a_larger_budget_is_for_what_was_left_out(
    tmp_path: Path, here: Cluster
) -> None:
    out = tmp_path / "m.ndjson"
    last = plan_single_host(SingleHostSpec(ranks=4, sizes=(1024,), launches=2)).points[-1]

    def fits(point: ProbePoint) -> bool:
        return point.key != last.key

    one_computer(out, here, Ranks(fits=fits), 30.0)
    ranks = Ranks()
    one_computer(out, here, ranks, 60.0)
    assert [plan.points for plan in ranks.plans] == [(last,)]
    assert ranks.budgets[0] > 50.0


def test_on_one_computer_an_interrupted_probe_goes_on_where_its_bar_was(
    tmp_path: Path, here: Cluster
) -> None:
    out = tmp_path / "m.ndjson"
    with pytest.raises(ProbeError, match="a host was lost"):
        one_computer(out, here, Ranks(dies=lambda q: q.launch == 1), 60.0)
    os.utime(out, (begun(out) + 20.0, begun(out) + 20.0))
    ranks = Ranks()
    shown = one_computer(out, here, ranks, 60.0)
    assert shown[0].fraction == pytest.approx(20 / 60, abs=0.02)
    assert 30.0 < max(ranks.budgets) <= 40.0
