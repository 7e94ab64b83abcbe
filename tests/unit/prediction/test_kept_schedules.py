"""Schedules that are kept: the same rounds, built once, within a bound."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from tuner.algorithms import build
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.prediction import kept_schedules
from tuner.prediction.kept_schedules import ScheduleStore
from tuner.sim.rounds import round_types


class Builder:
    """A builder that counts its calls."""

    def __init__(self, p: int = 8) -> None:
        self.p, self.calls = p, 0

    def __call__(self) -> Schedule:
        self.calls += 1
        return build(Collective.ALLREDUCE, "ring", self.p)


def held_bytes(schedule: Schedule) -> int:
    rounds = list(schedule.rounds())
    columns = {id(c): c.nbytes for one in rounds for c in one.columns}
    own = kept_schedules.ROUND_BYTES * len(rounds) + kept_schedules.COLUMN_BYTES * len(columns)
    return own + sum(columns.values())


def test_a_schedule_is_built_once_and_has_the_same_rounds() -> None:
    store, builder = ScheduleStore(), Builder()
    kept = store.get("ring", builder)
    assert store.get("ring", builder) is kept
    assert builder.calls == 1
    for held, fresh in zip(kept.rounds(), builder().rounds(), strict=True):
        assert all(map(np.array_equal, held.columns, fresh.columns))
    assert next(kept.rounds()) is next(kept.rounds())


def test_the_least_recently_used_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, builder = Builder(), Builder(), Builder()
    size = held_bytes(first())
    store = ScheduleStore(max_bytes=2 * size)
    store.get("first", first)
    store.get("second", second)
    store.get("first", first)
    store.get("third", builder)  # in the place of the second
    store.get("first", first)
    store.get("second", second)
    assert (first.calls, second.calls) == (2, 2)
    monkeypatch.setattr(kept_schedules, "MAX_SCHEDULE_BYTES", size - 1)
    large = Builder()
    assert store.get("large", large) is not store.get("large", large)


def test_the_types_of_a_schedule_are_found_once_per_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = Mock(wraps=round_types.find_round_types)
    monkeypatch.setattr(round_types, "find_round_types", find)
    made = Builder()()
    by_node, own = np.repeat(np.arange(4), 2), np.arange(8)
    for node_of in (by_node, by_node.copy(), own, by_node):
        round_types.known_round_types(made, node_of, cuda=False, with_patterns=True)
    assert find.call_count == 3  # those of the last placement are kept
