"""The program that the ranks of a probe run: `python -m tuner.probe.ranks PLAN RESULTS BUDGET`.

Imports numpy, mpi4py and the standard library only, so it runs in any environment that has an MPI.
Rank 0 appends each finished point to RESULTS and reports on standard output, one JSON object a
line: `begin`, `excluded`, `done`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.collective import Collective
from tuner.measurement import series_line
from tuner.probe import pointtopoint, timing
from tuner.probe.collectives import Call, keeps_order
from tuner.probe.plan import LARGEST_EAGER, Arm, Plan, Point, read_plan
from tuner.probe.sampling import Account
from tuner.runtime.forcing import Forcing

STUCK = 45.0  # seconds beyond its time after which a point is given up as deadlocked
HALVED = ("pingpong", "call")  # a call there and back gives a one-way time


def report(event: str, **facts: object) -> None:
    """Tell the program that launched the ranks."""
    print(json.dumps({"event": event, **facts}), flush=True)


def record(path: Path, point: Point, arms: Iterable[Arm], samples: NDArray[np.float64]) -> None:
    """Append one finished point, all its series at once, and see it on disk."""
    lines = (
        series_line(point.series(arm, column.tolist()))
        for arm, column in zip(arms, samples.T, strict=True)
    )
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


class Session:
    """The points that one set of ranks, 0..p-1, measures; every method is collective over them."""

    def __init__(self, plan: Plan, results: Path, comm: MPI.Intracomm) -> None:
        self._plan = plan
        self._results = results
        self._comm = comm
        self._control = comm.Dup()
        self._forcing = Forcing(plan.library, comm)
        self._stopwatch = timing.Stopwatch(self._control, comm.size > plan.cores)

    def measure(self, point: Point, seconds: float) -> None:
        """One point: check, time, record."""
        if point.kind == "eager":
            self._find_eager_limit(point)
            return
        arms = self._admitted(point)
        samples = self._stopwatch.sample(
            self._timed(point, arms),
            target=self._plan.target, seconds=seconds, seed=self._plan.seed,
            compete=point.kind == "collective",
        )  # fmt: skip
        if self._comm.rank == 0:
            record(self._results, point, arms, samples / (2 if point.kind in HALVED else 1))

    def _find_eager_limit(self, point: Point) -> None:
        nbytes, blocked = pointtopoint.eager_limit(self._comm, LARGEST_EAGER)
        if self._comm.rank == 0:
            record(self._results, point, [Arm(nbytes=nbytes)], np.array([blocked]).T)

    def close(self) -> None:
        """Free every communicator."""
        self._forcing.release()
        self._control.Free()

    def _admitted(self, point: Point) -> list[Arm]:
        """The arms whose result is right; the others are reported and not timed."""
        if point.kind != "collective":
            return list(point.arms)
        right = []
        for number, arm in enumerate(point.arms):
            if self._correct(point, arm, self._plan.seed + number):
                right.append(arm)
            elif self._comm.rank == 0:
                report("excluded", point=str(point), algorithm=str(arm.choice))
        return right

    def _correct(self, point: Point, arm: Arm, seed: int) -> bool:
        comm = self._forcing.communicator(arm.settings)
        before, after = self._forcing.around(arm.settings)
        call = Call(Collective(point.subject), point.nbytes)
        before()
        right = call.correct(comm, seed)
        if call.collective.reduces and self._plan.operators == "any":
            right = keeps_order(comm, max(1, point.nbytes // 16), seed) and right
        after()
        return bool(self._control.allreduce(right, MPI.LAND))

    def _timed(self, point: Point, arms: list[Arm]) -> list[timing.Arm]:
        if point.kind == "collective":
            comms = [self._forcing.communicator(arm.settings) for arm in arms]
            calls = Call(Collective(point.subject), point.nbytes).timed(comms)
            return [
                timing.Arm(call, *self._forcing.around(arm.settings))
                for call, arm in zip(calls, arms, strict=True)
            ]
        return [self._other(point, arm) for arm in arms]

    def _other(self, point: Point, arm: Arm) -> timing.Arm:
        """A message, a reduction or an empty call."""
        if point.kind == "pingpong":
            return pointtopoint.pingpong(self._comm, point.size(arm))
        if point.kind == "burst":
            return pointtopoint.burst(self._comm, point.nbytes, arm.params["messages"])
        if point.kind == "reduction":
            return pointtopoint.reduction(point.size(arm))
        return pointtopoint.null_call(self._comm)


def main(plan_path: str, results: str, budget: str) -> None:
    """Measure the whole plan; ranks that a point does not need sleep meanwhile."""
    plan, world = read_plan(Path(plan_path)), MPI.COMM_WORLD
    account = Account(float(budget), [point.weight for point in plan.points])
    done = 0
    for p, points in groupby(plan.points, key=lambda point: point.p):
        comm = MPI.Intracomm(world.Split(0 if world.rank < p else MPI.UNDEFINED, world.rank))
        if comm != MPI.COMM_NULL:
            done = measure_all(Session(plan, Path(results), comm), list(points), account, done)
            comm.Free()
        timing.wait_quietly(world)


def measure_all(session: Session, points: list[Point], account: Account, done: int) -> int:
    """Points of one communicator size, one after another; returns how many are done by now."""
    first = MPI.COMM_WORLD.rank == 0
    for point in points:
        begin = time.monotonic()
        if first:
            report("begin", point=str(point))
        seconds = account.allot(point.weight)
        faulthandler.dump_traceback_later(STUCK + 3 * seconds, exit=True)
        session.measure(point, seconds)
        faulthandler.cancel_dump_traceback_later()
        done += 1
        account.spend(time.monotonic() - begin)
        if first:
            report("done", points=done)
    session.close()
    return done


if __name__ == "__main__":
    main(*sys.argv[1:])
