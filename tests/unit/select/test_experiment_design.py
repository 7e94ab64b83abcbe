"""Active design: little is measured, and what the bound promises holds."""

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.support.designs import (
    CHOICES,
    DEFAULT,
    RING,
    SIZES,
    SLOW,
    TREE,
    candidates,
    grid,
    points,
    simulated,
    truth,
)
from tests.support.replays import Grid, replay
from tuner.base.errors import InputError
from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, SimulateFunction
from tuner.select.experiment_design import (
    CALL_OVERHEAD_S,
    REPETITIONS,
    ExperimentDesign,
    measurement_cost,
)
from tuner.select.replay import Replay
from tuner.select.selector import train
from tuner.select.significance import predict_comparison
from tuner.select.value_of_information import MAX_REGRET


def blind(_point: CallPoint, _choice: AlgorithmChoice) -> float:
    return math.nan


@pytest.mark.slow
@pytest.mark.parametrize(("simulate", "share"), [(simulated, 0.25), (blind, 0.6)])
def test_a_part_of_the_grid_gives_nearly_its_regret(
    simulate: SimulateFunction, share: float
) -> None:
    whole = grid(simulate)
    everything = whole.design()
    everything.update(whole.rows)
    reached = whole.regret(everything) + 0.02
    stages = replay(whole, seconds=whole.seconds / 30, rounds=25)
    assert stages[0].regret > 0.2
    good = [stage.spent for stage in stages if stage.regret <= reached]
    assert good
    assert good[0] < share * whole.seconds


@pytest.mark.slow
def test_the_bound_covers_the_truth_and_comes_down() -> None:
    covered, last = [], []
    for seed in range(4):
        whole = grid(seed=seed)
        stages = replay(whole, seconds=whole.seconds / 15, rounds=8, seed=seed)
        covered += [stage.bound.upper >= stage.regret for stage in stages]
        last.append(stages[-1].bound.upper)
    assert np.mean(covered) >= 0.9
    assert max(last) < 0.05


def test_more_sizes_between_the_same_two_hardly_tell_more() -> None:
    """What is wrong at one is wrong at the next: their mean regret is not known the better."""

    def excess(steps: int) -> float:
        sizes = (round(2 ** (10 + k / steps)) for k in range(8 * steps + 1))
        asked = {CallPoint("bcast", 8, 1, "host", nbytes): CHOICES for nbytes in sizes}
        bound = ExperimentDesign(asked, simulated).regret_bound()
        return bound.upper / bound.expected - 1

    assert excess(12) > 0.8 * excess(1) > 0


def test_a_batch_keeps_to_its_seconds_and_compares_with_the_choice_in_use() -> None:
    design = ExperimentDesign(candidates(), simulated)
    batch = design.next_batch(1.0)
    assert len(batch) > 1
    assert sum(task.seconds for task in batch) <= 1.0
    assert len({task.point for task in batch}) == len(batch)
    for task in batch:
        assert task.choices[0] == design.choose(task.point)
        assert len(set(task.choices)) == len(task.choices) > 1
    assert len(design.next_batch(1e-9)) == 1


def test_the_calls_of_a_program_count_by_their_time_and_no_others() -> None:
    """The large one takes most of the time, although it is made once."""
    small, large, other = (CallPoint("bcast", 8, 1, "host", 4**k) for k in (2, 9, 5))
    calls = dict.fromkeys((small, large, other), CHOICES)
    design = ExperimentDesign(calls, simulated, counts={small: 2, large: 1})
    assert [task.point for task in design.next_batch(1e-9)] == [large]
    assert {task.point for task in design.next_batch(math.inf)} >= {small, large}
    by_time, alike = design.regret_bound(), ExperimentDesign(calls, simulated).regret_bound()
    assert by_time.default > alike.default  # the default is bad at large sizes
    alone = ExperimentDesign({large: CHOICES}, simulated).regret_bound()
    assert by_time.default == pytest.approx(alone.default, rel=0.2)


def test_choices_that_are_not_simulated_are_no_cheaper_than_others_of_a_slow_network() -> None:
    """Small measured calls do not speak for large ones, which simulations say are slow."""
    places = [CallPoint("allreduce", 8, 1, "host", 4**k) for k in (3, 5, 7, 9)]
    opaque = AlgorithmChoice("nonoverlapping")

    def slow(point: CallPoint, choice: AlgorithmChoice) -> float:
        return 1e-3 + point.nbytes / 6e6 if choice in (RING, TREE) else math.nan

    design = ExperimentDesign(dict.fromkeys(places, (RING, TREE, opaque)), slow)
    seen = [
        Observation(place, choice, {}, 1.5e-3, 1.4e-3, 1.6e-3)
        for place in places[:2]
        for choice in (DEFAULT, opaque)
    ]
    for known in ((), seen):
        design.update(known)
        large = [task for task in design.next_batch(math.inf) if task.point in places[2:]]
        assert large
        for task in large:
            least = len(task.choices) * measurement_cost(slow(task.point, RING))
            assert task.seconds > 0.7 * least


def test_a_design_that_knows_nothing_begins_with_calls_that_cost_little() -> None:
    """Measuring a call of a gibibyte alone would take more than the second that a batch has."""
    sizes = (64, 4096, 2**18, 2**24, 2**30)
    asked = {CallPoint("bcast", 8, 1, "host", nbytes): CHOICES for nbytes in sizes}
    batch = ExperimentDesign(asked, blind).next_batch(1.0)
    assert {task.point.nbytes for task in batch} == {64, 4096, 2**18, 2**24}
    assert sum(task.seconds for task in batch) <= 1.0


def test_what_cannot_be_had_is_asked_for_a_few_times_and_never_chosen() -> None:
    """Its result is wrong, or it does not run."""
    design, asked = ExperimentDesign(candidates(), simulated), Counter[CallPoint]()
    had = [row for row in grid().rows if row.choice != TREE]
    for _ in range(10):
        asked.update(task.point for task in design.next_batch(math.inf) if TREE in task.choices)
        design.update(had)
    assert 1 < max(asked.values()) < 5
    assert design.next_batch(math.inf) == ()
    assert {design.choose(point) for point in points()} == {DEFAULT, RING}


def test_what_is_in_use_and_cannot_be_had_is_no_reference_for_long() -> None:
    """Ring is expected to be best at a call where it never answers, and the tree remains unsure."""
    call = CallPoint("bcast", 8, 1, "host", 4**9)
    rows = [row for row in grid().rows if (row.point, row.choice) != (call, RING)]
    unsure = (0.7 * truth(call, RING), 1.4 * truth(call, RING)) * 6

    def after(launches: int, row: Observation) -> Observation:
        jumps = (row.point, row.choice) == (call, TREE)
        return replace(row, samples=dict.fromkeys(range(launches), unsure)) if jumps else row

    design, asked = ExperimentDesign(candidates(), simulated), Counter[AlgorithmChoice]()
    for launches in range(2, 9):
        design.update(after(launches, row) for row in rows)
        assert design.choose(call) == RING
        for task in design.next_batch(math.inf):
            asked.update(task.choices if task.point == call else ())
    assert asked[RING] == 3
    assert asked[TREE] == 7
    assert asked[DEFAULT] == 4


def test_what_the_default_runs_is_not_measured_beside_it() -> None:
    for runs, beside in ((TREE, {DEFAULT, RING}), (RING, {DEFAULT, TREE})):
        known = dict.fromkeys(candidates(), runs)
        design = ExperimentDesign(candidates(), simulated, default_runs=known.get)
        tasks = design.next_batch(math.inf)
        assert {choice for task in tasks for choice in task.choices} >= beside
        assert not any(runs in task.choices for task in tasks)


def test_what_was_measured_around_a_call_is_chosen_there() -> None:
    call = CallPoint("bcast", 8, 1, "host", 4**9)
    rows = [row for row in grid().rows if (row.point, row.choice) != (call, RING)]
    design = ExperimentDesign(candidates(), simulated)
    design.update(rows)
    assert design.choose(call) == RING


def test_far_from_all_measurements_simulations_of_both_speak() -> None:
    """Of the default, too: then a clear gain needs no measurement at its very call."""

    def known(point: CallPoint, choice: AlgorithmChoice) -> float:
        return 1.2 * truth(point, choice) if choice.is_default else simulated(point, choice)

    near = [row for row in grid().rows if row.point.nbytes <= 4**6 and row.point.nodes < 16]
    far = CallPoint("bcast", 16, 1, "host", 4**10)
    for simulate, chosen in ((simulated, DEFAULT), (known, RING)):
        design = ExperimentDesign(candidates(), simulate)
        design.update(near)
        assert design.choose(far) == chosen
        contest = predict_comparison(far, train(near, simulate, adaptive=True), CHOICES)
        assert (contest is None) == chosen.is_default
        assert contest is None or RING in contest.winners


@pytest.mark.slow
def test_far_from_all_measurements_small_gains_of_a_simulation_that_is_right_so_far_wait() -> None:
    """Ring takes 1.5 times as long as simulated from some size on, as large exchanges do."""
    times = {DEFAULT: 1.15, TREE: 1.3, RING: 1.0, SLOW: 1.12}

    def simulate(point: CallPoint, choice: AlgorithmChoice) -> float:
        return times[choice] * (2e-4 * math.log2(point.p) + point.nbytes / 12e6)

    for size, wrong in product((18, 20, 22), (1.0, 1.5)):
        grid = [
            CallPoint("bcast", nodes, 1, "host", 2**k)
            for nodes in (2, 4, 8)
            for k in range(14, 24, 2)
        ]
        truth = {
            (point, choice): simulate(point, choice)
            * (wrong if choice == RING and point.nbytes >= 2**size else 1.0)
            for point in grid
            for choice in CHOICES
        }
        rows = [
            Observation(*pair, {0: (t,) * 8}, t, 0.97 * t, 1.03 * t, simulate(*pair))
            for pair, t in truth.items()
        ]
        whole = Grid(rows, simulate)
        design, got = whole.design(), dict[object, Observation]()
        while design.regret_bound().upper > 0.02 and (
            batch := design.next_batch(whole.seconds / 50)
        ):
            asked = {(task.point, choice) for task in batch for choice in task.choices}
            got |= {
                (row.point, row.choice): row for row in rows if (row.point, row.choice) in asked
            }
            design.update(got.values())
        slower = [p for p in grid if truth[p, design.choose(p)] > 1.02 * truth[p, DEFAULT]]
        assert not slower
        assert design.regret_bound().upper >= whole.regret(design)


def test_what_was_wrong_somewhere_is_not_asked_for_again() -> None:
    design = ExperimentDesign(candidates(), simulated)
    first = frozenset({("bcast", "tree")})
    design.update([], first)
    asked = {choice for task in design.next_batch(math.inf) for choice in task.choices}
    assert TREE not in asked
    assert RING in asked
    design.add_points({CallPoint("bcast", 32, 1, "host", 64): CHOICES})
    assert TREE not in {choice for task in design.next_batch(math.inf) for choice in task.choices}


def test_what_was_wrong_counts_in_no_bound() -> None:
    """However fast it is simulated to be: no table uses it."""
    whole = grid()
    rows = [row for row in whole.rows if row.choice != TREE]
    without = ExperimentDesign(dict.fromkeys(points(), (DEFAULT, RING, SLOW)), simulated)
    without.update(rows)
    design = ExperimentDesign(candidates(), simulated)
    design.update(rows, frozenset({("bcast", "tree")}))
    bound, known = design.regret_bound(), without.regret_bound()
    assert bound.expected == pytest.approx(known.expected, abs=1e-4)
    assert bound.upper == pytest.approx(known.upper, abs=1e-3)
    assert design.choose(points()[-1]) == RING


@pytest.mark.parametrize("gains", [(3.0, 1.0), (5.0, 1.04), (1.5, 1.0), (2.0, 1.6)])
def test_calls_that_were_not_measured_are_decided_as_in_a_table(gains: tuple[float, float]) -> None:
    """A gain falls from 2 nodes to 8, and nothing is simulated."""
    sizes, counts = (64, 1024, 16384), (2, 3, 4, 6, 8)

    def measured(nodes: int, nbytes: int, choice: AlgorithmChoice, gain: float) -> Observation:
        seconds = (1e-5 + 1e-9 * nbytes) / gain
        samples = tuple(seconds * (1 + 1e-4 * n) for n in range(12))
        where = CallPoint("bcast", nodes, 1, "host", nbytes)
        return Observation(where, choice, {0: samples}, seconds, 0.999 * seconds, 1.001 * seconds)

    rows = [
        measured(nodes, n, choice, gain if choice == RING else 1.0)
        for nodes, gain in zip((2, 8), gains, strict=True)
        for n in sizes
        for choice in (DEFAULT, RING)
    ]
    calls = [CallPoint("bcast", nodes, 1, "host", n) for nodes in counts for n in sizes]
    design = ExperimentDesign(dict.fromkeys(calls, (RING,)), blind)
    selector = train(rows, blind, True)
    design.update(rows)
    for call in calls:
        if call.nodes not in (2, 8):
            contest = predict_comparison(call, selector, [RING])
            assert contest is not None
            assert (design.choose(call) == RING) == (RING in contest.winners)


@pytest.mark.parametrize("launch_sd", [0.01, 0.3])
def test_a_table_chooses_as_the_design_after_every_batch(launch_sd: float) -> None:
    """Although launches differ, and few of them have the default and what is chosen."""
    whole, random = grid(blind), np.random.default_rng(2)
    effects = defaultdict[tuple[CallPoint, int], float](random.standard_normal)

    def measure(row: Observation, launch: int) -> Observation:
        seconds = row.seconds * math.exp(launch_sd * effects[row.point, launch])
        samples = tuple(seconds * np.exp(0.02 * random.standard_normal(REPETITIONS)))
        return Observation(row.point, row.choice, {launch: samples}, *mean_over_launches([samples]))

    design = ExperimentDesign(candidates(), blind)
    replayed, chosen = Replay(design, whole.rows, measure), set[AlgorithmChoice]()
    for _ in range(6):
        assert replayed.measure_batch(whole.seconds / 30)
        selector = train([*replayed.found.values()], blind, adaptive=True)
        for point in points():
            contest = predict_comparison(point, selector, CHOICES)
            winners = contest.winners if contest else ()
            seconds = contest.seconds if contest else {}
            used = min(winners, key=seconds.__getitem__, default=DEFAULT)
            assert design.choose(point) == used
            chosen.add(used)
    assert chosen > {DEFAULT}


def test_what_jumps_between_two_times_is_measured_again_and_again() -> None:
    """Not something hopeless beside it, for the sake of the default that is measured with it."""
    call = CallPoint("bcast", 8, 1, "host", 4**9)
    times = {DEFAULT: 8e-3, TREE: 7e-3, RING: 4e-2, SLOW: 5e-2}
    design, asked = ExperimentDesign({call: CHOICES}, blind), Counter[AlgorithmChoice]()
    for launch in range(1, 9):
        asked.update(choice for task in design.next_batch(math.inf) for choice in task.choices)
        design.update(
            Observation(
                call,
                choice,
                dict.fromkeys(range(asked[choice]), (0.8 * t, 1.2 * t)),
                t,
                t / 1.2 ** (2 / launch**0.5),
                t * 1.2 ** (2 / launch**0.5),
                math.nan,
            )
            for choice, t in times.items()
            if asked[choice]
        )
    assert asked[TREE] > 2
    assert max(asked[RING], asked[SLOW]) <= 2


def test_where_all_is_measured_nothing_is_left_to_do() -> None:
    whole = grid(noise=0.0)
    design = whole.design()
    design.update(whole.rows)
    bound = design.regret_bound()
    assert bound.expected <= bound.upper < 0.02
    assert bound.points == len(points())
    assert sum(task.seconds for task in design.next_batch(math.inf)) < 0.3 * whole.seconds


def test_the_bound_names_the_regret_of_the_default() -> None:
    whole = grid(noise=0.0)
    design = whole.design()
    before = design.regret_bound().default
    design.update(whole.rows)
    known = [{row.choice: row.seconds for row in whole.rows if row.point == p} for p in points()]
    regrets = [times[DEFAULT] / min(times.values()) - 1 for times in known]
    truth = np.mean(np.minimum(regrets, MAX_REGRET))
    bound = design.regret_bound()
    assert bound.default == pytest.approx(truth, rel=0.1)
    assert bound.expected < 0.1 * bound.default
    assert before > 0
    assert f"(the default: {bound.default:.1%})" in str(bound)


def test_points_that_come_later_count_as_much() -> None:
    few = {point: own for point, own in candidates().items() if point.nodes != 16}
    whole, design = grid(), ExperimentDesign(few, simulated)
    design.update(row for row in whole.rows if row.point in few)
    before = design.regret_bound()
    design.add_points(candidates())
    assert design.regret_bound().points == len(candidates()) > before.points
    assert design.regret_bound().upper > before.upper
    assert {task.point.nodes for task in design.next_batch(0.1)} == {16}
    assert design.choose(CallPoint("bcast", 8, 1, "host", SIZES[-1])) == RING


def test_measuring_costs_all_repetitions() -> None:
    for seconds in (0.0, 1e-5, 0.5):
        assert measurement_cost(seconds) == pytest.approx(REPETITIONS * (seconds + CALL_OVERHEAD_S))


def test_a_design_needs_points() -> None:
    with pytest.raises(InputError, match="no point to probe"):
        ExperimentDesign({}, simulated)
