"""The program that the ranks of a probe run.

    python -m tuner.rank_programs.probe [END] PLAN RESULTS BUDGET LIMIT

It imports numpy, mpi4py and the standard library only, so it runs in any environment with an MPI.
Rank 0 appends each finished point to RESULTS and reports on standard output, one JSON object a
line: `facts`, `begin`, `trial`, `excluded`, `lacking`, `left_out`, `alive`, `done`, `note`; on
several hosts the lowest rank of each reports `host`.

BUDGET (seconds) is distributed over the points. The ranks end after LIMIT (seconds), and at END,
a deadline written by `tuner.probe.deadline`: what would end later is not begun or not kept.

Points of one rank set follow one another. Points of one group are on disjoint hosts and are
measured concurrently, each rank set being a lane of its own, unless its messages take longer while
the other lanes send.
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
from tuner.probe import heartbeat, rank_gpus, rank_layout, timing
from tuner.probe.clock import SharedClock
from tuner.probe.deadline import seconds_until
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan, ProbePoint, RankSet, read_plan
from tuner.probe.run_environment import collect_environment
from tuner.probe.samples_file import SampleWriter
from tuner.probe.sampling import TimeBudget
from tuner.probe.session import ProbeSession
from tuner.rank_programs import shm_cleanup
from tuner.runtime.override_check import require_default_selection

STUCK_TIMEOUT_S = 45.0  # seconds beyond its time after which a point counts as deadlocked
KEEP_ALIVE_INTERVAL_S = 5.0  # seconds between reports of being alive
MAX_INTERFERENCE_RATIO = 1.15  # lanes that slow one another down by more share a resource
INTERFERENCE_BYTES = 48 * 1024  # few enough to go without a handshake, whose order is random
INTERFERENCE_CALLS = 10
TAG = 11
NO_SOCKET_PAIR = "no two ranks of a host are bound to different sockets"


def report_event(event: str, **known: object) -> None:
    """Report an event to the program that launched the ranks."""
    print(json.dumps({"event": event, **known}), flush=True)


PointsByRanks = dict[RankSet, list[ProbePoint]]


def concurrent_points(plan: ProbePlan) -> Iterator[PointsByRanks]:
    """Yield the points measured concurrently: the rank sets of one group, or one rank set alone."""

    def together(point: ProbePoint) -> object:
        return point.concurrency_group or point.rank_set

    for _, points in groupby(plan.points, key=together):
        lanes: PointsByRanks = {}
        for point in points:
            lanes.setdefault(point.rank_set, []).append(point)
        yield lanes


class ProbeRank:
    """One rank of a probe's launch, with the state that it shares with the others."""

    def __init__(
        self,
        plan: ProbePlan,
        results: Path,
        budget: float,
        time_limit: float,
        deadline: float = math.inf,
    ) -> None:
        self._plan = plan
        self._world = MPI.COMM_WORLD
        rank_layout.open_connections(self._world)
        self._is_first = self._world.rank == 0
        self._layout = rank_layout.detect_layout(self._world, plan)
        self._results_comm = self._world.Dup()
        self._clock = SharedClock(self._world.Dup()) if plan.hosts else None
        self._oversubscribed = rank_layout.is_oversubscribed(self._world)
        shm_cleanup.unlink_shared_memory()
        self._sample_writer = SampleWriter(results) if self._is_first else None
        # Rank 0 is on the computer that set the deadline, if any rank is.
        time_limit = self._world.bcast(min(time_limit, max(deadline - time.monotonic(), 0.0)))
        self._time_budget = TimeBudget(
            min(budget, time_limit), [point.weight for point in plan.points]
        )
        self._done_points, self._last_keep_alive, self._stuck_timeout = 0, 0.0, STUCK_TIMEOUT_S
        self._awaited_points = 0  # points of other lanes that rank 0 has not received yet
        self._start_delays: list[float] = []
        self._has_gpus = False  # whether some rank has one
        self._send_requests: list[MPI.Request] = []
        self._deadline = time.monotonic() + time_limit

    def run(self) -> None:
        """Measure the whole plan; ranks that a point does not need sleep meanwhile."""
        if self._clock is not None:
            known = collect_environment(self._world, self._layout, self._clock)
            if self._is_first:
                report_event("facts", **known)
        if self._plan.detect_gpus:
            self._report_gpus(rank_gpus.assign_gpus(self._world))
        if self._plan.hosts:
            self._start_heartbeats()
        for lanes in concurrent_points(self._plan):
            if self._clock is not None:
                self._clock.refresh()
            self._measure_concurrently(lanes)
        MPI.Request.Waitall(self._send_requests)
        if self._clock is not None:
            self._report_start_delays(self._clock.describe())

    def _measure_concurrently(self, points_by_ranks: PointsByRanks) -> None:
        members = [self._layout.select_ranks(place) for place in points_by_ranks]
        points = list(points_by_ranks.values())
        if not all(members):  # the point needs ranks on different sockets, and there are none
            for point in points[0]:
                self._skip(point, "lacking", why=NO_SOCKET_PAIR)
            return
        if self._deadline < math.inf and self._world.bcast(time.monotonic() > self._deadline):
            for point in (point for lane in points for point in lane):
                self._skip(point, "left_out", key=point.key)
            return
        mine, comm = rank_layout.split_by_rank_group(self._world, members)
        begin = time.monotonic()
        everyone = list(range(len(points)))
        turns = [everyone]
        if len(points) > 1 and self._detect_interference(comm, mine, len(points)):
            turns = [[lane] for lane in everyone]
            if self._is_first:
                report_event(
                    "note",
                    text=f"paths of {len(points)} copies of {points[0][0]} and the like"
                    " meet: measured one after another",
                )
        weights = [sum(point.weight for point in lane) for lane in points]
        seconds = self._time_budget.allot(sum(weights))
        for turn in turns:
            if mine in turn:
                share = 1.0 if len(turns) == 1 else weights[mine] / sum(weights)
                self._measure_points(points[mine], comm, seconds * share, len(turn) == 1)
            self._awaited_points += sum(len(points[lane]) for lane in turn if members[lane][0] != 0)
            timing.yielding_barrier(self._world, self._poll)
            while self._is_first and self._awaited_points > 0:
                self._poll()
        self._time_budget.spend(time.monotonic() - begin)
        if comm != MPI.COMM_NULL:
            comm.Free()

    def _skip(self, point: ProbePoint, event: str, **known: object) -> None:
        self._time_budget.allot(point.weight)
        if self._is_first:
            report_event(event, point=str(point), **known)
            self._write("")

    def _measure_points(
        self, points: list[ProbePoint], comm: MPI.Intracomm, seconds: float, alone: bool
    ) -> None:
        """Measure the points of one rank set in turn; `alone`: all other ranks sleep."""
        crowded = rank_layout.is_oversubscribed(comm) if alone else self._oversubscribed
        session = ProbeSession(
            self._plan,
            comm,
            crowded,
            self._clock,
            self._keep_alive,
            _report_excluded,
            _report_trial,
            _report_note,
            self._deadline,
        )
        account = TimeBudget(seconds, [point.weight for point in points])
        for point in points:
            begin = time.monotonic()
            if self._is_first:
                self._report_begin(point)
            allotted = account.allot(point.weight)
            self._stuck_timeout = STUCK_TIMEOUT_S + (0.0 if self._plan.hosts else 3 * allotted)
            self._keep_alive(reset=True)
            text = session.measure(point, allotted)
            faulthandler.cancel_dump_traceback_later()
            if comm.rank == 0:
                if text is None:
                    report_event("left_out", point=str(point), key=point.key)
                self._submit(text or "")
            account.spend(time.monotonic() - begin)
        self._start_delays += session.start_delays
        session.close()

    def _submit(self, text: str) -> None:
        if self._sample_writer is not None:
            self._write(text)
            self._collect()
        else:
            self._send_requests = [one for one in self._send_requests if not one.Test()]
            self._send_requests.append(self._results_comm.isend(text, 0, TAG))

    def _write(self, text: str) -> None:
        assert self._sample_writer is not None
        if text:
            self._sample_writer.append(text)
        self._done_points += 1
        report_event("done", points=self._done_points)

    def _collect(self) -> None:
        """Write what other lanes have sent."""
        while self._results_comm.iprobe(MPI.ANY_SOURCE, TAG):
            self._write(self._results_comm.recv(source=MPI.ANY_SOURCE, tag=TAG))
            self._awaited_points -= 1

    def _poll(self) -> None:
        if self._is_first:
            self._collect()
            self._keep_alive()

    def _detect_interference(self, comm: MPI.Intracomm, mine: int, group_count: int) -> bool:
        """Return whether the lanes' messages take longer together than alone; same on all ranks."""
        alone = 0.0
        for lane in range(group_count):
            if lane == mine:
                alone = rank_layout.measure_ring(comm, INTERFERENCE_BYTES, INTERFERENCE_CALLS)
            timing.yielding_barrier(self._world, self._poll)
        together = 0.0
        if mine >= 0:
            together = rank_layout.measure_ring(comm, INTERFERENCE_BYTES, INTERFERENCE_CALLS)
        return bool(
            self._world.allreduce(together > MAX_INTERFERENCE_RATIO * alone and mine >= 0, MPI.LOR)
        )

    def _keep_alive(self, reset: bool = False) -> None:
        """Postpone the time at which this rank counts as stuck, and report regularly."""
        now = time.monotonic()
        if reset or now - self._last_keep_alive > KEEP_ALIVE_INTERVAL_S:
            self._last_keep_alive = now
            faulthandler.dump_traceback_later(self._stuck_timeout, exit=True)
            if self._is_first:
                report_event("alive")

    def _start_heartbeats(self) -> None:
        """Start the heartbeats of every host.

        The facts are reported before: they are long, and a launcher might mix heartbeats into them.
        """
        for host, ranks in zip(self._layout.hosts, self._layout.ranks, strict=True):
            if self._world.rank == ranks[0]:
                heartbeat.start(host)

    def _report_begin(self, point: ProbePoint) -> None:
        """Report the begin of a point, unless it needs a GPU and there is none."""
        if point.memory == HOST or self._has_gpus:
            report_event("begin", point=str(point))

    def _report_gpus(self, known: dict[str, object]) -> None:
        self._has_gpus = "gpus" in known
        if self._is_first:
            report_event("facts", devices=known)
            if "missing" in known:
                _report_note(str(known["missing"]))

    def _report_start_delays(self, clock: dict[str, object]) -> None:
        spread = np.array(self._start_delays)
        if self._is_first and spread.size:
            middle, most = np.quantile(spread, [0.5, 0.95])
            report_event("facts", clock={**clock, "start_spread": {"median": middle, "p95": most}})


def _report_excluded(point: ProbePoint, candidate: ProbeCandidate, reason: str) -> None:
    report_event("excluded", point=str(point), candidate=candidate.name, why=reason)


def _report_trial(point: ProbePoint, candidate: ProbeCandidate, survived: bool) -> None:
    report_event("trial", subject=point.subject, candidate=candidate.name, survived=survived)


def _report_note(text: str) -> None:
    report_event("note", text=text)


def main(*words: str) -> None:
    """Read the plan and measure it."""
    *told, plan_path, results, budget, limit = words
    plan = read_plan(Path(plan_path))
    require_default_selection(plan.library)
    end = time.monotonic() + min(map(seconds_until, told), default=math.inf)
    ProbeRank(plan, Path(results), float(budget), float(limit), end).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
