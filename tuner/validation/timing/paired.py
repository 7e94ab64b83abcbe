"""Time the same calls in two launches that take turns, call by call.

One launch is as a user starts it today, the other has the tuning file with everything that belongs
to it. They do not differ in anything else, and since they measure in turn, changes of the machine
meanwhile affect both. Rounds with new launches vary what is fixed when ranks start, such as
addresses.
"""

from __future__ import annotations

import math
import os
import re
import struct
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock
from typing import Protocol

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import LaunchFailedError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.statistics import CONFIDENCE
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.core.speedup import not_slower_p_value, paired_speedup
from tuner.validation.timing.program import TimingProgram

CONDITIONS = ("barrier reused", "barrier fresh", "row reused", "row fresh")
VALUES_PER_ROUND = 2 * len(CONDITIONS)  # of a call, on both sides
WRONG_RESULT = "wrong"
STOP = struct.pack("=i", 1)  # value of `stop` in the shared file (`struct turns`)
STOP_OFFSET = 4  # bytes before it
LINE_TIMEOUT_S = 300.0  # from one line of a launch to the next; the other launch measures meanwhile
VERSION_PREFIX = "library: "  # begins the first line of a launch
SEED = 20261122


@dataclass(frozen=True)
class TimedCall:
    """A call of all ranks of `nodes` x `ppn`, with a buffer of `nbytes`."""

    collective: Collective
    nodes: int
    ppn: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.collective} {self.nodes}x{self.ppn} {format_size(self.nbytes)}"

    @property
    def shape(self) -> tuple[int, int]:
        return self.nodes, self.ppn


@dataclass(frozen=True)
class LaunchOptions:
    """The options of a launch beside the program.

    settings        parameters of the library, as its launcher takes them
    environment     environment variables
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class ShapeStarter(Protocol):
    """Starts ranks of a shape, as `ShapeLauncher` of `tuner.launch` does."""

    @property
    def is_local(self) -> bool: ...

    def run(
        self,
        nodes: int,
        ppn: int,
        arguments: Sequence[str],
        *,
        program: Path | None,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        on_line: Callable[[str], float],
        silence_timeout: float,
    ) -> object:
        """Run the program to its end; raises LaunchFailedError when a rank fails.

        on_line             takes a line and returns the timeout of the next one in seconds
        silence_timeout     timeout of the first line in seconds
        """


SecondsByCondition = dict[tuple[TimedCall, str], list[float]]


@dataclass
class PairedTimes:
    """The seconds of every call and condition, one value for each round.

    default         times without the tuning file
    tuned           times with it
    wrong_calls     calls whose result was wrong in one of the launches
    undecided       calls for whose further rounds there was no time
    """

    default: SecondsByCondition = field(default_factory=dict)
    tuned: SecondsByCondition = field(default_factory=dict)
    wrong_calls: set[TimedCall] = field(default_factory=set)
    undecided: set[TimedCall] = field(default_factory=set)

    def add(self, others: PairedTimes) -> None:
        for mine, more in (self.default, others.default), (self.tuned, others.tuned):
            for place, seconds in more.items():
                mine.setdefault(place, []).extend(seconds)
        self.wrong_calls |= others.wrong_calls

    @property
    def n_values(self) -> int:
        """Return the number of values in both sides."""
        return sum(map(len, (*self.default.values(), *self.tuned.values())))

    def rounds(self, call: TimedCall) -> int:
        """Return in how many rounds a call was timed."""
        return len(self.default.get((call, CONDITIONS[0]), ()))

    def speedup(
        self, call: TimedCall, condition: str, level: float = CONFIDENCE
    ) -> tuple[float, float, float]:
        """Return default over tuned time with its interval over the rounds."""
        place = call, condition
        return paired_speedup(
            _as_launches(self.default[place]), _as_launches(self.tuned[place]), level
        )

    def not_slower_p_value(self, call: TimedCall, condition: str) -> float:
        """Return the p-value of "not slower than the default"."""
        return not_slower_p_value(self.default[call, condition], self.tuned[call, condition])

    def mean_speedup(
        self, call: TimedCall, level: float = CONFIDENCE
    ) -> tuple[float, float, float]:
        """Return the geometric mean of the speedups under all conditions, with its interval."""
        return paired_speedup(
            _as_launches(self.geometric_means(call, False)),
            _as_launches(self.geometric_means(call, True)),
            level,
        )

    def geometric_means(self, call: TimedCall, tuned: bool) -> list[float]:
        """Return the geometric mean over the conditions, in each round."""
        side = self.tuned if tuned else self.default
        rounds = zip(*(side[call, condition] for condition in CONDITIONS), strict=True)
        return [math.exp(math.fsum(map(math.log, one)) / len(one)) for one in rounds]


def _as_launches(seconds: Sequence[float]) -> list[list[float]]:
    return [[one] for one in seconds]


Verdict = Callable[[PairedTimes, TimedCall], bool]


def never_decided(_times: PairedTimes, _call: TimedCall) -> bool:
    """Return False: every call needs all rounds."""
    return False


@dataclass
class _Counter:
    """Counts values out of a total; both launches call it."""

    progress: ProgressCallback
    total: int
    done: int = 0
    lock: Lock = field(default_factory=Lock)

    def __call__(self, measured: int) -> None:
        with self.lock:
            self.done += measured
            self.progress(self.done, self.total)


def time_pairs(
    starter: ShapeStarter,
    program: TimingProgram,
    calls: Sequence[TimedCall],
    tuned: LaunchOptions,
    *,
    library: str,
    launches: int,
    seconds: float,
    directory: Path,
    is_decided: Verdict = never_decided,
    min_launches: int = 1,
    deadline: float = math.inf,
    progress: ProgressCallback = no_progress,
    on_warning: Callable[[str], None] = lambda _: None,
) -> PairedTimes:
    """Time all calls without and with the `tuned` options, in new launches for every round.

    library         name and version as in a table
    launches        largest number of rounds
    seconds         measuring time of each call, condition and side in a round
    directory       seen by all hosts
    is_decided      whether a call needs no further rounds
    min_launches    number of rounds that take place even after the deadline
    deadline        `time.monotonic()` at which the last round is to have ended
    on_warning      called with a message about launches that failed and are repeated

    Raises ProbeError when the same ranks fail again, and when they have another library.
    """
    times, drawn = PairedTimes(), Random(SEED)
    shapes = list(dict.fromkeys(call.shape for call in calls))
    count = _Counter(progress, launches * len(calls) * VALUES_PER_ROUND)
    left, lasting = list(calls), 0.0
    for launch in range(launches):
        begun = time.monotonic()
        if launch >= min_launches and begun + lasting > deadline:
            count((launches - launch) * len(left) * VALUES_PER_ROUND)
            times.undecided |= {*left}
            break
        drawn.shuffle(shapes)
        for shape in [one for one in shapes if any(call.shape == one for call in left)]:
            own = [call for call in left if call.shape == shape]
            drawn.shuffle(own)
            pair = _PairedLaunch(starter, program, own, tuned, library, seconds, directory, count)
            times.add(pair.times([drawn.randrange(2) for _ in own], on_warning))
        undecided = [call for call in left if not is_decided(times, call)]
        count((launches - launch - 1) * (len(left) - len(undecided)) * VALUES_PER_ROUND)
        left, lasting = undecided, time.monotonic() - begun
    return times


@dataclass(frozen=True)
class _PairedLaunch:
    """A pair of launches on one shape."""

    starter: ShapeStarter
    program: TimingProgram
    calls: Sequence[TimedCall]
    tuned: LaunchOptions
    library: str
    seconds: float
    directory: Path
    count: Callable[[int], None]

    def times(self, first: Sequence[int], on_warning: Callable[[str], None]) -> PairedTimes:
        """Return the times of both launches, repeating them once where ranks fail.

        first   which side begins with each call
        """
        found = PairedTimes()
        try:
            self._run(first, found)
        except LaunchFailedError as reason:
            self.count(-found.n_values)
            on_warning(f"launches of {self.ranks} ranks failed and are repeated: {reason}")
            found = PairedTimes()
            self._run(first, found)
        return found

    @property
    def ranks(self) -> int:
        return math.prod(self.calls[0].shape)

    def _run(self, first: Sequence[int], times: PairedTimes) -> None:
        """Start both launches and add their times; raises LaunchFailedError unless all arrive."""
        name = f"turns-{uuid.uuid4().hex}"
        turns = (self.directory if self.starter.is_local else Path("/dev/shm")) / name
        listed = self.directory / "calls.txt"
        lines = (
            f"{call.collective} {call.nbytes} {n}\n"
            for call, n in zip(self.calls, first, strict=True)
        )
        write_atomically(listed, "".join(lines))
        own = [str(turns), "0", str(self.seconds), str(listed)]
        failed = list[BaseException]()

        def launch(side: LaunchOptions, number: str, into: SecondsByCondition) -> None:
            reader = _OutputReader(self, times, into)
            try:
                self._launch(side, [own[0], number, *own[2:]], reader)
            except BaseException as reason:  # noqa: BLE001 - raised below, in the main thread
                failed.append(reader.with_location(reason))
                _stop(turns)

        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(launch, self.tuned, "1", times.tuned)
                launch(LaunchOptions(), "0", times.default)
        finally:
            turns.unlink(missing_ok=True)
        if failed:
            raise failed[0]
        if times.n_values < len(self.calls) * VALUES_PER_ROUND:
            raise LaunchFailedError("ranks ended before they had timed every call")

    def _launch(
        self, side: LaunchOptions, arguments: Sequence[str], take: Callable[[str], float]
    ) -> None:
        nodes, ppn = self.calls[0].shape
        self.starter.run(
            nodes,
            ppn,
            self.program.arguments(*arguments),
            program=self.program.program,
            settings=side.settings,
            environment=side.environment,
            on_line=take,
            silence_timeout=LINE_TIMEOUT_S,
        )


@dataclass
class _OutputReader:
    """Reads the output of one of the two launches."""

    pair: _PairedLaunch
    times: PairedTimes
    target: SecondsByCondition
    version: str = ""
    measured: int = 0

    def __call__(self, line: str) -> float:
        """Read a line; return the timeout of the next one in seconds."""
        number, _, rest = line.partition(" ")
        condition, _, seconds = rest.rpartition(" ")
        if line.startswith(VERSION_PREFIX):
            self._begin(line.removeprefix(VERSION_PREFIX))
        elif condition in CONDITIONS:
            call = self.pair.calls[int(number)]
            self.target.setdefault((call, condition), []).append(float(seconds))
            self.measured += 1
            self.pair.count(1)
        elif condition == WRONG_RESULT:
            self.times.wrong_calls.add(self.pair.calls[int(number)])
        return LINE_TIMEOUT_S

    def with_location(self, reason: BaseException) -> BaseException:
        """Return the error of the ranks with the launch and the call at which they failed."""
        if not isinstance(reason, LaunchFailedError):
            return reason
        side = "with the table" if self.target is self.times.tuned else "without the table"
        number, calls = self.measured // len(CONDITIONS), self.pair.calls
        place = f"while timing {calls[number]}" if number < len(calls) else "after the last call"
        return LaunchFailedError(f"{reason} ({side}, {place if self.version else 'at the start'})")

    def _begin(self, version: str) -> None:
        """Raise ProbeError for a library other than the table's, and for unconnected ranks."""
        library = self.pair.library
        if self.version and self.pair.ranks > 1:
            raise ProbeError(
                "every rank started as a program of its own: mpicc and the launcher belong to"
                f" different libraries; put the mpicc of {library} beside its launcher"
            )
        self.version = version
        if library.partition(" ")[2] not in re.findall(r"\d+(?:\.\w+)+", version):
            raise ProbeError(
                f"mpicc links another library ({version}) than the ranks have ({library}): put the"
                f" mpicc of {library} beside its launcher"
            )


def _stop(turns: Path) -> None:
    """Make ranks that wait for their turn end."""
    descriptor = os.open(turns, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(descriptor, STOP, STOP_OFFSET)
    os.close(descriptor)
