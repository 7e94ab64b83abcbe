"""The record of a run: which collective calls a program makes, and how long they take.

The preloaded library writes a line for each kind of calls of each rank:

    rank collective nodes ppn is_cyclic commutes choice nbytes calls time least median most
        samples sampled waiting
    rank "rank" time others

then "0 complete", and for each call that was timed again with what it is compared with:

    0 "guideline" collective nodes ppn is_cyclic nbytes names halves time ...

Times are whole nanoseconds, the median that of the last calls. Layouts that are irregular have no
ranks per node. The choice is the number in the flat file of what ran, 0 for the library's own. For
the samples it is known how long the rank waited for the last one to arrive. A run that is
interrupted after "0 complete" may lack lines, and its last one may be cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.statistics import midmean
from tuner.core.call_profile import ProfiledCall
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.core.speedup import paired_speedup
from tuner.core.table import DEFAULT, OPERATORS, RuleKey
from tuner.runtime.call_summaries import CallKind, CallSummary, merge_summaries

COMPLETE_LINE = "0 complete\n"  # follows the calls of all ranks
LEAST_SPEEDUP = (
    1.05  # at the lower end of the interval; below that a guideline is not called broken
)


@dataclass(frozen=True)
class RecordedCalls:
    """Calls of one collective and size on communicators of one layout, over all ranks.

    nodes, ppn      layout; irregular where `ppn` is 0
    commutes        whether their operator commutes
    choice          name of what ran by the table
    nbytes          bytes of the whole buffer
    rank_calls      calls of all ranks
    seconds         time in them of all ranks
    least_s         shortest call, on the rank that took longest
    median_s        median of the last calls, on the rank that took longest
    most_s          longest call
    waiting         part of the time in which ranks wait for the last one to arrive; None where
                    that was not sampled
    """

    collective: Collective
    nodes: int
    ppn: int
    is_cyclic: bool
    commutes: bool
    choice: str
    nbytes: int
    rank_calls: int
    seconds: float
    least_s: float
    median_s: float
    most_s: float
    waiting: float | None

    @property
    def calls(self) -> int:
        """Return the calls of all communicators of the layout; 0 for irregular ones.

        A call of all ranks of a communicator counts once.
        """
        return self.rank_calls // (self.nodes * self.ppn) if self.ppn else 0

    @property
    def key(self) -> RuleKey:
        """Return the key of the rules for these calls, of a regular layout."""
        operators = OPERATORS[self.collective.is_reduction and self.commutes]
        placement = CYCLIC if self.is_cyclic else BLOCK
        return RuleKey(self.collective, self.nodes, self.ppn, "host", operators, placement)

    def as_summary(self) -> CallSummary:
        """Return what the service takes of these calls, of a regular layout."""
        key = self.key
        algorithm = re.split(r"[( ]", self.choice)[0]
        nbytes = key.collective.call_bytes(self.nbytes)
        kind = CallKind(
            *(key.collective.value, key.nodes, key.ppn, key.memory, key.operators),
            *(algorithm, nbytes, key.placement),
        )
        return CallSummary(kind, self.calls, self.median_s, self.most_s)


@dataclass(frozen=True)
class BrokenGuideline:
    """A call that the library makes more slowly than other calls of its own that do the same.

    instead     names of these calls, joined by "+", or which bytes the same call has
    seconds     time of the call, and of the others (midmeans of rounds in which both took turns)
    speedup     first time over the second, and its interval
    """

    collective: Collective
    nodes: int
    ppn: int
    nbytes: int
    instead: str
    seconds: tuple[float, float]
    speedup: tuple[float, float, float]


@dataclass(frozen=True)
class RunRecord:
    """The calls of a run.

    ranks       number of ranks
    seconds     time between MPI_Init and MPI_Finalize of all ranks together
    kinds       calls by kind, those with most time first
    unrecorded  calls of all ranks of kinds beyond what is kept
    broken      guidelines that the library breaks, for each call the one that it breaks most
    tried       number of calls for which that was looked at
    """

    ranks: int
    seconds: float
    kinds: tuple[RecordedCalls, ...]
    unrecorded: int
    broken: tuple[BrokenGuideline, ...] = ()
    tried: int = 0

    @property
    def share(self) -> float:
        """Return the part of the time that is spent in collectives."""
        return sum(kind.seconds for kind in self.kinds) / max(self.seconds, 1e-9)

    @property
    def run_seconds(self) -> float:
        """Return the time between MPI_Init and MPI_Finalize, the mean of the ranks."""
        return self.seconds / max(self.ranks, 1)

    def summary(self) -> dict[str, object]:
        return {**asdict(self), "run_seconds": self.run_seconds, "share": self.share}

    def summaries(self) -> list[CallSummary]:
        """Return what the service takes of the calls of regular layouts, most calls first."""
        known = (kind for kind in self.kinds if kind.calls and kind.nbytes >= 0)
        return merge_summaries([[kind.as_summary() for kind in known]])

    def profile(self) -> tuple[ProfiledCall, ...]:
        """Return the calls that a probe can measure, which are those of regular layouts.

        Calls of 0 bytes of a collective with data have nothing to measure.
        """
        calls: dict[tuple[Collective, int, int, int], int] = {}
        for kind in self.kinds:
            nbytes = kind.collective.call_bytes(kind.nbytes)
            if kind.ppn and nbytes > 0:
                key = kind.collective, kind.nodes, kind.ppn, nbytes
                calls[key] = calls.get(key, 0) + kind.calls
        return tuple(
            ProfiledCall(collective.value, nodes, ppn, nbytes, number)
            for (collective, nodes, ppn, nbytes), number in calls.items()
            if number
        )


def read_record(path: Path, choices: Sequence[str] = (DEFAULT,)) -> RunRecord:
    """Read what the library has written; raise InputError where it has not written all calls.

    choices     their names, by their numbers in the flat file
    """
    try:
        counted, repeated = path.read_text(encoding="utf-8").split(COMPLETE_LINE)
        lines = [line.split() for line in counted.splitlines()]
        ranks = [line for line in lines if line[1] == "rank"]
        rows = [line[1:] for line in lines if line[1] != "rank"]
        kinds = [_merged([*same], choices) for _, same in groupby(sorted(rows), _kind_of)]
        timed = [line.split()[2:] for line in repeated.rpartition("\n")[0].splitlines()]
        groups = [[*same] for _, same in groupby(timed, lambda row: row[:5])]
        tried = [_broken_guideline(group) for group in groups if len(group) > 1]
    except (OSError, ValueError, IndexError):
        raise InputError(
            "the program has left no record: does it call MPI_Finalize, with the MPI of its"
            " launcher?"
        ) from None
    return RunRecord(
        len(ranks),
        1e-9 * sum(int(line[2]) for line in ranks),
        tuple(sorted(kinds, key=lambda kind: -kind.seconds)),
        sum(int(line[3]) for line in ranks),
        tuple(filter(None, tried)),
        len(tried),
    )


def _kind_of(row: list[str]) -> list[str]:
    return row[:7]


def _merged(rows: list[list[str]], choices: Sequence[str]) -> RecordedCalls:
    """Return the calls of one kind of all ranks."""
    name, nodes, ppn, is_cyclic, commutes, choice, nbytes = _kind_of(rows[0])
    numbers = [[int(number) for number in row[7:]] for row in rows]
    calls, time, least, median, most, _, sampled, waiting = zip(*numbers, strict=True)
    return RecordedCalls(
        Collective(name),
        int(nodes),
        int(ppn),
        is_cyclic == "1",
        commutes == "1",
        choices[int(choice)],
        int(nbytes),
        sum(calls),
        1e-9 * sum(time),
        1e-9 * max(least),
        1e-9 * max(median),
        1e-9 * max(most),
        sum(waiting) / sum(sampled) if sum(sampled) else None,
    )


def _broken_guideline(rows: list[list[str]]) -> BrokenGuideline | None:
    """Return the guideline that a call breaks most, by its own times and those of others."""
    sides = [tuple(1e-9 * int(time) for time in row[7:]) for row in rows]
    found = [
        (paired_speedup([sides[0]], [times]), row, times)
        for row, times in zip(rows[1:], sides[1:], strict=True)
    ]
    speedup, row, times = max(found, key=lambda each: each[0][1])
    if speedup[1] < LEAST_SPEEDUP:
        return None
    name, nodes, ppn, _, nbytes, names, halves = row[:7]
    instead = {"1": "half the bytes, twice", "4": "twice the bytes"}.get(halves, names)
    seconds = float(midmean(sides[0])), float(midmean(times))
    return BrokenGuideline(
        Collective(name), int(nodes), int(ppn), int(nbytes), instead, seconds, speedup
    )
