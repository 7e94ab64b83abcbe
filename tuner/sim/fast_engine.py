"""The working engine: the semantics of `reference_engine`, orders of magnitude faster.

A call is simulated round by round, all message sizes in one pass (`tuner.sim.rounds`). Sizes for
which the order of events matters beyond a round are simulated event by event (`event_engine`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.base.errors import LimitExceededError
from tuner.core.calibration import Calibration
from tuner.core.schedule import RoundsAlike, Schedule
from tuner.sim import event_engine
from tuner.sim.blocked_signals import block_signals
from tuner.sim.connections import with_eager_sends
from tuner.sim.rounds import RoundSimulation
from tuner.sim.traffic_pattern import has_pattern_costs
from tuner.sim.transfers import TransferTableBuilder, check_call_arguments
from tuner.topology import CUDA, HOST, Placement

MAX_EVENT_TRANSFERS = 1 << 23  # most transfers simulated event by event: four gigabytes
# Transfers simulated event by event without looking for a regular part.
MAX_EVENT_ONLY_TRANSFERS = 1 << 15
RETRY_MARGIN_ROUNDS = 32  # rounds simulated event by event beyond the one that failed


def finish_times(
    schedule: Schedule,
    placement: Placement,
    calibration: Calibration,
    sizes: Sequence[int],
    itemsize: int = 1,
    memory: str = HOST,
) -> FloatArray:
    """Return when each rank is done, in seconds, shape (sizes, p); all ranks start at 0.

    Raises InputError as `build_transfers` does, LimitExceededError for more transfers than can be
    simulated event by event.
    """
    return PreparedSimulation(schedule, placement, calibration, itemsize, memory).finish_times(
        sizes
    )


def _require_few_events(about: str, transfers: int) -> None:
    if transfers > MAX_EVENT_TRANSFERS:
        raise LimitExceededError(
            f"{about} {transfers} transfers depends on one another, and at"
            f" most {MAX_EVENT_TRANSFERS} can be played event by event: simulate fewer ranks,"
            " or longer segments"
        )


def _are_all_alike(schedule: Schedule, placement: Placement, calibration: Calibration) -> bool:
    """Return whether all ranks do the same on machines that are the same for each of them.

    Then two ranks stand for all: whatever one of them meets, every other one meets at that time.
    """
    return (
        isinstance(schedule.make_rounds, RoundsAlike)
        and placement.topology.is_star
        and placement.shape == (schedule.p, 1)
        and schedule.p > 1
        and not has_pattern_costs(calibration)
    )


class PreparedSimulation:
    """One call on one machine, of any size; what does not depend on the size is computed once.

    all_alike   whether ranks 0 and 1 alone are simulated, as all ranks take as long
    """

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        calibration: Calibration,
        itemsize: int,
        memory: str,
    ) -> None:
        self.placement, self.itemsize, self.memory = placement, itemsize, memory
        self.calibration = with_eager_sends(schedule, calibration)
        self.all_alike = _are_all_alike(schedule, placement, calibration)
        if self.all_alike and isinstance(schedule.make_rounds, RoundsAlike):
            schedule = replace(schedule, make_rounds=schedule.make_rounds.of_two_ranks)
        self.schedule = schedule
        self.by_rounds = RoundSimulation(schedule, placement, self.calibration, itemsize, memory)

    def finish_times(self, sizes: Sequence[int], longest: FloatArray | None = None) -> FloatArray:
        """Return when each rank is done; see the function `finish_times`.

        longest     seconds of each size, shape (sizes,); the times of a call that takes longer may
                    be infinite, which is found out as early as possible
        """
        for nbytes in sizes:
            check_call_arguments(self.schedule, self.placement, nbytes, self.itemsize)
        limits = np.full(len(sizes), np.inf) if longest is None else longest
        fitting = [z for z, nbytes in enumerate(sizes) if self.by_rounds.is_possible(nbytes)]
        times, died = np.zeros((len(sizes), self.schedule.p)), np.zeros(len(sizes), dtype=np.int64)
        if fitting:
            counts = np.array([sizes[z] // self.itemsize for z in fitting], dtype=np.int64)
            times[fitting], died[fitting] = self.by_rounds.run_within(counts, limits[fitting])
        for z in np.flatnonzero(died >= 0).tolist():
            times[z] = self.run_events(sizes[z], int(died[z]), float(limits[z]))
        if self.all_alike:
            times[:] = times[:, :1]
        return times

    def seconds(self, sizes: Sequence[int], longest: FloatArray | None = None) -> list[float]:
        """Return the seconds until the last rank is done, for each of `sizes` (bytes).

        longest     as in `finish_times`
        """
        query = self.calibration.pointer_query_seconds if self.memory == CUDA else 0.0
        with block_signals():
            times = self.finish_times(sizes, None if longest is None else longest - query)
        whole: list[float] = (times.max(axis=1) + query).tolist()
        return whole

    def require_few_events(self, nbytes: int, times: float) -> None:
        """Raise LimitExceededError if a call would have too many events on more ranks.

        times       number of ranks over those of this call; transfers are at least as many times
                    as many

        Whether the order of all transfers depends on one another is taken from this call.
        """
        if self.by_rounds.is_possible(nbytes):
            _, died = self.by_rounds.run(np.array([nbytes // self.itemsize]))
            failed = int(died[0])
            if failed < 0 or self._has_regular_end(2 * failed + RETRY_MARGIN_ROUNDS):
                return
        transfers = sum(map(len, self.schedule.rounds()))
        _require_few_events("the order of at least", int(transfers * times))

    def run_events(self, nbytes: int, failed_round: int, longest: float = math.inf) -> FloatArray:
        """Return the finish times of one size that failed round by round.

        All are infinite where the call takes longer than `longest`, unless its end is regular.

        Often the rounds after an irregular beginning are regular: then only the beginning is
        simulated event by event, if none of it reaches into the rest.
        """
        end = 2 * failed_round + RETRY_MARGIN_ROUNDS
        while self.by_rounds.is_possible(nbytes) and self._has_regular_end(end):
            before = event_engine.final_state(self._first_rounds(end).build(nbytes))
            times, again = self.by_rounds.run(np.array([nbytes // self.itemsize]), end, before)
            if again[0] < 0:
                last: FloatArray = times[0]
                return last
            end = 2 * int(again[0]) + RETRY_MARGIN_ROUNDS
        return event_engine.finish_times(self._all_rounds.build(nbytes), longest)

    def _has_regular_end(self, begin: int) -> bool:
        """Return whether more than half of the transfers may be regular: those from `begin` on."""
        transfers = np.cumsum(self.by_rounds.round_types.row_counts)
        return bool(
            transfers[-1] > MAX_EVENT_ONLY_TRANSFERS
            and begin < len(transfers)
            and 2 * transfers[begin] < transfers[-1]
            and self.by_rounds.has_repeated_end()
        )

    @cached_property
    def _all_rounds(self) -> TransferTableBuilder:
        return self._first_rounds(None)

    def _first_rounds(self, end: int | None) -> TransferTableBuilder:
        """Return a builder of the transfers of the rounds before `end`, or of all rounds."""
        rows = sum(len(r) for r in islice(self.schedule.rounds(), end))
        _require_few_events(f"{self.schedule}: the order of", rows)
        part = replace(self.schedule, make_rounds=lambda: islice(self.schedule.rounds(), end))
        return TransferTableBuilder(
            part,
            self.placement,
            self.calibration,
            self.itemsize,
            self.memory,
            self.by_rounds.connection_finder,
        )
