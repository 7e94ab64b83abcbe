"""Check, time and write the points that one set of ranks measures (rank side)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.measurement import REFUSED, WRONG_RESULT, Measurement, series_line
from tuner.core.path_classes import HOST
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmChoice
from tuner.mpi_libraries import min_call_bytes
from tuner.probe import pointtopoint, timing
from tuner.probe.all_pairs import round_robin
from tuner.probe.clock import SharedClock
from tuner.probe.collectives import (
    CollectiveRun,
    HostBuffers,
    call_without_data,
    preserves_operand_order,
)
from tuner.probe.devices import DeviceProbe
from tuner.probe.probe_plan import (
    COLLECTIVE_KINDS,
    MAX_EAGER_BYTES,
    MIN_REPETITIONS,
    OUT_OF_TIME,
    RECEIVER_DELAY_S,
    ProbeCandidate,
    ProbePlan,
    ProbePoint,
)
from tuner.runtime.algorithm_control import NO_HOOKS, AlgorithmControl
from tuner.runtime.memory import HOST_MEMORY
from tuner.runtime.nccl import Unavailable
from tuner.runtime.schedule_call import ScheduleCall
from tuner.runtime.scratch import ScratchPool

# A call there and back gives a one-way time.
ROUND_TRIP_KINDS = ("pingpong", "call", "pairs", "sentinel")
MAX_SIZE_SERIES_FRACTION = 0.5  # largest share of the remaining time for one series of sizes


def format_series(
    point: ProbePoint, candidates: Iterable[ProbeCandidate], samples: FloatArray
) -> str:
    """Return the lines of a measurements file for one finished point, one for each candidate."""
    series = (
        point.to_measurement(candidate, column.tolist())
        for candidate, column in zip(candidates, samples.T, strict=True)
    )
    return "".join(series_line(one) + "\n" for one in series)


class ProbeSession:
    """A measurement of points on the ranks of `comm`; every method is collective.

    oversubscribed  whether there are more ranks than cores
    clock           shared clock of ranks on several hosts; None: one host
    keep_alive      called regularly, to show that the ranks are not stuck
    on_excluded     called on rank 0 for each excluded candidate: point, candidate, reason
    on_trial        called on rank 0 with a point and a candidate before calls without data, which
                    may end the ranks, and with True as well after them
    on_note         called with a sentence where a whole kind of measurement is impossible
    deadline        end of all measurements, as time.monotonic() on rank 0 shows it
    """

    def __init__(
        self,
        plan: ProbePlan,
        comm: MPI.Intracomm,
        oversubscribed: bool,
        clock: SharedClock | None,
        keep_alive: Callable[[], object],
        on_excluded: Callable[[ProbePoint, ProbeCandidate, str], object],
        on_trial: Callable[[ProbePoint, ProbeCandidate, bool], object],
        on_note: Callable[[str], object],
        deadline: float = math.inf,
    ) -> None:
        self._plan = plan
        self._comm = comm
        self._control_comm, self._schedule_comm = comm.Dup(), comm.Dup()
        self._deadline = deadline
        self._schedule_calls: dict[
            AlgorithmChoice, ScheduleCall
        ] = {}  # our schedules at the current point
        self._algorithm_control = AlgorithmControl(plan.library, comm)
        self._device_probe: DeviceProbe | None = None
        self._oversubscribed, self._clock = oversubscribed, clock
        self._keep_alive, self._on_excluded, self._on_note = keep_alive, on_excluded, on_note
        self._on_trial = on_trial
        self._tried: set[tuple[str, AlgorithmChoice]] = set()  # calls without data
        self.start_delays: list[float] = []  # seconds by which the latest rank began a sample late
        self._stopwatch = timing.Stopwatch(
            self._control_comm, oversubscribed, clock, keep_alive, deadline
        )

    def measure(self, point: ProbePoint, seconds: float) -> str | None:
        """Check and time one point; return its lines for the file, on rank 0 of the session.

        Returns None if the point would not be finished before the deadline.
        """
        if self._is_late():
            return None
        if point.memory != HOST:
            members = self._get_device_probe().measuring_ranks(point)
            if len(members) < self._comm.size:
                return self._measure_on_subset(members, point, seconds)
        if point.kind in ("eager", "ahead") and not self._fits_before_deadline(point):
            return None
        if point.kind == "eager":
            empty = (
                pointtopoint.zeros if point.memory == HOST else self._get_device_probe().allocate
            )
            nbytes, blocked = pointtopoint.measure_eager_limit(self._comm, MAX_EAGER_BYTES, empty)
            return format_series(point, [ProbeCandidate(nbytes=nbytes)], np.array([blocked]).T)
        if point.kind == "ahead":
            seconds_late = pointtopoint.measure_late_receives(self._comm, point.nbytes)
            return format_series(
                point, [ProbeCandidate(nbytes=point.nbytes)], np.array([seconds_late]).T
            )
        if point.kind == "sweep":
            return self._measure_all_pairs(point)
        candidates = self._correct_candidates(point)
        if not candidates:  # too late, or every one of them was refused
            return None if candidates is None else ""
        first_calls = None
        if point.kind == "pingpong" and self._deadline < math.inf:
            first_calls = self._fit_within_budget(point, candidates)
            candidates = candidates[: len(first_calls.each)]
            if not candidates:
                return None
        fewest = max(self._plan.min_repetitions, MIN_REPETITIONS * (point.kind == "sentinel"))
        samples = self._stopwatch.sample(
            self._timed_operations(point, candidates),
            ci_half_width=self._plan.ci_half_width,
            seconds=seconds,
            seed=self._plan.seed,
            is_comparison=point.kind in COLLECTIVE_KINDS,
            min_repetitions=fewest,
            first_calls=first_calls,
        )
        self.start_delays += self._stopwatch.start_delays.tolist()
        if not len(samples):
            return None
        return format_series(point, candidates, samples / _operations_per_call(point))

    def close(self) -> None:
        if self._device_probe is not None:
            self._device_probe.release()
        self._release_schedules()
        self._schedule_comm.Free()
        self._algorithm_control.release()
        self._control_comm.Free()

    def _get_device_probe(self) -> DeviceProbe:
        if self._device_probe is None:
            self._device_probe = DeviceProbe(self._comm, self._on_note)
        return self._device_probe

    def _measure_on_subset(
        self, members: list[int], point: ProbePoint, seconds: float
    ) -> str | None:
        """Measure a point on `members` while the other ranks sleep; return "" without members."""
        if not members:
            return ""
        mine = self._comm.rank in members
        text: str | None = None
        part = MPI.Intracomm(self._comm.Split(0 if mine else MPI.UNDEFINED, self._comm.rank))
        if mine:
            own = ProbeSession(
                self._plan,
                part,
                self._oversubscribed,
                self._clock,
                self._keep_alive,
                self._on_excluded,
                self._on_trial,
                self._on_note,
                self._deadline,
            )
            text = own.measure(point, seconds)
            self.start_delays += own.start_delays
            own.close()
            part.Free()
        timing.yielding_barrier(self._control_comm, self._keep_alive)
        known: str | None = self._control_comm.bcast(text, members[0])
        return known

    def _is_late(self) -> bool:
        """Return whether the deadline has passed; rank 0 decides for all."""
        if self._deadline == math.inf:
            return False
        late: bool = self._control_comm.bcast(time.monotonic() > self._deadline)
        return late

    def _fits_before_deadline(self, point: ProbePoint) -> bool:
        """Return whether the messages that show how senders wait fit in before the deadline."""
        if self._deadline == math.inf:
            return True
        nbytes, messages = point.nbytes, pointtopoint.AHEAD_MESSAGES
        if point.kind == "eager":
            nbytes, messages = pointtopoint.EAGER_TYPICAL_BYTES, pointtopoint.EAGER_MESSAGES
        seconds = messages * (pointtopoint.measure_message(self._comm, nbytes) + RECEIVER_DELAY_S)
        fits: bool = self._control_comm.bcast(time.monotonic() + seconds < self._deadline)
        return fits

    def _correct_candidates(self, point: ProbePoint) -> list[ProbeCandidate] | None:
        """Return the candidates with correct results, report the others; None if too late."""
        self._release_schedules()
        if point.kind not in COLLECTIVE_KINDS:
            return list(point.candidates)
        right = []
        for number, candidate in enumerate(point.candidates):
            self._keep_alive()
            if self._is_late():
                return None
            complaint = self._rejection_reason(point, candidate, self._plan.seed + number)
            if not complaint:
                right.append(candidate)
            elif self._comm.rank == 0:
                self._on_excluded(point, candidate, complaint)
        return right

    def _fit_within_budget(
        self, point: ProbePoint, candidates: list[ProbeCandidate]
    ) -> timing.FirstCalls:
        """Return the first calls of the sizes that fit, and report those that take too long.

        The series may take `MAX_SIZE_SERIES_FRACTION` of the time before the deadline, so that
        other points are measured too. Nothing is reported if nothing fits.
        """
        found = self._stopwatch.fit_within(
            self._timed_operations(point, candidates),
            MAX_SIZE_SERIES_FRACTION * (self._deadline - time.monotonic()),
            self._plan.min_repetitions,
        )
        count = len(found.each)
        for candidate in candidates[count:] if self._comm.rank == 0 and count else ():
            self._on_excluded(point, candidate, OUT_OF_TIME)
        return found

    def _rejection_reason(self, point: ProbePoint, candidate: ProbeCandidate, seed: int) -> str:
        """Return why a candidate is left out, the same on all ranks; "" if its result is right."""
        comm, before, after = self._configure(point, candidate)
        if isinstance(comm, Unavailable):
            return comm.reason
        call, mine = self._collective_run(point), ""
        before()
        try:
            right = call.is_correct(comm, seed)
            if (
                call.collective.is_reduction
                and point.kind != "nccl"
                and self._plan.operators == "any"
            ):
                right = preserves_operand_order(comm, max(1, point.nbytes // 16), seed) and right
            mine = "" if right else WRONG_RESULT
            self._try_without_data(comm, point, candidate)
        except (RuntimeError, InputError) as refusal:  # of MPI or NCCL; a schedule does not fit
            mine = f"{REFUSED}: {refusal}"
        after()
        complaint: str = self._control_comm.allreduce(mine, MPI.MAX)
        return complaint

    def _try_without_data(self, comm: Any, point: ProbePoint, candidate: ProbeCandidate) -> None:
        """Call a forced algorithm without data, if rules may send such calls to it; only once.

        Only the death of a rank counts: MPICH, which here refuses what it would hand to another
        algorithm, refuses most of these calls.
        """
        choice = candidate.choice
        forced = point.kind == "collective" and candidate.runner == LIBRARY
        tried = (point.subject, choice) in self._tried
        if not forced or choice.is_default or tried or min_call_bytes(self._plan.library, choice):
            return
        self._tried.add((point.subject, choice))
        if self._comm.rank == 0:
            self._on_trial(point, candidate, False)
        with suppress(MPI.Exception):
            call_without_data(comm, Collective(point.subject))
        if self._comm.rank == 0:
            self._on_trial(point, candidate, True)

    def _configure(
        self, point: ProbePoint, candidate: ProbeCandidate
    ) -> tuple[Any, Callable[[], object], Callable[[], object]]:
        """Return the communicator to call for a candidate, and hooks to run before and after."""
        if point.kind == "nccl":
            return self._get_device_probe().nccl_variant(candidate.settings), *NO_HOOKS
        if candidate.runner == SCHEDULE:
            return self._schedule_communicator(
                Collective(point.subject), candidate.choice
            ), *NO_HOOKS
        return self._algorithm_control.communicator(
            candidate.settings
        ), *self._algorithm_control.hooks(candidate.settings)

    def _schedule_communicator(self, collective: Collective, choice: AlgorithmChoice) -> Any:
        """Return a communicator-like object that runs the collective by our schedule."""
        if choice not in self._schedule_calls:
            self._schedule_calls[choice] = ScheduleCall(
                self._schedule_comm,
                _refuse_library_call,
                collective,
                choice,
                ScratchPool(HOST_MEMORY),
            )
        known = {name: getattr(self._comm, name) for name in ("rank", "size", "send", "recv")}
        return SimpleNamespace(**known, **{collective.spec.mpi: self._schedule_calls[choice].call})

    def _release_schedules(self) -> None:
        """Free the resources of our schedules."""
        for scheduled in self._schedule_calls.values():
            scheduled.release()
        self._schedule_calls.clear()

    def _collective_run(self, point: ProbePoint) -> CollectiveRun:
        on_host = point.memory == HOST
        buffers = HostBuffers() if on_host else self._get_device_probe().buffers(point.kind)
        return CollectiveRun(Collective(point.subject), point.nbytes, buffers)

    def _timed_operations(
        self, point: ProbePoint, candidates: list[ProbeCandidate]
    ) -> list[timing.TimedOperation]:
        if point.kind in COLLECTIVE_KINDS:
            ways = [self._configure(point, candidate) for candidate in candidates]
            calls = self._collective_run(point).make_calls([comm for comm, _, _ in ways])
            return [
                timing.TimedOperation(call, before, after)
                for call, (_, before, after) in zip(calls, ways, strict=True)
            ]
        if point.memory != HOST:
            return self._get_device_probe().timed_operations(point, candidates)
        return [self._timed_operation(point, candidate) for candidate in candidates]

    def _timed_operation(
        self, point: ProbePoint, candidate: ProbeCandidate
    ) -> timing.TimedOperation:
        """Return a timed message, reduction or empty call in host memory."""
        nbytes = point.nbytes_of(candidate)
        if point.kind in ("pingpong", "pairs", "sentinel"):
            return pointtopoint.pingpong(self._comm, nbytes)
        if point.kind == "exchange":
            rows, ring = candidate.params.get("rows", 1), "ring" in candidate.params
            return pointtopoint.exchange(self._comm, nbytes, rows, ring)
        if point.kind == "fan":
            return pointtopoint.fan_out(
                self._comm, nbytes, candidate.params["peers"], candidate.params.get("nth", 0)
            )
        if point.kind == "overhead":
            return pointtopoint.send_overhead(self._comm, nbytes)
        if point.kind == "burst":
            return pointtopoint.message_train(self._comm, nbytes, candidate.params["messages"])
        if point.kind == "reduction":
            return pointtopoint.local_reduction(nbytes)
        return pointtopoint.null_call(self._comm)

    def _measure_all_pairs(self, point: ProbePoint) -> str:
        """Measure each pair of hosts by itself, disjoint pairs concurrently."""
        mine: list[Measurement] = []
        for nbytes in sorted({point.nbytes_of(candidate) for candidate in point.candidates}):
            for pairs in round_robin(self._comm.size):
                self._control_comm.Barrier()
                self._keep_alive()
                pair = next((pair for pair in pairs if self._comm.rank in pair), None)
                samples = pointtopoint.measure_one_way(self._comm, pair, nbytes) if pair else []
                if pair and self._comm.rank == pair[0]:
                    mine.append(_pair_measurement(point, pair, nbytes, samples))
        gathered: list[list[Measurement]] = self._control_comm.allgather(mine)
        return "".join(series_line(one) + "\n" for part in gathered for one in part)


def _refuse_library_call(*_arguments: object) -> None:
    """Raise InputError: a call that a schedule does not fit would be passed on to the library."""
    raise InputError("the schedule does not fit this size or number of ranks")


def _operations_per_call(point: ProbePoint) -> int:
    """Return the number of equal parts that the time of one call is divided by."""
    if point.kind == "overhead":
        return pointtopoint.OVERHEAD_MESSAGES
    return 2 if point.kind in ROUND_TRIP_KINDS else 1


def _pair_measurement(
    point: ProbePoint, pair: tuple[int, int], nbytes: int, samples: list[float]
) -> Measurement:
    candidate = ProbeCandidate(params={"first": pair[0], "second": pair[1]}, nbytes=nbytes)
    return point.to_measurement(candidate, samples)
