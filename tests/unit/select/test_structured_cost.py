"""Costs of schedules: what the name of an algorithm tells of its times, and what is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation
from tuner.select.posterior import PosteriorModel
from tuner.select.selector import train
from tuner.select.structured_cost import ROUGH_COSTS, StructuredCost, family, quantities

DEFAULT = AlgorithmChoice()
RING = AlgorithmChoice("ring")
DOUBLING = AlgorithmChoice("recursive_doubling")
RABENSEIFNER = AlgorithmChoice("rabenseifner")
UNKNOWN = AlgorithmChoice("trix")
COSTS = ROUGH_COSTS * np.array([1.0, 2.5, 0.5, 3.0, 0.4])  # of the machine in question
SIZES = (64, 4096, 2**18, 2**24)


def blind(_point: CallPoint, _choice: AlgorithmChoice) -> float:
    return math.nan


def call(nbytes: int, nodes: int = 8, collective: str = "allreduce") -> CallPoint:
    return CallPoint(collective, nodes, 1, "host", nbytes)


def seconds(point: CallPoint, choice: AlgorithmChoice) -> float:
    return float(COSTS @ quantities(point, choice.algorithm))


def row(point: CallPoint, choice: AlgorithmChoice, time: float, machine: str = "") -> Observation:
    return Observation(point, choice, {0: (time,)}, time, time, time, machine=machine)


def rows(
    choices: Sequence[AlgorithmChoice], machine: str = "", factor: float = 1.0
) -> list[Observation]:
    return [
        row(call(n), choice, factor * seconds(call(n), choice), machine)
        for choice in choices
        for n in SIZES
    ]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("ring", "ring"),
        ("segmented_ring", "ring"),
        ("neighbor_exchange", "ring"),
        ("binomial", "logarithmic"),
        ("recursive_doubling", "logarithmic"),
        ("scatter_allgather_ring", "halving"),
        ("scatter_recursive_doubling_allgather", "halving"),
        ("rabenseifner", "halving"),
        ("linear_sync", "linear"),
        ("pairwise", "linear"),
        ("default", None),
        ("3dtorus", None),
    ],
)
def test_a_name_tells_the_family(name: str, known: str | None) -> None:
    assert family(name) == known


@pytest.mark.parametrize(
    ("collective", "name", "expected"),
    [
        ("allreduce", "ring", (14, 14, 2 * 800 * 7 / 8)),
        ("allreduce", "rabenseifner", (6, 6, 2 * 800 * 7 / 8)),
        ("allreduce", "recursive_doubling", (3, 3, 3 * 800)),
        ("bcast", "scatter_allgather", (6, 6, 2 * 800 * 7 / 8)),
        ("bcast", "scatter_allgather_ring", (10, 10, 2 * 800 * 7 / 8)),
        ("bcast", "binomial", (3, 3, 3 * 800)),
        ("bcast", "pipeline", (7, 7, 800 * 7 / 8)),
        ("allgather", "bruck", (3, 3, 800 * 7 / 8)),
        ("alltoall", "bruck", (3, 3, 3 * 800 / 2)),
        ("alltoall", "linear", (1, 7, 800 * 7 / 8)),
        ("bcast", "linear", (1, 7, 7 * 800)),
        ("bcast", "trix", (6, 6, 2 * 800)),
    ],
)
def test_a_family_tells_rounds_messages_and_bytes(
    collective: str, name: str, expected: tuple[float, ...]
) -> None:
    """They are those of textbook schedules on eight ranks, of a vector of 800 bytes."""
    call_count, *own, local = quantities(call(800, collective=collective), name)
    assert (call_count, local) == (1, 800)
    assert own == pytest.approx(expected)


def test_one_rank_and_calls_without_data_have_finite_times() -> None:
    for point in (call(0), call(0, 1), call(64, 1)):
        for name in ("ring", "linear", "binomial", "rabenseifner", "trix"):
            assert np.isfinite(quantities(point, name)).all()
            assert quantities(point, name).min() >= 0


def test_without_measurements_costs_are_the_rough_ones() -> None:
    found = StructuredCost([]).linearised(call(4096), RING)
    rough = ROUGH_COSTS @ quantities(call(4096), "ring")
    assert found.log_seconds == pytest.approx(math.log(rough))
    assert found.shares.sum() == pytest.approx(1.0)


def test_costs_of_one_algorithm_tell_of_another() -> None:
    """Two were measured; the third, and another number of nodes, are predicted from their costs."""
    model = PosteriorModel(rows([RING, DOUBLING]), blind)
    for n in SIZES:
        for point in (call(n), call(n, 32)):
            found = model.posterior(point, [RABENSEIFNER])
            apart = found.mean[0] - math.log(seconds(point, RABENSEIFNER))
            assert abs(apart) < min(2 * math.sqrt(found.covariance[0, 0]), 0.7)


def test_what_has_no_family_is_known_the_least() -> None:
    model = PosteriorModel(rows([RING]), blind)
    deviations = [
        math.sqrt(model.posterior(call(4096), [choice]).covariance[0, 0])
        for choice in (RING, DOUBLING, UNKNOWN)
    ]
    assert deviations == sorted(deviations)
    assert deviations[2] > 1.5 * deviations[1]


def gains(model: PosteriorModel, choices: Sequence[AlgorithmChoice]) -> Mapping[str, float]:
    """Return the gain of each choice over the default, in its standard deviations."""
    found = model.posterior(call(4096), (DEFAULT, *choices))
    return {
        str(choice): gain / spread
        for choice in choices
        for gain, spread in [found.log_gain(choice, DEFAULT)]
    }


def test_another_machine_makes_no_choice_sure() -> None:
    """However large its gain over the default was there, and whatever it was repeated."""
    there = rows([RING, DOUBLING], "elsewhere") + rows([DEFAULT], "elsewhere", 20.0)
    here = rows([RING, DOUBLING]) + rows([DEFAULT], factor=20.0)
    assert max(gains(PosteriorModel(there, blind), (RING, DOUBLING)).values()) < 1
    assert min(gains(PosteriorModel(here, blind), (RING, DOUBLING)).values()) > 3


def test_what_was_measured_here_outweighs_another_machine() -> None:
    """The ring took a hundredth of its time on the other machine."""
    known = rows([RING, DOUBLING]) + rows([RING], "elsewhere", 0.01)
    found = PosteriorModel(known, blind).posterior(call(4096), (RING, DOUBLING))
    for choice, mean in zip(found.choices, found.mean, strict=True):
        assert mean == pytest.approx(math.log(seconds(call(4096), choice)), abs=0.1)


def test_a_machine_that_is_alike_makes_the_first_guess_better() -> None:
    prior = PosteriorModel(rows([RING, DOUBLING, RABENSEIFNER], "elsewhere"), blind)
    rough = PosteriorModel([], blind)
    for choice in (RING, DOUBLING, RABENSEIFNER):
        truth = math.log(seconds(call(2**24), choice))
        near, far = (
            abs(model.posterior(call(2**24), [choice]).mean[0] - truth) for model in (prior, rough)
        )
        assert near < 0.8 * far


def test_prior_seconds_are_times_at_the_fitted_costs() -> None:
    """They grow with the size, as crossovers follow them between measured sizes."""
    model = PosteriorModel(rows([RING, DOUBLING]), blind)
    for choice in (RING, DOUBLING):
        found = [model.prior_seconds(call(2**k), choice) for k in range(3, 25)]
        assert found == sorted(found)
        for n in SIZES:
            assert model.prior_seconds(call(n), choice) == pytest.approx(
                seconds(call(n), choice), rel=0.25
            )


def test_the_order_of_machines_does_not_matter() -> None:
    """Two machines measured the same call, and other algorithms won on each."""
    ring = rows([RING], "b") + rows([DOUBLING], "b", 50.0)
    doubling = rows([DOUBLING], "a", 0.1) + rows([RING], "a")
    chosen = {train(own, blind).choose(call(4096)) for own in (ring + doubling, doubling + ring)}
    assert len(chosen) == 1


def test_another_machine_covers_no_rule_even_where_calls_are_simulated() -> None:
    """Its measurements say nothing of the error of simulations of this machine."""
    known = rows([RING, DEFAULT], "elsewhere")
    for own, covered in (([], False), (rows([RING, DEFAULT]), True)):
        selector = train([*known, *own], seconds)
        assert bool(selector.guarded_candidates(call(4096, 64))) is covered


def test_where_it_is_known_what_the_default_runs_its_times_are_those_of_that() -> None:
    """It was measured for small calls alone, where it runs doubling; large ones run ring."""
    small, large = call(64), call(2**24)

    def runs(point: CallPoint) -> AlgorithmChoice:
        return RING if point.nbytes >= 2**16 else DOUBLING

    known = [
        *(row for row in rows([RING, DOUBLING]) if row.point != large),
        *(replace(row, choice=DEFAULT) for row in rows([DOUBLING]) if row.point == small),
    ]
    model = PosteriorModel(known, blind, runs)
    for point, same, other in ((small, DOUBLING, RING), (large, RING, DOUBLING)):
        found = model.posterior(point, (DEFAULT, RING, DOUBLING))
        assert found.log_gain(same, DEFAULT) == pytest.approx((0.0, 0.0), abs=1e-6)
        assert found.log_gain(other, DEFAULT) == found.log_gain(other, same)
    unknown = PosteriorModel(known, blind).posterior(large, (DEFAULT, RING))
    assert unknown.log_gain(RING, DEFAULT)[1] > 0.1
    assert DEFAULT in model.choices


def test_where_it_is_unknown_what_the_default_runs_it_is_an_algorithm_of_its_own() -> None:
    """Its measurements count there, although it is known what it ran in them."""
    known = [*rows([RING, DOUBLING]), *(replace(row, choice=DEFAULT) for row in rows([RING]))]
    elsewhere = call(4096, nodes=16)

    def runs(point: CallPoint) -> AlgorithmChoice | None:
        return RING if point.nodes == 8 else None

    found = PosteriorModel(known, blind, runs).posterior(elsewhere, (DEFAULT, RING))
    usual = PosteriorModel(known, blind).posterior(elsewhere, (DEFAULT, RING))
    assert found.mean == pytest.approx(usual.mean)
    assert found.covariance == pytest.approx(usual.covariance)


def test_a_default_that_jumps_is_unsure_although_it_is_known_what_it_runs() -> None:
    point = call(4096)
    jumping = replace(
        row(point, DEFAULT, 1.0), samples={launch: (t,) for launch, t in enumerate((1.0, 2.0, 1.0))}
    )
    model = PosteriorModel([jumping, row(point, DOUBLING, 1.0)], blind, lambda _: RING)
    assert math.sqrt(model.own_variance(jumping)) > 0.1
