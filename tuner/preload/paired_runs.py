"""Whole programs, timed with a table and without in pairs of runs of random order."""

from __future__ import annotations

import hashlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tuner.base.atomic_io import dataclass_from_record, load_json, write_atomically
from tuner.base.code_digest import DIGITS
from tuner.base.errors import InputError, TunerError
from tuner.core.speedup import launches_to_show, paired_speedup
from tuner.launch.process import terminate_tree
from tuner.preload.command import PreparedCommand, rank_command
from tuner.preload.execution import RECORD_VARIABLE, run_directory
from tuner.preload.run_record import read_record

SIDES = ("with", "without")
WAITING_S = 1.0  # seconds without standard input after which a user is told
NO_INPUT = Path(os.devnull)  # what programs read where they are given nothing
MOST_LINES = 10  # of a failed run's message that are shown: launchers explain in several lines
MIN_PAIRS = 2  # of which an interval can be computed


class FailedRunError(TunerError):
    """A program ended with another status than 0."""


class RunTimes(NamedTuple):
    """The seconds of a whole run, and those of a rank in each collective, where they are known."""

    seconds: float
    collectives: Mapping[str, float] = {}


@dataclass(frozen=True)
class Pair:
    """The seconds of one run with the table and of one without; `first` is the side that began.

    collectives     seconds of a rank in each collective with the table and without, where recorded
    """

    first: str
    with_s: float
    without_s: float
    collectives: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramComparison:
    """The pairs of runs of one command under one table.

    table   identity of the table: comparisons under different tables are not continued
    records whether the calls of both sides are recorded
    input   digest of what the program reads; "" for nothing
    """

    command: tuple[str, ...]
    table: str
    pairs: tuple[Pair, ...] = ()
    records: bool = False
    input: str = ""

    @property
    def times(self) -> tuple[list[float], list[float]]:
        """Return the seconds without the table and with it, pair by pair."""
        return [pair.without_s for pair in self.pairs], [pair.with_s for pair in self.pairs]

    @property
    def gain(self) -> tuple[float, float, float]:
        """Return the geometric mean of the pairs' ratios, with its 95 % interval.

        A gain above 1 is faster.

        Raises ValueError for fewer than `MIN_PAIRS` pairs.
        """
        if len(self.pairs) < MIN_PAIRS:
            raise ValueError(f"{len(self.pairs)} pairs have no interval")
        without, tuned = self.times
        return paired_speedup([(t,) for t in without], [(t,) for t in tuned])

    @property
    def collective_gains(self) -> dict[str, tuple[float, float, float]]:
        """Return the gain of the time in each collective, as `gain`, those with most time first."""
        known = [pair.collectives for pair in self.pairs]
        names = [name for name in known[0] if all(name in one for one in known)]
        names.sort(key=lambda name: -sum(one[name][1] for one in known))
        return {
            name: paired_speedup(
                [(one[name][1],) for one in known], [(one[name][0],) for one in known]
            )
            for name in names
        }

    @property
    def further_pairs(self) -> int | None:
        """Return how many more pairs would be needed to show a difference of this size."""
        needed = launches_to_show(*self.times)
        return needed and max(needed - len(self.pairs), 1)

    def record(self) -> dict[str, Any]:
        """Return the times and, where there are enough, the gain, for JSON."""
        if len(self.pairs) < MIN_PAIRS:
            return asdict(self)
        gain, low, high = self.gain
        gains = self.collective_gains
        return {**asdict(self), "gain": gain, "ci95": [low, high], "collective_gains": gains}


def read_comparison(path: Path, begun: ProgramComparison) -> ProgramComparison:
    """Return the comparison to be continued: that of a file, or `begun` where there is no file.

    Raises InputError for a file of something else.
    """
    try:
        record = load_json(path.read_bytes())
        kept = {name: record[name] for name in asdict(begun)}
        found = dataclass_from_record(ProgramComparison, kept)
    except FileNotFoundError:
        return begun
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path} holds no comparison: give another name (--out)") from None
    if replace(found, pairs=()) != begun:
        raise InputError(
            f"{path} holds the comparison of another command, input or table, or one that was made"
            " with other options (--collectives): give another name (--out),"
            " or start anew with --restart"
        )
    return found


def continue_comparison(
    begun: ProgramComparison,
    sides: Mapping[str, Callable[[], RunTimes]],
    pairs: int,
    report: Callable[[float, str], None],
    order: random.Random | None = None,
) -> Iterator[ProgramComparison]:
    """Run the sides until there are `pairs` pairs; yield the comparison after each pair.

    sides   by their names in `SIDES`: run the program once and return its times
    report  takes the part that is done, and what is going on
    order   source of the order within pairs

    A first pair, which is not counted, fills caches. Raises FailedRunError where a run fails.
    """
    order = order or random.Random()
    numbers = range(len(begun.pairs) + 1, pairs + 1)
    runs = 2 * (len(numbers) + 1)
    for done, number in enumerate([0, *numbers] if numbers else ()):
        times = {}
        for turn, side in enumerate(order.sample(SIDES, 2)):
            name = f"pair {number} of {pairs}" if number else "first pair, not counted"
            report((2 * done + turn) / runs, f"{name}: {side} the table")
            try:
                times[side] = sides[side]()
            except FailedRunError as reason:
                raise FailedRunError(f"{name}: the run {side} the table {reason}") from None
        if number:
            begun = replace(begun, pairs=(*begun.pairs, _pair(next(iter(times)), **times)))
            yield begun


def write_comparison(comparison: ProgramComparison, path: Path) -> None:
    """Write all times and the gain; raises InputError."""
    import json

    write_atomically(path, json.dumps(comparison.record(), indent=1) + "\n")


def _pair(first: str, /, **times: RunTimes) -> Pair:
    tuned, without = times["with"], times["without"]
    both = {
        name: (seconds, without.collectives[name])
        for name, seconds in tuned.collectives.items()
        if min(seconds, without.collectives.get(name, 0.0)) > 0.0
    }
    return Pair(first, tuned.seconds, without.seconds, both)


def keep_standard_input(folder: Path, on_wait: Callable[[], None]) -> tuple[Path, str]:
    """Return a new file with all that standard input has, and its digest.

    A terminal has nothing to give to several runs: that is `NO_INPUT`, and "".

    on_wait     called where it neither has anything to read nor ends
    """
    if sys.stdin is None or sys.stdin.isatty():
        return NO_INPUT, ""
    if not select.select([sys.stdin.buffer], [], [], WAITING_S)[0]:
        on_wait()
    kept = folder / "input"
    with kept.open("w+b") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]
    return kept, digest if kept.stat().st_size else ""


def recorded_run(
    words: Sequence[str],
    variables: Mapping[str, str],
    choices: Sequence[str],
    given: Path = NO_INPUT,
) -> RunTimes:
    """Run a program like `timed_run`, and record the time in each collective.

    variables   of the ranks
    choices     names of what may run by the table, see `read_record`
    given       what it reads
    """
    with run_directory() as folder:
        path = folder / "record"
        ran = timed_run(rank_command(words, {**variables, RECORD_VARIABLE: str(path)}), given)
        found = read_record(path, choices)
    seconds: dict[str, float] = {}
    for kind in found.kinds:
        name = kind.collective.value
        seconds[name] = seconds.get(name, 0.0) + kind.seconds / found.ranks
    return RunTimes(ran.seconds, seconds)


def _has_words(line: str) -> bool:
    return any(map(str.isalpha, line))


def timed_run(command: PreparedCommand, given: Path = NO_INPUT) -> RunTimes:
    """Run a program to its end and return the seconds; what it prints is dropped.

    given   what it reads

    An exception, such as that of Ctrl-C, ends the program. Raises FailedRunError for another exit
    status than 0, with the last `MOST_LINES` lines of its standard error, and InputError where it
    cannot start.
    """
    with tempfile.TemporaryFile() as errors, given.open("rb") as read:
        begun = time.perf_counter()
        try:
            process = subprocess.Popen(
                command.words,
                env=command.environment,
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        except OSError as reason:
            raise InputError(f"{command.words[0]} cannot be started: {reason.strerror}") from None
        try:
            status = process.wait()
            seconds = time.perf_counter() - begun
        finally:
            terminate_tree(process)
        if status != 0:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            said = [line.rstrip() for line in lines if _has_words(line)][-MOST_LINES:]
            ended = f"status {status}" if status > 0 else signal.Signals(-status).name
            raise FailedRunError("\n  ".join([f"ended with {ended}:", *(said or ["no message"])]))
    return RunTimes(seconds)
