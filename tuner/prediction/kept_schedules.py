"""Schedules that are kept from one machine to the next.

Rates, latencies and prices of a machine change no schedule, and making its rounds takes longer than
simulating them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Lock

from tuner.core.schedule import Round, RoundsAlike, Schedule

MAX_KEPT_BYTES = 192 << 20  # of the rounds that a process keeps
MAX_SCHEDULE_BYTES = 16 << 20  # of a schedule that is kept
ROUND_BYTES = 200  # of a round besides its columns
COLUMN_BYTES = 130  # of a column besides its numbers


class ScheduleStore:
    """Schedules with their rounds, the least recently used of which are dropped."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._kept = OrderedDict[Hashable, tuple[Schedule, int]]()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable, build: Callable[[], Schedule]) -> Schedule:
        """Return the schedule of a key, built if it is not kept; a large one is never kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        schedule = build()
        held = _hold_rounds(schedule)
        if held is None:
            return schedule
        rounds, nbytes = held
        kept = replace(schedule, make_rounds=lambda: rounds)
        self._add(key, kept, nbytes)
        return kept

    def _add(self, key: Hashable, kept: Schedule, nbytes: int) -> None:
        with self._lock:
            self._bytes += nbytes - self._kept.pop(key, (kept, 0))[1]
            self._kept[key] = kept, nbytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]


def _hold_rounds(schedule: Schedule) -> tuple[tuple[Round, ...], int] | None:
    """Return the rounds and their bytes, with columns that rounds share counted once.

    Return None where they take more than MAX_SCHEDULE_BYTES.
    """
    rounds, nbytes, seen = list[Round](), 0, set[int]()
    alike = schedule.make_rounds
    if (
        isinstance(alike, RoundsAlike)
        and alike.p * alike.messages * COLUMN_BYTES > MAX_SCHEDULE_BYTES
    ):
        return None
    for one in schedule.rounds():
        rounds.append(one)
        new = {id(column): column.nbytes for column in one.columns if id(column) not in seen}
        seen.update(new)
        nbytes += ROUND_BYTES + COLUMN_BYTES * len(new) + sum(new.values())
        if nbytes > MAX_SCHEDULE_BYTES:
            return None
    return tuple(rounds), nbytes
