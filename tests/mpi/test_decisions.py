"""What the real default decides, found without moving data, is what it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK
from tuner.core.table import AlgorithmChoice, RuleKey
from tuner.importers import UserMetadata, read_all
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, default_lookup
from tuner.select.cases import cases_from_readings
from tuner.select.dataset import CallPoint
from tuner.validation.openmpi_default_algorithms import find_default_algorithms
from tuner.validation.openmpi_fixed_decisions import find_fixed_decisions, fixed_choices
from tuner.validation.openmpi_trace import TRACED_COLLECTIVES, build_tracer, executed_algorithm
from tuner.validation.validation import CallOutcome, ValidationCall, run_calls
from tuner.workflows.known_defaults import known_defaults

MOST = 1 << 21
CALLS = [(c, 1, p, BLOCK) for c in TRACED_COLLECTIVES for p in (2, 3, 4)]


def around(each: DefaultAlgorithms) -> set[int]:
    """Sizes on both sides of each switch, and the last one."""
    step = 4 * max(each.collective.blocks(each.ppn))
    near = {start + more for start in each.thresholds for more in (-step, 0, step)}
    return {size for size in near | {MOST // step * step} if 0 < size <= MOST}


@pytest.mark.extended
def test_on_both_sides_of_each_switch_the_default_runs_what_was_found(
    launcher: Launcher, tmp_path: Path
) -> None:
    found = find_default_algorithms(launcher, CALLS, MOST, tmp_path)
    assert [each.placed_collective for each in found] == CALLS
    steps = {(each.collective, each.ppn): len(each.thresholds) for each in found}
    assert min(steps.values()) > 0
    assert min(steps[c, 4] for c in map(Collective, ("allreduce", "alltoall", "bcast"))) > 2
    calls = [(each, nbytes) for each in found for nbytes in sorted(around(each))]
    rules = table_of({(c, p): [(0, AlgorithmChoice())] for c, _, p, _ in CALLS}).rules
    rule = {(r.key.collective, r.key.nodes, r.key.ppn, r.key.placement): r for r in rules}
    trials = [ValidationCall(rule[each.placed_collective], nbytes) for each, nbytes in calls]
    preload = {"LD_PRELOAD": str(build_tracer(tmp_path))}
    answers = run_calls(launcher, trials, tmp_path, settings={}, environment=preload)
    ran = [executed_algorithm(trial.collective, answers[n]) for n, trial in enumerate(trials)]
    expected = default_lookup(found, "openmpi")
    assert ran == [expected(each.placed_collective, nbytes) for each, nbytes in calls]


def test_fixed_decisions_are_what_ranks_run_and_known_for_any_number(
    launcher: Launcher, tmp_path: Path
) -> None:
    """The facts on 8 to 15 and 64 to 127 ranks are those of Open MPI's source."""
    found = find_fixed_decisions(launcher)
    ran = find_default_algorithms(launcher, CALLS, MOST, tmp_path)
    for each in ran:
        own = [one for one in found if one.collective is each.collective]
        decision = max(
            (one for one in own if one.min_ranks <= each.ppn), key=attrgetter("min_ranks")
        )
        blocks = max(each.collective.blocks(each.ppn))
        starts = [blocks * start for start in decision.thresholds]
        known = dict(zip(starts, decision.choices, strict=True))
        assert {size: choice for size, choice in known.items() if size <= MOST} == dict(
            zip(each.thresholds, each.choices, strict=True)
        )
    by_ranks = {(one.collective, one.min_ranks): one for one in found}
    eight = by_ranks[Collective.ALLREDUCE, 8]
    assert eight.thresholds[:2] == (4, 8192)
    assert [one and one.algorithm for one in eight.choices[:2]] == [
        "recursive_doubling",
        "rabenseifner",
    ]
    many = by_ranks[Collective.BCAST, 64]
    assert [one and one.algorithm for one in many.choices] == ["knomial"]
    assert (Collective.BCAST, 128) in by_ranks


def test_reduce_scatters_are_decided_by_their_whole_buffer(
    launcher: Launcher, tmp_path: Path
) -> None:
    """The facts on 64 to 127 ranks are those of coll_tuned_decision_fixed.c, v4.1.0 to v5.0.9."""
    found = find_fixed_decisions(launcher)
    sizes = [4, 8, 65532, 65536, 131068, 131072, 262140, 262144]
    program = Path(__file__).with_name("reduce_scatter_program.py")
    run = launcher.run(
        4,
        [str(program), *map(str, sizes)],
        environment={"LD_PRELOAD": str(build_tracer(tmp_path)), "PYTHONPATH": str(ROOT)},
        timeout=patience(),
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == 3 * len(sizes)
    for line in lines:
        seen = CallOutcome(0, tuple(map(tuple, line["seen"])))
        ran = executed_algorithm(Collective.REDUCE_SCATTER, seen)
        key = RuleKey(Collective.REDUCE_SCATTER, 1, line["ranks"])
        assert [ran] == [*fixed_choices(found, key, [line["nbytes"]])]
    many = {(one.collective, one.min_ranks): one for one in found}[Collective.REDUCE_SCATTER, 64]
    assert many.thresholds == (4, 256, 512, 2048, 4096)
    assert [str(one) for one in many.choices] == [
        "nonoverlapping",
        *("recursive_halving", "butterfly") * 2,
    ]


def test_of_collectives_that_the_watcher_does_not_know_nothing_is_known(
    launcher: Launcher, tmp_path: Path
) -> None:
    (ragged,) = find_default_algorithms(
        launcher, [(Collective.ALLTOALLV, 1, 2, BLOCK)], 1024, tmp_path
    )
    assert ragged.thresholds == ()
    assert ragged.choice_at(64) is None


@pytest.mark.representative("6")
@pytest.mark.parametrize("most", [4, 6, 5000])
def test_sizes_end_where_they_are_asked_to(launcher: Launcher, tmp_path: Path, most: int) -> None:
    (bcast,) = find_default_algorithms(launcher, [(Collective.BCAST, 1, 2, BLOCK)], most, tmp_path)
    assert bcast.thresholds[0] == 4
    assert bcast.thresholds[-1] <= most


def test_decisions_here_tell_what_other_releases_run() -> None:
    """Not of Open MPI 5 on several nodes, where coll/han is asked first."""
    old, new, other = map(known_defaults, ("openmpi 4.1.6", "openmpi 5.0.7", "cray_mpich 8.1.29"))
    call = CallPoint("allgather", 32, 1, "host", 1 << 20)
    assert old(call) == AlgorithmChoice("neighbor_exchange")
    assert old(replace(call, memory="cuda")) is None
    assert old(replace(call, collective="neighbor_allgather")) is None
    assert new(call) is None
    assert new(replace(call, nodes=1, ppn=32)) == old(call)
    assert other(call) is None
    assert known_defaults("openmpi 4.0.7")(call) is None


RESULTS = "cluster,library,collective,algorithm,nodes,ppn,memory,size_bytes,median_us\n"


def results(collective: str, names: Sequence[str], default_nodes: Sequence[int] = ()) -> str:
    """Return times in which the ring wins from 32 KiB on, and the default takes what it runs."""
    lines = []
    for nodes in (8, 12, 16):
        for nbytes in (1 << k for k in range(10, 22)):
            halving, ring = 10 + nbytes / 3000, 15 + nbytes / 10000
            times = {"recursive_halving": halving, "ring": ring}
            times["default"] = halving if nbytes < 262144 else ring
            shown = [*names, *["default"] * (nodes in default_nodes)]
            lines += [
                f"c,openmpi 4.1.6,{collective},{name},{nodes},1,host,{nbytes},{times[name]}\n"
                for name in shown
            ]
    return RESULTS + "".join(lines)


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """Return the record that a command prints."""
    assert main([*map(str, words), "--json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


BOTH = ("recursive_halving", "ring")


@pytest.mark.usefixtures("launcher")
def test_results_without_the_default_have_that_of_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MPI_Reduce_scatter on 8 to 31 ranks runs recursive halving up to 256 KiB, then a ring."""
    path = tmp_path / "r.csv"
    for collective, known in (("reduce_scatter", True), ("reduce_scatter_block", False)):
        scores = []
        for names, nodes in ((BOTH, ()), (BOTH, (8, 12, 16))):
            path.write_text(results(collective, names, nodes))
            record = told(capsys, "evaluate", path, "--baselines", "nearest")
            (own,) = record["sets"].values()
            scores.append({one["selector"]: one for one in own})
        without, with_default = scores
        assert ("default" in without) == known
        assert with_default["default"]["mean"] > 0.1
        if known:
            assert without["default"] == with_default["default"]


@pytest.mark.usefixtures("launcher")
def test_a_selector_is_trained_with_what_the_default_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The selector knows the default of the file's shapes at all sizes, measured or not."""
    path, out = tmp_path / "r.csv", tmp_path / "mine"
    path.write_text(results("reduce_scatter", BOTH, (8,)))
    record = told(capsys, "train", path, "--out", out)
    assert record["defaults"] == {"calls": 36, "measured": 12, "by_rules": 36}
    asked = ["select", out, "--collective", "reduce_scatter", "--ppn", "1", "--nodes", "16"]
    for size, runs in (("96KiB", "recursive_halving"), ("600KiB", "ring")):
        seconds = told(capsys, *asked, "--size", size)["seconds"]
        assert seconds["default"] == pytest.approx(seconds[runs])
    assert main(["train", str(path), "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    measured = "The library's default was measured in 12 of 36 calls"
    assert f"{measured}; in 36 of them its rules tell what it runs." in said


@pytest.mark.parametrize(("collective", "calls"), [("allgather", 30), ("reduce_scatter", 1)])
def test_the_default_of_a_cluster_takes_as_long_as_what_it_is_said_to_run(
    collective: str, calls: int, shared: Path
) -> None:
    """Open MPI 4.1.6 of Leonardo, on 4 to 512 nodes."""
    path = shared / "data" / "pico" / "leonardo.csv"
    cases = cases_from_readings(read_all([path], "csv", UserMetadata(has_options=False))[0])
    runs = known_defaults("openmpi 4.1.6")
    ratios = [
        case.observations[run].seconds / case.observations[AlgorithmChoice()].seconds
        for case in cases
        if case.library == "openmpi 4.1.6" and case.point.collective == collective
        for run in [runs(case.point)]
        if run is not None and {AlgorithmChoice(), run} <= case.observations.keys()
    ]
    assert len(ratios) > calls
    assert sum(0.95 < ratio < 1.05 for ratio in ratios) > 0.9 * len(ratios)
