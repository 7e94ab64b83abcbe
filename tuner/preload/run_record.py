"""The record of a run: which collective calls a program makes, and how long they take.

The preloaded library writes a line for each kind of calls of each rank:

    rank collective nodes ppn is_cyclic commutes nbytes calls time least samples sampled waiting
    rank "rank" time others

Times are whole nanoseconds. Layouts that are irregular have no ranks per node. For the samples it
is known how long the rank waited for the last one to arrive.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from tuner.base.errors import InputError
from tuner.core.call_profile import ProfiledCall
from tuner.core.collective import Collective


@dataclass(frozen=True)
class RecordedCalls:
    """Calls of one collective and size on communicators of one layout, over all ranks.

    nodes, ppn      layout; irregular where `ppn` is 0
    commutes        whether their operator commutes
    nbytes          bytes of the whole buffer
    rank_calls      calls of all ranks
    seconds         time in them of all ranks
    least_s         shortest call, on the rank that took longest
    waiting         part of the time in which ranks wait for the last one to arrive; None where
                    that was not sampled
    """

    collective: Collective
    nodes: int
    ppn: int
    is_cyclic: bool
    commutes: bool
    nbytes: int
    rank_calls: int
    seconds: float
    least_s: float
    waiting: float | None


@dataclass(frozen=True)
class RunRecord:
    """The calls of a run.

    ranks       number of ranks
    seconds     time between MPI_Init and MPI_Finalize of all ranks together
    kinds       calls by kind, those with most time first
    unrecorded  calls of all ranks of kinds beyond what is kept
    """

    ranks: int
    seconds: float
    kinds: tuple[RecordedCalls, ...]
    unrecorded: int

    @property
    def share(self) -> float:
        """Return the part of the time that is spent in collectives."""
        return sum(kind.seconds for kind in self.kinds) / max(self.seconds, 1e-9)

    @property
    def run_seconds(self) -> float:
        """Return the time between MPI_Init and MPI_Finalize, the mean of the ranks."""
        return self.seconds / max(self.ranks, 1)

    def summary(self) -> dict[str, object]:
        """Return the record as JSON takes it."""
        return {**asdict(self), "run_seconds": self.run_seconds, "share": self.share}

    def profile(self) -> list[ProfiledCall]:
        """Return the calls that a probe can measure, which are those of regular layouts.

        Calls of 0 bytes of a collective with data have nothing to measure.
        """
        calls: dict[tuple[Collective, int, int, int], int] = {}
        for kind in self.kinds:
            nbytes = kind.collective.call_bytes(kind.nbytes)
            if kind.ppn and nbytes > 0:
                key = kind.collective, kind.nodes, kind.ppn, nbytes
                made = kind.rank_calls // (kind.nodes * kind.ppn)
                calls[key] = calls.get(key, 0) + made
        return [
            ProfiledCall(collective.value, nodes, ppn, nbytes, number)
            for (collective, nodes, ppn, nbytes), number in calls.items()
            if number
        ]


def read_record(path: Path) -> RunRecord:
    """Read what the library has written; raise InputError where it has written nothing."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        ranks = [line for line in lines if line[1] == "rank"]
        rows = [line[1:] for line in lines if line[1] != "rank"]
        kinds = [_merged([*same]) for _, same in groupby(sorted(rows), lambda row: row[:6])]
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
    )


def _merged(rows: list[list[str]]) -> RecordedCalls:
    """Return the calls of one kind of all ranks."""
    name, nodes, ppn, is_cyclic, commutes, nbytes = rows[0][:6]
    sampled, waiting = (sum(int(row[place]) for row in rows) for place in (10, 11))
    return RecordedCalls(
        Collective(name),
        int(nodes),
        int(ppn),
        is_cyclic == "1",
        commutes == "1",
        int(nbytes),
        sum(int(row[6]) for row in rows),
        1e-9 * sum(int(row[7]) for row in rows),
        1e-9 * max(int(row[8]) for row in rows),
        waiting / sampled if sampled else None,
    )
