"""The calls of a job, merged from what its ranks recorded, as results with one time per call.

A kernel of NCCL starts on a rank when that rank arrives, and waits there for the others. No rank
can leave an allreduce, allgather or reduce-scatter before the last one has arrived, so the time of
the call is that of the last rank to arrive, which is the shortest. The root of a broadcast and the
leaves of a reduce may leave early: for these the longest time is used, which includes waiting.

The records of one call on all ranks have the same sequence number. Only calls that all ranks
recorded are used, if there are any: in other calls the last rank may be missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tuner.base.errors import InputError
from tuner.importers.inspector import Communicator, InspectorRecord
from tuner.importers.reading import COLLECTIVE, Benchmark, BenchmarkResult, RankCounts, UserMetadata
from tuner.mpi_libraries.nccl.names import COLLECTIVES
from tuner.topology import CUDA

MAX_RECORDS = 100_000_000  # records of 20 bytes, which are copied during the merge
MAX_GROUPS = 100_000  # different calls on different communicators
MAX_SAMPLES_PER_CALL = 1000  # samples kept per call, evenly spread
Floats = npt.NDArray[np.float64]
# run, function, rank counts, bytes, algorithm, exclusion reason
_Call = tuple[str, str, RankCounts, int | None, str, str]


@dataclass
class _RankTimes:
    """The times that the ranks of one communicator recorded for equal calls, as parallel arrays."""

    first: InspectorRecord
    source: str
    sequences: array[int] = field(default_factory=lambda: array("Q"))
    ranks: array[int] = field(default_factory=lambda: array("I"))
    seconds: array[float] = field(default_factory=lambda: array("d"))


class InspectorCalls:
    """The calls of one or more jobs, collected record by record and merged at the end.

    partial_calls   calls that not all of their ranks recorded, and that are used nevertheless
    """

    def __init__(self) -> None:
        self.partial_calls = 0
        self._times: dict[_Call, dict[Communicator, _RankTimes]] = {}
        self._groups = self._records = 0

    def add(self, record: InspectorRecord, source: str, run: str) -> None:
        """Add a record of a file; raise InputError where there are too many.

        run     names the job; calls of several jobs are not merged
        """
        self._records += 1
        if self._records > MAX_RECORDS:
            raise InputError(
                f"{source}: line {record.line}: more than {MAX_RECORDS} records: give fewer files"
                " at a time"
            )
        communicator = record.communicator
        even = communicator.p % communicator.nodes == 0
        ppn = communicator.p // communicator.nodes if even else 0
        call = (
            run,
            record.function,
            RankCounts(communicator.p, communicator.nodes, ppn),
            record.nbytes,
            record.algorithm,
            record.exclusion_reason,
        )
        group = self._times.setdefault(call, {})
        times = group.get(communicator)
        if times is None:
            self._groups += 1
            if self._groups > MAX_GROUPS:
                raise InputError(
                    f"{source}: line {record.line}: more than {MAX_GROUPS} different calls: give"
                    " fewer files at a time"
                )
            times = group[communicator] = _RankTimes(record, source)
        times.sequences.append(record.sequence_number)
        times.ranks.append(record.rank)
        times.seconds.append(record.seconds)

    def __bool__(self) -> bool:
        return bool(self._times)

    def results(self, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
        """Yield one result per call and algorithm of a job."""
        for call, group in self._times.items():
            yield self._reading(call, list(group.values()), metadata)

    def _reading(
        self, call: _Call, group: list[_RankTimes], metadata: UserMetadata
    ) -> BenchmarkResult:
        run, function, shape, nbytes, algorithm, left_out = call
        first = group[0]
        samples = [] if left_out else self._samples(function, shape.p, group)
        reason = "" if samples else "no time is told"
        return BenchmarkResult(
            first.source,
            first.first.line,
            Benchmark(function, COLLECTIVE, COLLECTIVES[function])
            if function in COLLECTIVES
            else Benchmark(function),
            nbytes,
            tuple(_thin_evenly(samples)),
            "each call",
            rank_counts=shape,
            algorithm=metadata.algorithm or algorithm or "default",
            params=dict(metadata.params),
            memory=metadata.memory or CUDA,
            run=run,
            exclusion_reason=left_out or reason,
        )

    def _samples(self, function: str, p: int, group: list[_RankTimes]) -> list[float]:
        """Return the seconds of the calls on each communicator, in the order of the calls.

        Only calls that all ranks recorded are used, or all calls where there are none.
        """
        collective = COLLECTIVES.get(function)
        longest = collective is not None and collective.is_rooted
        merged = [_merge_ranks(times, p, longest) for times in group]
        complete = [seconds[recorded == p] for seconds, recorded in merged]
        if any(len(seconds) for seconds in complete):
            return [float(second) for part in complete for second in part]
        self.partial_calls += sum(len(seconds) for seconds, _ in merged)
        return [float(second) for seconds, _ in merged for second in seconds]


def _merge_ranks(times: _RankTimes, p: int, longest: bool) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the times of the calls, by sequence number, and how many ranks recorded each.

    Duplicate records, as in a file and its copy, count once; records without a time do not count.
    """
    seconds = np.frombuffer(times.seconds, dtype=np.float64)
    timed = seconds > 0
    sequences = np.frombuffer(times.sequences, dtype=np.uint64)[timed]
    ranks = np.frombuffer(times.ranks, dtype=np.uintc)[timed]
    order = np.lexsort((ranks, sequences))
    sequences, ranks, seconds = sequences[order], ranks[order], seconds[timed][order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (sequences[1:] != sequences[:-1]) | (ranks[1:] != ranks[:-1])
    sequences, seconds = sequences[fresh], seconds[fresh]
    if not len(seconds):
        return seconds, np.zeros(0, dtype=np.int64)
    _, begins, recorded = np.unique(sequences, return_index=True, return_counts=True)
    reduce = np.maximum if longest else np.minimum
    return reduce.reduceat(seconds, begins), recorded


def _thin_evenly(samples: Sequence[float]) -> Sequence[float]:
    """Return at most `MAX_SAMPLES_PER_CALL` samples, evenly spread."""
    if len(samples) <= MAX_SAMPLES_PER_CALL:
        return samples
    return [samples[i * len(samples) // MAX_SAMPLES_PER_CALL] for i in range(MAX_SAMPLES_PER_CALL)]
