"""The program that the ranks of a probe run.

    python -m tuner.rank_programs.probe [END] PLAN RESULTS BUDGET LIMIT

Imports numpy, mpi4py and the standard library only, so it runs in any environment that has an MPI.
Rank 0 appends each finished point to RESULTS and reports on standard output, one JSON object a
line: `facts`, `begin`, `excluded`, `lacking`, `left_out`, `alive`, `done`, `note`; on several hosts
the lowest rank of each reports `host`.

BUDGET (seconds) is dealt out over the points. LIMIT (seconds) is when the ranks end, and so is END,
a moment as `tuner.probe.deadline` tells it: what would end later is not begun or not kept.

Points of one place follow one another; points of one group lie on disjoint hosts and are measured
side by side, each place being a lane of its own, provided that its messages take no longer while
the others send.
"""

from __future__ import annotations

import faulthandler
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tuner.core.path_classes import HOST
from tuner.probe import gpus, heartbeat, rank_layout, timing
from tuner.probe.clock import Clock
from tuner.probe.deadline import seconds_until
from tuner.probe.probe_plan import Arm, Place, Plan, Point, read_plan
from tuner.probe.run_environment import facts
from tuner.probe.samples_file import Results
from tuner.probe.sampling import Account
from tuner.probe.session import Session
from tuner.rank_programs import shm_cleanup
from tuner.runtime.override_check import require_undecided

STUCK = 45.0  # seconds beyond its time after which a point is given up as deadlocked
BEAT = 5.0  # seconds between signs of life
MEETING = 1.15  # lanes whose messages take so much longer together share something
# Bytes, not more than what goes without a handshake, whose order is a matter of luck; calls.
MEETING_SIZE, MEETING_CALLS = 48 * 1024, 10
TAG = 11
NOWHERE = "no two ranks of a host are bound to different sockets"


def report(event: str, **known: object) -> None:
    """Tell the program that launched the ranks."""
    print(json.dumps({"event": event, **known}), flush=True)


Lanes = dict[Place, list[Point]]


def stages(plan: Plan) -> Iterator[Lanes]:
    """What is measured at the same time: the places of one group, or one place alone."""

    def together(point: Point) -> object:
        return point.group or point.place

    for _, points in groupby(plan.points, key=together):
        lanes: Lanes = {}
        for point in points:
            lanes.setdefault(point.place, []).append(point)
        yield lanes


class Probe:
    """All ranks of a launch, with what they share."""

    def __init__(
        self, plan: Plan, results: Path, budget: float, limit: float, end: float = math.inf
    ) -> None:
        self._plan = plan
        self._world = MPI.COMM_WORLD
        rank_layout.open_connections(self._world)
        self._first = self._world.rank == 0
        self._layout = rank_layout.layout(self._world, plan)
        self._mail = self._world.Dup()
        self._clock = Clock(self._world.Dup()) if plan.hosts else None
        self._crowded = rank_layout.crowded(self._world)
        shm_cleanup.hide()
        self._results = Results(results) if self._first else None
        # The first rank is on the computer that told the moment, if any is.
        limit = self._world.bcast(min(limit, max(end - time.monotonic(), 0.0)))
        self._account = Account(min(budget, limit), [point.weight for point in plan.points])
        self._done, self._beat, self._patience = 0, 0.0, STUCK
        self._owed = 0  # points that other lanes have finished or will, and rank 0 has not got
        self._spread: list[float] = []
        self._gpus = False  # whether some rank has one
        self._sent: list[MPI.Request] = []
        self._end = time.monotonic() + limit

    def run(self) -> None:
        """Measure the whole plan; ranks that a point does not need sleep meanwhile."""
        if self._clock is not None:
            known = facts(self._world, self._layout, self._clock)
            if self._first:
                report("facts", **known)
        if self._plan.devices:
            self._tell_gpus(gpus.settle(self._world))
        if self._plan.hosts:
            self._begin_signs()
        for lanes in stages(self._plan):
            if self._clock is not None:
                self._clock.refresh()
            self._stage(lanes)
        MPI.Request.Waitall(self._sent)
        if self._clock is not None:
            self._tell_spread(self._clock.described())

    def _stage(self, lanes: Lanes) -> None:
        members = [self._layout.at(place) for place in lanes]
        points = list(lanes.values())
        if not all(members):  # two ranks on different sockets, where there are none
            for point in points[0]:
                self._skip(point, "lacking", why=NOWHERE)
            return
        if self._end < math.inf and self._world.bcast(time.monotonic() > self._end):
            for point in (point for lane in points for point in lane):
                self._skip(point, "left_out", key=point.key)
            return
        mine, comm = rank_layout.communicator(self._world, members)
        begin = time.monotonic()
        everyone = list(range(len(points)))
        turns = [everyone]
        if len(points) > 1 and self._meet(comm, mine, len(points)):
            turns = [[lane] for lane in everyone]
            if self._first:
                report(
                    "note",
                    text=f"paths of {len(points)} copies of {points[0][0]} and the like"
                    " meet: measured one after another",
                )
        weights = [sum(point.weight for point in lane) for lane in points]
        seconds = self._account.allot(sum(weights))
        for turn in turns:
            if mine in turn:
                share = 1.0 if len(turns) == 1 else weights[mine] / sum(weights)
                self._lane(points[mine], comm, seconds * share, len(turn) == 1)
            self._owed += sum(len(points[lane]) for lane in turn if members[lane][0] != 0)
            timing.wait_quietly(self._world, self._meanwhile)
            while self._first and self._owed > 0:
                self._meanwhile()
        self._account.spend(time.monotonic() - begin)
        if comm != MPI.COMM_NULL:
            comm.Free()

    def _skip(self, point: Point, event: str, **known: object) -> None:
        self._account.allot(point.weight)
        if self._first:
            report(event, point=str(point), **known)
            self._write("")

    def _lane(self, points: list[Point], comm: MPI.Intracomm, seconds: float, alone: bool) -> None:
        """Points of one place, one after another; `alone`: all other ranks sleep."""
        crowded = rank_layout.crowded(comm) if alone else self._crowded
        session = Session(
            self._plan, comm, crowded, self._clock, self._alive, _excluded, _noted, self._end
        )
        account = Account(seconds, [point.weight for point in points])
        for point in points:
            begin = time.monotonic()
            if self._first:
                self._tell_begin(point)
            allotted = account.allot(point.weight)
            self._patience = STUCK + (0.0 if self._plan.hosts else 3 * allotted)
            self._alive(anew=True)
            text = session.measure(point, allotted)
            faulthandler.cancel_dump_traceback_later()
            if comm.rank == 0:
                if text is None:
                    report("left_out", point=str(point), key=point.key)
                self._keep(text or "")
            account.spend(time.monotonic() - begin)
        self._spread += session.spread
        session.close()

    def _keep(self, text: str) -> None:
        """Have a finished point written down by rank 0."""
        if self._results is not None:
            self._write(text)
            self._collect()
        else:
            self._sent = [one for one in self._sent if not one.Test()]
            self._sent.append(self._mail.isend(text, 0, TAG))

    def _write(self, text: str) -> None:
        assert self._results is not None
        if text:
            self._results.add(text)
        self._done += 1
        report("done", points=self._done)

    def _collect(self) -> None:
        """Write down what other lanes have sent."""
        while self._mail.iprobe(MPI.ANY_SOURCE, TAG):
            self._write(self._mail.recv(source=MPI.ANY_SOURCE, tag=TAG))
            self._owed -= 1

    def _meanwhile(self) -> None:
        if self._first:
            self._collect()
            self._alive()

    def _meet(self, comm: MPI.Intracomm, mine: int, lanes: int) -> bool:
        """Whether the lanes' messages take longer together than alone; the same on all ranks."""
        alone = 0.0
        for lane in range(lanes):
            if lane == mine:
                alone = rank_layout.ring_seconds(comm, MEETING_SIZE, MEETING_CALLS)
            timing.wait_quietly(self._world, self._meanwhile)
        together = 0.0
        if mine >= 0:
            together = rank_layout.ring_seconds(comm, MEETING_SIZE, MEETING_CALLS)
        return bool(self._world.allreduce(together > MEETING * alone and mine >= 0, MPI.LOR))

    def _alive(self, anew: bool = False) -> None:
        """Put off the moment at which this rank counts as stuck, and say so now and then."""
        now = time.monotonic()
        if anew or now - self._beat > BEAT:
            self._beat = now
            faulthandler.dump_traceback_later(self._patience, exit=True)
            if self._first:
                report("alive")

    def _begin_signs(self) -> None:
        """After the facts: these are long, so that a launcher may mix others' lines into them."""
        for host, ranks in zip(self._layout.hosts, self._layout.ranks, strict=True):
            if self._world.rank == ranks[0]:
                heartbeat.begin(host)

    def _tell_begin(self, point: Point) -> None:
        """Unless there is no GPU for it."""
        if point.memory == HOST or self._gpus:
            report("begin", point=str(point))

    def _tell_gpus(self, known: dict[str, object]) -> None:
        self._gpus = "gpus" in known
        if self._first:
            report("facts", devices=known)
            if "missing" in known:
                _noted(str(known["missing"]))

    def _tell_spread(self, clock: dict[str, object]) -> None:
        spread = np.array(self._spread)
        if self._first and spread.size:
            middle, most = np.quantile(spread, [0.5, 0.95])
            report("facts", clock={**clock, "start_spread": {"median": middle, "p95": most}})


def _excluded(point: Point, arm: Arm, why: str) -> None:
    report("excluded", point=str(point), arm=arm.name, why=why)


def _noted(text: str) -> None:
    report("note", text=text)


def main(*words: str) -> None:
    """Read the plan, measure it."""
    *told, plan_path, results, budget, limit = words
    plan = read_plan(Path(plan_path))
    require_undecided(plan.library)
    end = time.monotonic() + min(map(seconds_until, told), default=math.inf)
    Probe(plan, Path(results), float(budget), float(limit), end).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
