"""What the real default decides, found without moving data, is what it runs."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK
from tuner.core.table import AlgorithmChoice
from tuner.importers import UserMetadata, read_all
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, default_lookup
from tuner.select.cases import cases_from_readings
from tuner.select.dataset import CallPoint
from tuner.validation.openmpi_default_algorithms import find_default_algorithms
from tuner.validation.openmpi_fixed_decisions import find_fixed_decisions
from tuner.validation.openmpi_trace import TRACED_COLLECTIVES, build_tracer, executed_algorithm
from tuner.validation.validation import ValidationCall, run_calls
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


def test_the_default_of_a_cluster_takes_as_long_as_what_it_is_said_to_run(shared: Path) -> None:
    """Open MPI 4.1.6 of Leonardo, on 4 to 512 nodes."""
    path = shared / "data" / "pico" / "leonardo.csv"
    cases = cases_from_readings(read_all([path], "csv", UserMetadata(has_options=False))[0])
    runs = known_defaults("openmpi 4.1.6")
    ratios = [
        case.observations[run].seconds / case.observations[AlgorithmChoice()].seconds
        for case in cases
        if case.library == "openmpi 4.1.6" and case.point.collective == "allgather"
        for run in [runs(case.point)]
        if run is not None and {AlgorithmChoice(), run} <= case.observations.keys()
    ]
    assert len(ratios) > 30
    assert sum(0.95 < ratio < 1.05 for ratio in ratios) > 0.9 * len(ratios)
