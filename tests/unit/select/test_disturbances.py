"""Disturbed launches: what held up a call in one launch makes no rule, and is measured again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.select.build_table import make_table
from tuner.select.call_evidence import measured_times
from tuner.select.dataset import CallPoint, Observation, no_simulation
from tuner.select.disturbances import screen_launches
from tuner.select.experiment_design import ExperimentDesign

DEFAULT, LINEAR, TREE = AlgorithmChoice(), AlgorithmChoice("linear"), AlgorithmChoice("binomial")
CHOICES = (DEFAULT, LINEAR, TREE)
SIZES = tuple(4**k for k in range(3, 10))
HELD_UP = 4**6  # bytes of the call that something holds up
TIMES = 50.0  # as long as it takes otherwise
FASTER = 1.25  # times as fast as the default the tree is
CLUSTER = Cluster("vm", nodes=1, cores=4, cpu="any cpu", memory=2**30)
Launches = Mapping[int, tuple[AlgorithmChoice, ...]]  # what each measures
TWO = {0: (DEFAULT, LINEAR), 1: (LINEAR, TREE)}


def call(nbytes: int) -> CallPoint:
    return CallPoint("bcast", 1, 4, "host", nbytes)


def seconds(nbytes: int, choice: AlgorithmChoice) -> float:
    """Return a constant and a share of the size."""
    factor = {DEFAULT: 1.0, LINEAR: 1.1, TREE: 1 / FASTER}[choice]
    return factor * (5e-6 + 1e-9 * nbytes)


def samples(middle: float) -> tuple[float, ...]:
    """Return twelve repetitions that differ by 1 %."""
    return tuple(middle * (1 + 0.01 * math.sin(n)) for n in range(12))


def design_of(
    launches: Launches, held_up: Iterable[tuple[int, AlgorithmChoice]], times: float = TIMES
) -> Measurements:
    """Return what a design measured, with a call of some launches and algorithms held up."""
    slow = {*held_up}
    taken = [
        Measurement(
            "collective",
            "bcast",
            1,
            4,
            4,
            nbytes,
            samples(
                seconds(nbytes, choice)
                * (times if nbytes == HELD_UP and (launch, choice) in slow else 1.0)
            ),
            choice.algorithm,
            launch=launch,
        )
        for launch, choices in launches.items()
        for nbytes in SIZES
        for choice in choices
    ]
    return Measurements(CLUSTER, "openmpi 5.0.11", {"rounds": [["any"]]}, tuple(taken))


def gains(table: TuningTable) -> list[float]:
    """Return the gain at each size of the rules that depart from the default."""
    return [
        default / chosen
        for rule in table.rules
        if not rule.choice.is_default
        for default, chosen in zip(rule.evidence.default_s, rule.evidence.chosen_s, strict=True)
    ]


@pytest.mark.parametrize("second", [(TREE,), (LINEAR, TREE)])
@pytest.mark.parametrize("held_up", [[(0, DEFAULT), (0, LINEAR)], [(0, DEFAULT)]])
def test_a_call_that_is_held_up_in_one_launch_has_no_such_gain(
    held_up: Sequence[tuple[int, AlgorithmChoice]], second: tuple[AlgorithmChoice, ...]
) -> None:
    """The tree was measured in the second launch; its true gain is left."""
    _, table = make_table(design_of({0: (DEFAULT, LINEAR), 1: second}, held_up), None)
    assert gains(table) == pytest.approx([FASTER] * len(SIZES), rel=0.1)


def test_other_launches_with_the_default_outvote_the_disturbed_one() -> None:
    again = {**TWO, 2: (DEFAULT, TREE)}
    rows, table = make_table(design_of(again, [(0, DEFAULT), (0, LINEAR)]), None)
    assert gains(table) == pytest.approx([FASTER] * len(SIZES), rel=0.05)
    kept = {row.choice: {*row.samples} for row in rows if row.point == call(HELD_UP)}
    assert kept == {DEFAULT: {2}, LINEAR: {1}, TREE: {1, 2}}


def test_what_two_launches_say_is_believed() -> None:
    """A default that is really slow at one size is rare, and worth a rule."""
    launches = {0: (DEFAULT, LINEAR), 1: (DEFAULT, TREE)}
    _, table = make_table(design_of(launches, [(0, DEFAULT), (1, DEFAULT)]), None)
    *others, greatest = sorted(gains(table))
    assert greatest == pytest.approx(TIMES * FASTER, rel=0.1)
    assert others == pytest.approx([FASTER] * len(others), rel=0.1)


def test_a_file_in_which_nothing_else_was_measured_makes_a_table_of_defaults() -> None:
    """Another program may hold up the only call, before it is measured again."""
    whole = design_of({0: (DEFAULT, LINEAR)}, [(0, DEFAULT)])
    alone = tuple(one for one in whole.series if one.nbytes == HELD_UP)
    rows, table = make_table(replace(whole, series=alone), None)
    assert list(rows) == []
    assert {rule.choice for rule in table.rules} <= {DEFAULT}
    assert table.provenance["disturbed"]


def test_the_evidence_of_a_call_leaves_out_what_was_disturbed() -> None:
    again = {**TWO, 2: (DEFAULT, TREE)}
    times = measured_times(design_of(again, [(0, DEFAULT), (0, LINEAR)]))
    found = [one for one in times if one.nbytes == HELD_UP and one.choice.is_default]
    assert [(one.launches, one.samples) for one in found] == [(1, 12)]


def test_launches_that_differ_somewhat_are_all_kept() -> None:
    """Ranks that share a cache or do not may take 2.5 times as long in one launch."""
    rows, _ = make_table(design_of(TWO, [(0, DEFAULT), (0, LINEAR)], times=2.5), None)
    kept = {row.choice: {*row.samples} for row in rows if row.point == call(HELD_UP)}
    assert kept == {DEFAULT: {0}, LINEAR: {0, 1}, TREE: {1}}


def row(nbytes: int, choice: AlgorithmChoice, launches: Mapping[int, float]) -> Observation:
    """Return an observation with the times of its launches, in multiples of the usual one."""
    taken = {launch: samples(times * seconds(nbytes, choice)) for launch, times in launches.items()}
    return Observation(call(nbytes), choice, taken, *mean_over_launches([*taken.values()]))


def test_an_algorithm_that_is_slow_beside_others_is_just_slow() -> None:
    """The repetitions of a launch alternate, so nothing holds up one algorithm alone."""
    rows = [row(n, choice, {0: 1.0}) for n in SIZES for choice in CHOICES]
    slow = [row(HELD_UP, TREE, {1: 1.0}), row(HELD_UP, LINEAR, {0: 1.0, 1: TIMES})]
    others = [one for one in rows if one.point != call(HELD_UP)]
    found = screen_launches([*others, row(HELD_UP, DEFAULT, {0: 1.0}), *slow])
    assert {launch for one in found.observations for launch in one.samples} == {0, 1}
    assert not found.disturbed


def test_a_launch_without_the_default_in_which_all_is_slow_is_dropped() -> None:
    rows = [row(n, choice, {0: 1.0}) for n in SIZES for choice in CHOICES if choice != TREE]
    slow = [row(HELD_UP, TREE, {1: TIMES}), row(HELD_UP, LINEAR, {0: 1.0, 1: TIMES})]
    others = [one for one in rows if (one.point, one.choice) != (call(HELD_UP), LINEAR)]
    found = screen_launches([*others, row(64, TREE, {0: 1.0}), *slow])
    assert found.disturbed == {call(HELD_UP): {1}}
    assert {launch for one in found.observations for launch in one.samples} == {0}
    assert (call(HELD_UP), TREE) not in {(one.point, one.choice) for one in found.observations}
    assert not found.doubtful  # the default is known there


def test_a_single_call_is_judged_by_other_algorithms() -> None:
    """A barrier has one size; a default that takes 16 times as long is shown by two launches."""
    fast = row(64, TREE, {1: 1.0})
    once = screen_launches([row(64, DEFAULT, {0: 30.0}), fast])
    assert [one.choice for one in once.observations] == [TREE]
    assert once.doubtful == {call(64): [DEFAULT]}
    twice = screen_launches([row(64, DEFAULT, {0: 30.0, 2: 30.0}), fast])
    assert [one.choice for one in twice.observations] == [DEFAULT, TREE]
    assert not twice.doubtful


def test_on_a_busy_machine_two_launches_do_not_suffice() -> None:
    """A third of all calls was slow in one of its launches, so chance explains two."""
    busy = [row(n, DEFAULT, {0: 1.0, 1: 1.0, 2: TIMES}) for n in SIZES if n != HELD_UP]
    slow = row(HELD_UP, DEFAULT, {0: TIMES, 1: TIMES})
    assert screen_launches([*busy, slow]).doubtful == {call(HELD_UP): [DEFAULT]}
    quiet = [row(n, DEFAULT, {0: 1.0, 1: 1.0}) for n in SIZES if n != HELD_UP]
    assert not screen_launches([*quiet, slow]).doubtful


def known(launches: Mapping[int, float]) -> list[Observation]:
    """Return all algorithms at all sizes, with these launches of the call that is held up."""
    return [
        row(n, choice, launches if n == HELD_UP else {0: 1.0}) for n in SIZES for choice in CHOICES
    ]


def test_a_design_measures_first_again_what_was_disturbed() -> None:
    calls = {call(n): CHOICES for n in SIZES}
    design = ExperimentDesign(calls, no_simulation)
    design.update(known({0: TIMES}))
    doubts = [bool(design.doubtful_points)]
    first, *_ = design.next_batch(1.0)
    assert (first.point, {*first.choices}) == (call(HELD_UP), {*CHOICES})
    for second in (1.0, TIMES):
        design.update(known({0: TIMES, 1: second}))
        doubts.append(bool(design.doubtful_points))
        assert design.choose(call(HELD_UP)) == TREE
    assert doubts == [True, False, False]


def test_a_design_does_not_ask_for_ever() -> None:
    """Whatever it measures there is disturbed."""
    design, asked = ExperimentDesign({call(n): CHOICES for n in SIZES}, no_simulation), 0
    design.update(known({0: TIMES}))
    while design.doubtful_points:
        asked += any(task.point == call(HELD_UP) for task in design.next_batch(1.0))
        design.update(known({0: TIMES}))
    assert 1 <= asked <= 3


def test_what_does_not_fit_into_a_batch_waits() -> None:
    design = ExperimentDesign({call(n): CHOICES for n in SIZES}, no_simulation)
    design.update(known({0: TIMES}))
    assert design.next_batch(1e-9, 1e-9) == ()
    assert design.doubtful_points
