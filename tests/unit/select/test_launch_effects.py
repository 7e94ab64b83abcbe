"""Launch effects: what algorithms have in common in a launch cancels when they are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tuner.core.speedup import mean_over_launches
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint, Observation, no_simulation
from tuner.select.launch_effects import LaunchEffects, estimate_launch_effects
from tuner.select.selector import train
from tuner.select.significance import PredictedComparison, predict_comparison

DEFAULT, CHAIN, TREE = AlgorithmChoice(), AlgorithmChoice("chain"), AlgorithmChoice("binomial")
LINEAR = AlgorithmChoice("linear")
CALL = CallPoint("bcast", 4, 1, "host", 4096)
USUAL = 0.015  # standard deviation between launches


def observation(
    choice: AlgorithmChoice, launches: Mapping[int, float], call: CallPoint = CALL
) -> Observation:
    """Twelve repetitions in each launch, which differ by 1 %."""
    samples = {
        launch: tuple(seconds * (1 + 0.01 * math.sin(n)) for n in range(12))
        for launch, seconds in launches.items()
    }
    return Observation(call, choice, samples, *mean_over_launches([*samples.values()]))


def calls(shared: float, own: float, launches: int = 3) -> list[Observation]:
    """Three algorithms at a hundred sizes, with these deviations of their launches."""
    draw, rows = np.random.default_rng(3), []
    for nbytes in range(100):
        together = shared * draw.standard_normal(launches)
        for choice in (DEFAULT, CHAIN, TREE):
            times = np.exp(together + own * draw.standard_normal(launches))
            call = CALL.with_size(1 + nbytes)
            rows.append(observation(choice, dict(enumerate(times.tolist())), call))
    return rows


@pytest.mark.parametrize(("shared", "own"), [(0.2, USUAL), (0.05, 0.1), (0.0, USUAL)])
def test_both_deviations_are_estimated(shared: float, own: float) -> None:
    found = estimate_launch_effects(calls(shared, own))
    assert math.sqrt(found.shared) == pytest.approx(shared, rel=0.2, abs=0.02)
    assert math.sqrt(found.own_factor) == pytest.approx(max(own / USUAL, 1.0), rel=0.2)


def test_launches_are_taken_to_differ_as_usual_until_some_are_known() -> None:
    alone = [observation(choice, {0: 1.0}) for choice in (DEFAULT, CHAIN)]
    found = estimate_launch_effects(alone)
    assert [found.shared, found.own_factor] == pytest.approx([USUAL**2, 1.0])


def test_a_time_is_as_uncertain_as_its_launches_are_apart() -> None:
    effects = estimate_launch_effects(calls(0.2, USUAL, launches=4))
    _, own, shared = effects.adjust([observation(CHAIN, dict.fromkeys(range(4), 1.0))])
    assert own == pytest.approx(USUAL**2 / 4, rel=0.5)
    assert shared == pytest.approx(0.2**2 / 4, rel=0.4)


def test_times_are_adjusted_for_the_launches_they_were_measured_in() -> None:
    """The differences in each launch are known, and how slow the launches were is not."""
    rows = [observation(CHAIN, {0: 1.0, 1: 2.0}), observation(DEFAULT, {0: 1.0})]
    rows += [observation(TREE, {1: 1.0}), observation(CHAIN, {1: 3.0}, CALL.with_size(8))]
    logs, own, shared = LaunchEffects(100.0, 1.0).adjust(rows)
    chain, default, tree, elsewhere = logs
    assert chain - default == pytest.approx(0.0, abs=1e-3)
    assert chain - tree == pytest.approx(math.log(2.0), abs=1e-3)
    assert elsewhere == pytest.approx(math.log(3.0), abs=1e-3)
    apart = np.diag(own) + shared
    assert apart[0, 0] + apart[1, 1] - 2 * apart[0, 1] == pytest.approx(2 * own[1], rel=0.1)
    assert apart[0, 0] == pytest.approx(50.0, rel=0.1)
    assert apart[3, :3] == pytest.approx([25.0] * 3, rel=0.1)  # a half of a half


def winners(*rows: Observation) -> frozenset[AlgorithmChoice]:
    selector = train(rows, no_simulation, adaptive=True)
    compared = predict_comparison(CALL, selector, {row.choice for row in rows})
    assert isinstance(compared, PredictedComparison)
    return compared.winners


def test_two_are_compared_through_what_was_measured_with_both() -> None:
    """The second launch is twice as slow: the tree took longer than the default, and is faster."""
    default, tree = observation(DEFAULT, {0: 1.0}), observation(TREE, {1: 1.3})
    slowed = [observation(one, {0: 1.0, 1: 2.0}) for one in (CHAIN, LINEAR)]
    alike = [observation(one, {0: 1.0, 1: 1.0}) for one in (CHAIN, LINEAR)]
    assert winners(default, *slowed, tree) == {TREE}
    assert winners(default, *alike, tree) == set()


def test_a_slow_launch_is_no_gain() -> None:
    """The default was measured in a launch that was twice as slow as that of the tree."""
    chain = observation(CHAIN, {0: 2.0, 1: 1.0})
    assert winners(observation(DEFAULT, {0: 2.0}), chain, observation(TREE, {1: 1.0})) == set()


def test_a_call_that_jumps_makes_no_other_uncertain() -> None:
    """A design repeats what jumps, and hardly anything else."""
    steady = [
        observation(one, {0: 1.0}, CALL.with_size(n)) for n in (1, 2) for one in (CHAIN, TREE)
    ]
    jumping = [observation(one, {0: 1.0, 1: 2.0}) for one in (CHAIN, TREE)]
    jumping[0] = observation(CHAIN, {0: 1.0, 1: 1.0})
    found = estimate_launch_effects([*steady, *jumping])
    assert found.own_variance(steady[0]) == pytest.approx(USUAL**2, rel=0.2)
    assert found.own_variance(jumping[1]) > 50 * USUAL**2


def test_of_what_was_repeated_alone_half_is_its_own() -> None:
    alone = observation(DEFAULT, {0: 1.0, 1: 0.5, 2: 1.0})
    found = estimate_launch_effects([alone, observation(TREE, {0: 0.8})])
    assert math.sqrt(3 * found.own_variance(alone)) > 0.1
    assert winners(alone, observation(TREE, {0: 0.8})) == set()
    assert winners(observation(DEFAULT, {0: 1.0}), observation(TREE, {0: 0.8})) == {TREE}


@pytest.mark.parametrize(("launches", "apart"), [(1, USUAL), (2, 0.1), (3, 0.05), (4, 0.1)])
def test_what_is_slower_seldom_wins_though_launches_are_apart(launches: int, apart: float) -> None:
    """Ten candidates, each slower than the default by 10 %."""
    draw, won = np.random.default_rng(5), list[bool]()
    for _ in range(50):
        rows = [
            observation(
                AlgorithmChoice(f"number{n}") if n else DEFAULT,
                {
                    launch: (1.1 if n else 1.0) * math.exp(apart * draw.standard_normal())
                    for launch in range(launches)
                },
            )
            for n in range(11)
        ]
        won.append(bool(winners(*rows)))
    assert np.mean(won) <= 0.15
