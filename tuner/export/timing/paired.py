"""Timing the same calls in two launches that take turns, call by call.

One launch is as a user starts it today, the other has the tuning file with everything that belongs
to it. They differ in nothing else, and since they measure in turn, a machine that changes meanwhile
changes for both. Rounds with new launches show what settles when ranks start, such as their cores.
"""

from __future__ import annotations

import math
import os
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

from tuner.collective import Collective
from tuner.export.timing.program import TimingProgram
from tuner.files import write_atomically
from tuner.gain import chance_of_no_loss, paired_gain
from tuner.progress import Counted, quietly

CONDITIONS = ("barrier reused", "barrier fresh", "row reused", "row fresh")
WRONG = "wrong"
STOP, STOP_OFFSET = struct.pack("=i", 1), 4  # in the file of turns (`struct turns`)
TIMEOUT = 120.0  # seconds of a launch beside what its calls take
SEED = 20261122


@dataclass(frozen=True)
class TimedCall:
    """A call of all ranks of `nodes` x `ppn`, with a buffer of `nbytes`."""

    collective: Collective
    nodes: int
    ppn: int
    nbytes: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return nodes and ranks on each."""
        return self.nodes, self.ppn


@dataclass(frozen=True)
class Side:
    """What a launch is started with beside the program.

    settings    parameters of the library, as its launcher takes them
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Starter(Protocol):
    """Starts ranks of a shape; `ShapeLauncher` of `tuner.runtime.launch` does."""

    @property
    def local(self) -> bool:
        """Whether all ranks are on this computer."""

    def run(
        self, nodes: int, ppn: int, arguments: Sequence[str], *, program: Path | None,
        settings: Mapping[str, str], environment: Mapping[str, str],
        on_line: Callable[[str], None], timeout: float,
    ) -> object:  # fmt: skip
        """Run the program to its end; raises ProbeError when a rank fails."""


@dataclass
class Times:
    """Seconds of every call and condition, one for each round.

    wrong       calls whose result was wrong in the tuned launch
    library     how the library calls itself
    """

    default: dict[tuple[TimedCall, str], list[float]] = field(default_factory=dict)
    tuned: dict[tuple[TimedCall, str], list[float]] = field(default_factory=dict)
    wrong: set[TimedCall] = field(default_factory=set)
    library: str = ""

    def gain(self, call: TimedCall, condition: str) -> tuple[float, float, float]:
        """Return default over tuned time with its 95 % interval over the rounds."""
        place = call, condition
        return paired_gain(_rounds(self.default[place]), _rounds(self.tuned[place]))

    def chance_of_no_loss(self, call: TimedCall, condition: str) -> float:
        """Return the p-value of "not slower than the default"."""
        return chance_of_no_loss(self.default[call, condition], self.tuned[call, condition])

    def mean_gain(self, call: TimedCall) -> tuple[float, float, float]:
        """Return the geometric mean of the gains under all conditions, with its interval."""
        return paired_gain(_rounds(self.typical(call, False)), _rounds(self.typical(call, True)))

    def typical(self, call: TimedCall, tuned: bool) -> list[float]:
        """Return the geometric mean over the conditions, in each round."""
        side = self.tuned if tuned else self.default
        rounds = zip(*(side[call, condition] for condition in CONDITIONS), strict=True)
        return [math.exp(math.fsum(map(math.log, one)) / len(one)) for one in rounds]


def _rounds(seconds: Sequence[float]) -> list[list[float]]:
    return [[one] for one in seconds]


def time_rounds(
    starter: Starter,
    program: TimingProgram,
    calls: Sequence[TimedCall],
    tuned: Side,
    *,
    rounds: int,
    seconds: float,
    directory: Path,
    progress: Counted = quietly,
    into: Times | None = None,
) -> Times:
    """Time all calls without and with what `tuned` brings, in `rounds` rounds of new launches.

    seconds     for each call, condition and side in a round
    directory   that all hosts see
    into        times of earlier rounds, which are added to

    Raises ProbeError when the ranks fail.
    """
    times = Times() if into is None else into
    drawn = Random(SEED + len(next(iter(times.default.values()), ())))
    shapes = list(dict.fromkeys(call.shape for call in calls))
    total, done = rounds * len(calls) * len(CONDITIONS) * 2, 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    for _ in range(rounds):
        drawn.shuffle(shapes)
        for shape in shapes:
            own = [call for call in calls if call.shape == shape]
            drawn.shuffle(own)
            pair = _Pair(starter, program, own, tuned, seconds, directory, count)
            pair.run([drawn.randrange(2) for _ in own], times)
    return times


@dataclass(frozen=True)
class _Pair:
    """Two launches on one shape."""

    starter: Starter
    program: TimingProgram
    calls: Sequence[TimedCall]
    tuned: Side
    seconds: float
    directory: Path
    count: Callable[[], None]

    def run(self, first: Sequence[int], times: Times) -> None:
        """Start both, add what they say; `first` says which one begins with each call."""
        name = f"turns-{uuid.uuid4().hex}"
        turns = (self.directory if self.starter.local else Path("/dev/shm")) / name
        listed = self.directory / "calls.txt"
        lines = (
            f"{call.collective} {call.nbytes} {n}\n"
            for call, n in zip(self.calls, first, strict=True)
        )
        write_atomically(listed, "".join(lines))
        stop = partial(_stop, turns)
        own = [str(turns), "0", str(self.seconds), str(listed)]
        try:
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(
                    self._launch, self.tuned, [own[0], "1", *own[2:]],
                    partial(self._take, times, times.tuned),
                )  # fmt: skip
                other.add_done_callback(partial(_stop_if_failed, stop))
                try:
                    self._launch(Side(), own, partial(self._take, times, times.default))
                except BaseException:
                    stop()
                    raise
                other.result()
        finally:
            turns.unlink(missing_ok=True)

    def _launch(self, side: Side, arguments: Sequence[str], take: Callable[[str], None]) -> None:
        nodes, ppn = self.calls[0].shape
        spent = 4 * self.seconds * 2 * len(CONDITIONS) * len(self.calls)
        self.starter.run(
            nodes, ppn, self.program.arguments(*arguments), program=self.program.program,
            settings=side.settings, environment=side.environment, on_line=take,
            timeout=TIMEOUT + spent,
        )  # fmt: skip

    def _take(
        self, times: Times, side: dict[tuple[TimedCall, str], list[float]], line: str
    ) -> None:
        number, _, rest = line.partition(" ")
        condition, _, seconds = rest.rpartition(" ")
        if condition in CONDITIONS:
            call = self.calls[int(number)]
            side.setdefault((call, condition), []).append(float(seconds))
            self.count()
        elif condition == WRONG:
            times.wrong.add(self.calls[int(number)])
        elif not times.library:
            times.library = line


def _stop(turns: Path) -> None:
    """Let ranks that wait for their turn end."""
    descriptor = os.open(turns, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(descriptor, STOP, STOP_OFFSET)
    os.close(descriptor)


def _stop_if_failed(stop: Callable[[], None], ended: Future[None]) -> None:
    if ended.exception() is not None:
        stop()
