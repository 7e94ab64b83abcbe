"""Replays of probes on measured grids: what is spent, and what the table would be worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.designs import DEFAULT, grid
from tuner.select.dataset import Observation
from tuner.select.experiment_design import measurement_cost
from tuner.select.replay import Replay, replay_shares

pytestmark = pytest.mark.slow


def test_a_replay_spends_what_its_measurements_cost() -> None:
    whole, asked = grid(), list[Observation]()

    def measure(row: Observation, _launch: int) -> Observation:
        asked.append(row)
        return row

    known = Replay(whole.design(), whole.rows, measure)
    assert known.total_seconds == pytest.approx(whole.seconds)
    known.measure_until(0.1 * whole.seconds)
    assert known.spent == pytest.approx(sum(measurement_cost(row.seconds) for row in asked))
    assert 0.05 * whole.seconds < known.spent < 0.15 * whole.seconds
    before = known.spent
    known.measure_until(0.1 * whole.seconds)
    assert known.spent == before


def test_more_seconds_leave_less_regret() -> None:
    first, *_, last = stages = [*replay_shares(grid().rows, (0.05, 0.3, 0.9), seed=1)]
    assert [one.share for one in stages] == [0.0, 0.05, 0.3, 0.9]
    by_default = [
        own[DEFAULT] / min(own.values()) - 1
        for point in {row.point for row in grid().rows}
        for own in [{row.choice: row.seconds for row in grid().rows if row.point == point}]
    ]
    assert sorted(first.regrets) == pytest.approx(sorted(by_default))
    assert np.mean(last.regrets) < 0.1 * np.mean(first.regrets)
    assert not any(first.slower)
    assert np.mean(last.slower) <= 0.05
    assert last.expected < first.expected


def test_replays_differ_by_their_noise_alone() -> None:
    rows = grid().rows
    once, again, other = (
        [stage.expected for stage in replay_shares(rows, (0.1,), seed)] for seed in (1, 1, 2)
    )
    assert once == again != other


def test_a_prior_of_the_same_times_saves_seconds() -> None:
    rows = grid(noise=0.0).rows
    prior = [replace(row, machine="twin", simulated_seconds=math.nan) for row in rows]
    alone, helped = (
        [float(np.mean(one.regrets)) for one in replay_shares(rows, (0.02,), 1, known)]
        for known in ((), prior)
    )
    assert alone[0] == helped[0]  # a machine of which nothing was measured keeps the default
    assert helped[1] < 0.5 * alone[1]
