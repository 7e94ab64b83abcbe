"""Calls that are given up once they take longer than a limit; what a call takes at least."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import calibrations, calls, memories, placements, tangles
from tests.support.properties import examples
from tuner.algorithms import build
from tuner.core.collective import Collective
from tuner.machines import preset
from tuner.sim import event_engine
from tuner.sim.fast_engine import PreparedSimulation
from tuner.sim.rounds import round_simulation
from tuner.topology import CUDA, Placement

SIZES = [1 << 20, 4 << 20]


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.data())
def test_a_limit_changes_no_time_within_it(data: st.DataObject) -> None:
    """Any machine, memory and schedule; beyond the limit there is the time, or infinity."""
    placement = data.draw(placements(most=12))
    made, nbytes = data.draw(calls(placement.p) | tangles(placement.p))
    calibration, memory = data.draw(calibrations()), data.draw(memories(placement))
    sizes = [nbytes, nbytes // 3, 2 * nbytes]
    share = data.draw(st.lists(st.floats(0.1, 1.5), min_size=3, max_size=3))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(round_simulation, "ROUNDS_PER_CHECK", 1)
        call = PreparedSimulation(made, placement, calibration, 1, memory)
        whole = np.array(call.seconds(sizes))
        longest = whole * share
        limited = np.array(call.seconds(sizes, longest))
    within = whole <= longest
    np.testing.assert_allclose(limited[within], whole[within], rtol=1e-12, atol=0.0)
    beyond = limited[~within]
    assert np.all(np.isinf(beyond) | np.isclose(beyond, whole[~within], rtol=1e-12, atol=0.0))


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.data())
def test_no_call_takes_less_than_the_least(data: st.DataObject) -> None:
    placement = data.draw(placements(most=12))
    made, nbytes = data.draw(calls(placement.p) | tangles(placement.p))
    calibration, memory = data.draw(calibrations()), data.draw(memories(placement))
    call = PreparedSimulation(made, placement, calibration, 1, memory)
    sizes = [one for one in (nbytes, nbytes // 3, 2 * nbytes) if call.by_rounds.is_possible(one)]
    if sizes:
        least = call.by_rounds.least_seconds(np.array(sizes))
        assert np.all(least <= call.finish_times(sizes).max(axis=1))


def test_a_segmented_call_is_given_up_before_it_is_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of 8 KiB that follow one another take longer than a few large ones."""
    dgx = preset("dgx-h100", 4)
    ranks = Placement.block(dgx.topology, 8)

    def seconds(params: dict[str, int], longest: np.ndarray | None = None) -> list[float]:
        made = build(
            Collective.ALLREDUCE, "two_level_rabenseifner", ranks.p, nbytes=SIZES[0], params=params
        )
        call = PreparedSimulation(made, ranks, dgx.calibration, 1, CUDA)
        return call.seconds(SIZES[:1], longest)

    whole = seconds({"group": 8})
    assert seconds({"group": 8, "segment": 8192})[0] > 2 * whole[0]
    monkeypatch.setattr(round_simulation._RoundRun, "run", None)
    monkeypatch.setattr(event_engine, "finish_times", None)
    assert seconds({"group": 8, "segment": 8192}, np.array(whole)) == [np.inf]
