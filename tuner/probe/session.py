"""The points that one set of ranks measures: checked, timed, written down (rank side)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import FloatArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.measurement import WRONG, Measurement, series_line
from tuner.core.path_classes import HOST
from tuner.core.table import SCHEDULE, Choice
from tuner.probe import pointtopoint, timing
from tuner.probe.all_pairs import tournament
from tuner.probe.clock import Clock
from tuner.probe.collectives import Call, HostBuffers, keeps_order
from tuner.probe.devices import OnDevices
from tuner.probe.probe_plan import CALLS, DELAY, FEWEST, LARGEST_EAGER, TOO_LONG, Arm, Plan, Point
from tuner.runtime.algorithm_control import NOTHING, Forcing
from tuner.runtime.dispatch_table import METHODS
from tuner.runtime.memory import HOST_MEMORY
from tuner.runtime.nccl import Cannot
from tuner.runtime.schedule_call import Scheduled
from tuner.runtime.scratch import Spaces

HALVED = ("pingpong", "call", "pairs", "sentinel")  # a call there and back gives a one-way time
LADDER = 0.5  # of the time that is left, for one ladder of sizes at most


def lines(point: Point, arms: Iterable[Arm], samples: FloatArray) -> str:
    """One finished point as it is written: a line for each arm."""
    series = (
        point.series(arm, column.tolist()) for arm, column in zip(arms, samples.T, strict=True)
    )
    return "".join(series_line(one) + "\n" for one in series)


class Session:
    """Every method is collective over the ranks of `comm`.

    report      tells about an arm that is left out: point, arm, why
    note        tells why there is nothing of some kind
    end         of everything, seconds as time.monotonic on rank 0 shows them
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        crowded: bool,
        clock: Clock | None,
        alive: Callable[[], object],
        report: Callable[[Point, Arm, str], object],
        note: Callable[[str], object],
        end: float = math.inf,
    ) -> None:
        self._plan = plan
        self._comm = comm
        self._control, self._private = comm.Dup(), comm.Dup()
        self._end = end
        self._own: dict[Choice, Scheduled] = {}  # our schedules at the present point
        self._forcing = Forcing(plan.library, comm)
        self._devices: OnDevices | None = None
        self._crowded, self._clock = crowded, clock
        self._alive, self._report, self._note = alive, report, note
        self.spread: list[float] = []  # seconds by which the latest rank began a sample late
        self._stopwatch = timing.Stopwatch(self._control, crowded, clock, alive, end)

    def measure(self, point: Point, seconds: float) -> str | None:
        """One point: check, time; what is to be written down, on rank 0 of the session.

        None if it would not be done before the end of everything.
        """
        if self._late():
            return None
        if point.memory != HOST:
            members = self._on_devices().members(point)
            if len(members) < self._comm.size:
                return self._apart(members, point, seconds)
        if point.kind in ("eager", "ahead") and not self._affordable(point):
            return None
        if point.kind == "eager":
            empty = pointtopoint.zeros if point.memory == HOST else self._on_devices().empty
            nbytes, blocked = pointtopoint.eager_limit(self._comm, LARGEST_EAGER, empty)
            return lines(point, [Arm(nbytes=nbytes)], np.array([blocked]).T)
        if point.kind == "ahead":
            seconds_late = pointtopoint.received_late(self._comm, point.nbytes)
            return lines(point, [Arm(nbytes=point.nbytes)], np.array([seconds_late]).T)
        if point.kind == "sweep":
            return self._sweep(point)
        arms = self._admitted(point)
        if point.kind == "pingpong" and arms and self._end < math.inf:
            arms = self._fitting(point, arms)
        if not arms:  # too late, or every one of them was refused
            return None if arms is None else ""
        fewest = max(self._plan.fewest, FEWEST * (point.kind == "sentinel"))
        samples = self._stopwatch.sample(
            self._timed(point, arms),
            target=self._plan.target,
            seconds=seconds,
            seed=self._plan.seed,
            compete=point.kind in CALLS,
            fewest=fewest,
        )
        self.spread += self._stopwatch.spread.tolist()
        return lines(point, arms, samples / _calls(point)) if len(samples) >= fewest else None

    def close(self) -> None:
        """Free every communicator."""
        if self._devices is not None:
            self._devices.release()
        self._release_own()
        self._private.Free()
        self._forcing.release()
        self._control.Free()

    def _on_devices(self) -> OnDevices:
        if self._devices is None:
            self._devices = OnDevices(self._comm, self._note)
        return self._devices

    def _apart(self, members: list[int], point: Point, seconds: float) -> str | None:
        """Measured by some of the ranks, while the others sleep; nothing without members."""
        if not members:
            return ""
        mine = self._comm.rank in members
        text: str | None = None
        part = MPI.Intracomm(self._comm.Split(0 if mine else MPI.UNDEFINED, self._comm.rank))
        if mine:
            own = Session(
                self._plan,
                part,
                self._crowded,
                self._clock,
                self._alive,
                self._report,
                self._note,
                self._end,
            )
            text = own.measure(point, seconds)
            self.spread += own.spread
            own.close()
            part.Free()
        timing.wait_quietly(self._control, self._alive)
        known: str | None = self._control.bcast(text, members[0])
        return known

    def _late(self) -> bool:
        """Whether the end of everything has come; rank 0 says so to all."""
        if self._end == math.inf:
            return False
        late: bool = self._control.bcast(time.monotonic() > self._end)
        return late

    def _affordable(self, point: Point) -> bool:
        """Return whether the messages that show how senders wait fit before the end of all."""
        if self._end == math.inf:
            return True
        nbytes, messages = point.nbytes, pointtopoint.AHEAD_MESSAGES
        if point.kind == "eager":
            nbytes, messages = pointtopoint.EAGER_TYPICAL, pointtopoint.EAGER_MESSAGES
        seconds = messages * (pointtopoint.message_seconds(self._comm, nbytes) + DELAY)
        fits: bool = self._control.bcast(time.monotonic() + seconds < self._end)
        return fits

    def _admitted(self, point: Point) -> list[Arm] | None:
        """The arms whose result is right; the others are reported and not timed. None: too late."""
        self._release_own()
        if point.kind not in CALLS:
            return list(point.arms)
        right = []
        for number, arm in enumerate(point.arms):
            self._alive()
            if self._late():
                return None
            complaint = self._complaint(point, arm, self._plan.seed + number)
            if not complaint:
                right.append(arm)
            elif self._comm.rank == 0:
                self._report(point, arm, complaint)
        return right

    def _fitting(self, point: Point, arms: list[Arm]) -> list[Arm] | None:
        """Less the largest messages, where the ladder would take more than its part of the time
        before the end of everything: all else hangs on the smaller ones. None: nothing fits.
        """
        left = self._end - time.monotonic()
        count = self._stopwatch.fitting(self._timed(point, arms), LADDER * left, self._plan.fewest)
        for arm in arms[count:] if self._comm.rank == 0 and count else ():
            self._report(point, arm, TOO_LONG)
        return arms[:count] or None

    def _complaint(self, point: Point, arm: Arm, seed: int) -> str:
        """Why an arm is left out, the same on all ranks; empty if its result is right."""
        comm, before, after = self._under(point, arm)
        if isinstance(comm, Cannot):
            return comm.reason
        call, mine = self._call(point), ""
        before()
        try:
            right = call.correct(comm, seed)
            if call.collective.reduces and point.kind != "nccl" and self._plan.operators == "any":
                right = keeps_order(comm, max(1, point.nbytes // 16), seed) and right
            mine = "" if right else WRONG
        except (RuntimeError, InputError) as refusal:  # of MPI or NCCL; a schedule does not fit
            mine = f"refused: {refusal}"
        after()
        complaint: str = self._control.allreduce(mine, MPI.MAX)
        return complaint

    def _under(
        self, point: Point, arm: Arm
    ) -> tuple[Any, Callable[[], object], Callable[[], object]]:
        """What a collective is called on under the settings of an arm; what before and after."""
        if point.kind == "nccl":
            return self._on_devices().forced(arm.settings), *NOTHING
        if arm.via == SCHEDULE:
            return self._scheduled(Collective(point.subject), arm.choice), *NOTHING
        return self._forcing.communicator(arm.settings), *self._forcing.around(arm.settings)

    def _scheduled(self, collective: Collective, choice: Choice) -> Any:
        """In place of a communicator: the collective is carried out by our schedule."""
        if choice not in self._own:
            self._own[choice] = Scheduled(
                self._private, _no_schedule, collective, choice, Spaces(HOST_MEMORY)
            )
        call = {METHODS[collective]: self._own[choice].call}
        return SimpleNamespace(rank=self._comm.rank, size=self._comm.size, **call)

    def _release_own(self) -> None:
        """Free what our schedules have bound."""
        for scheduled in self._own.values():
            scheduled.release()
        self._own.clear()

    def _call(self, point: Point) -> Call:
        on_host = point.memory == HOST
        buffers = HostBuffers() if on_host else self._on_devices().buffers(point.kind)
        return Call(Collective(point.subject), point.nbytes, buffers)

    def _timed(self, point: Point, arms: list[Arm]) -> list[timing.Arm]:
        if point.kind in CALLS:
            ways = [self._under(point, arm) for arm in arms]
            calls = self._call(point).timed([comm for comm, _, _ in ways])
            return [
                timing.Arm(call, before, after)
                for call, (_, before, after) in zip(calls, ways, strict=True)
            ]
        if point.memory != HOST:
            return self._on_devices().arms(point, arms)
        return [self._other(point, arm) for arm in arms]

    def _other(self, point: Point, arm: Arm) -> timing.Arm:
        """A message, a reduction or an empty call."""
        nbytes = point.size(arm)
        if point.kind in ("pingpong", "pairs", "sentinel"):
            return pointtopoint.pingpong(self._comm, nbytes)
        if point.kind == "exchange":
            rows, ring = arm.params.get("rows", 1), "ring" in arm.params
            return pointtopoint.exchange(self._comm, nbytes, rows, ring)
        if point.kind == "fan":
            return pointtopoint.fan(
                self._comm, nbytes, arm.params["peers"], arm.params.get("nth", 0)
            )
        if point.kind == "overhead":
            return pointtopoint.overhead(self._comm, nbytes)
        if point.kind == "burst":
            return pointtopoint.burst(self._comm, nbytes, arm.params["messages"])
        if point.kind == "reduction":
            return pointtopoint.reduction(nbytes)
        return pointtopoint.null_call(self._comm)

    def _sweep(self, point: Point) -> str:
        """Each pair of hosts by itself, disjoint pairs at the same time."""
        mine: list[Measurement] = []
        for nbytes in sorted({point.size(arm) for arm in point.arms}):
            for pairs in tournament(self._comm.size):
                self._control.Barrier()
                self._alive()
                pair = next((pair for pair in pairs if self._comm.rank in pair), None)
                samples = pointtopoint.one_way(self._comm, pair, nbytes) if pair else []
                if pair and self._comm.rank == pair[0]:
                    mine.append(_of_pair(point, pair, nbytes, samples))
        gathered: list[list[Measurement]] = self._control.allgather(mine)
        return "".join(series_line(one) + "\n" for part in gathered for one in part)


def _no_schedule(*_arguments: object) -> None:
    """Instead of the library, to which a call goes that a schedule does not fit."""
    raise InputError("the schedule does not fit this size or number of ranks")


def _calls(point: Point) -> int:
    """Into how many equal parts the time of one call is to be divided."""
    if point.kind == "overhead":
        return pointtopoint.MESSAGES
    return 2 if point.kind in HALVED else 1


def _of_pair(point: Point, pair: tuple[int, int], nbytes: int, samples: list[float]) -> Measurement:
    arm = Arm(params={"first": pair[0], "second": pair[1]}, nbytes=nbytes)
    return point.series(arm, samples)
