"""Finding of calls in benchmark results that others in the same file show to be slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import geometric_mean, median

from tuner.base.units import format_size, format_time, plural
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT
from tuner.importers import BenchmarkResult, RankCounts

NOISE = 1.05  # ratio of two times up to which they count as equal
STEEP = 1.5  # growth of the time over that of the size from which on it stands out
MAX_SHOWN = 3  # findings of one kind


@dataclass(frozen=True, order=True)
class Series:
    """Calls that differ in their size alone.

    name        collective or benchmark
    algorithm   with its parameters
    statistic   what the times are, such as `slowest rank`; "" where the file does not say
    is_placed   whether the ranks and nodes are known
    """

    name: str
    p: int
    nodes: int
    memory: str
    algorithm: str
    statistic: str
    per_rank: bool = field(compare=False)
    is_placed: bool = True

    def shown_size(self, nbytes: int) -> str:
        """Return a size as the file has it: of one block where blocks are moved, "" of no data."""
        if self.name in list(Collective) and not Collective(self.name).has_data:
            return ""
        return format_size(nbytes // self.p if self.per_rank else nbytes)

    def call(self, nbytes: int) -> str:
        """Return the text of a call, such as `bcast of 4KiB on 64 ranks`."""
        chosen = self.algorithm.removeprefix(DEFAULT).strip()
        where = f" on {plural(self.p, 'rank')}" if self.is_placed else ""
        size = self.shown_size(nbytes)
        return f"{self.name}{chosen and f' ({chosen})'}{size and f' of {size}'}{where}"


TimesBySize = Mapping[int, float]


def times_of(
    results: Iterable[BenchmarkResult], *, is_placed: bool = True
) -> dict[Series, TimesBySize]:
    """Return the median seconds of the usable results, by series and ascending size.

    is_placed   whether their ranks and nodes are known
    """
    taken: dict[Series, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        if one.nbytes and is_usable(one):
            taken[_series_of(one, is_placed)][one.nbytes] += one.samples
    return {
        series: {nbytes: median(sizes[nbytes]) for nbytes in sorted(sizes)}
        for series, sizes in sorted(taken.items())
    }


def is_usable(one: BenchmarkResult) -> bool:
    """Return whether a result has a size and positive times, and is not excluded."""
    return bool(one.nbytes and one.samples and not one.exclusion_reason and min(one.samples) > 0)


def _series_of(one: BenchmarkResult, is_placed: bool) -> Series:
    shape, benchmark = one.rank_counts or RankCounts(0, 0, 0), one.benchmark
    params = ",".join(f"{name}={value}" for name, value in sorted(one.params.items()))
    algorithm = " ".join(filter(None, [one.algorithm or DEFAULT, params]))
    per_rank = benchmark.per_rank and shape.p > 0
    name = benchmark.subject or benchmark.name
    about = name, shape.p, shape.nodes, one.memory, algorithm, one.statistic, per_rank
    return Series(*about, is_placed)


def slow_calls(results: Sequence[BenchmarkResult], *, is_placed: bool = True) -> list[str]:
    """Return sentences on calls that other calls in the results show to be slow.

    is_placed   whether their ranks and nodes are known

    Where the default was measured, it alone is compared with other sizes and collectives.
    """
    times = {
        series: sizes
        for series, sizes in times_of(results, is_placed=is_placed).items()
        if series.name in list(Collective)
    }
    own = {series: sizes for series, sizes in times.items() if series.algorithm == DEFAULT} or times
    gains = [*_slower_than_algorithm(times)]
    mean = geometric_mean(max(gain, 1.0) for gain, _ in gains) if gains else 1.0
    return [
        *[
            f"the best algorithm of each call is {mean:.2f} times as fast as the default (geometric"
            f" mean of {plural(len(gains), 'call')})"
        ]
        * (mean > 1),
        *_worst(gains, NOISE),
        *_worst(_slower_than_larger(own), NOISE),
        *_worst(_steep(own), STEEP),
        *_worst(_slower_than_substitutes(own), NOISE),
    ]


def _worst(found: Iterable[tuple[float, str]], least: float) -> list[str]:
    """Return the sentences of the largest ratios above `least`, and how many more there are."""
    ordered = sorted((one for one in found if one[0] > least), key=lambda one: -one[0])
    texts = [text for _, text in ordered[:MAX_SHOWN]]
    if len(ordered) > MAX_SHOWN:
        texts[-1] += f" (and {plural(len(ordered) - MAX_SHOWN, 'more call')} like this)"
    return texts


def _slower_than_algorithm(times: Mapping[Series, TimesBySize]) -> Iterator[tuple[float, str]]:
    """Yield how many times as fast as the default the fastest algorithm of each call is."""
    for series, sizes in times.items():
        others = {
            other: timed
            for other, timed in times.items()
            if other != series and replace(other, algorithm=DEFAULT) == series
        }
        for nbytes, seconds in sizes.items():
            tried = [(timed[nbytes], other) for other, timed in others.items() if nbytes in timed]
            if tried:
                fastest, other = min(tried)
                gain = seconds / fastest
                faster = f"{other.algorithm} is {gain:.2f} times as fast as the default"
                yield gain, f"{series.call(nbytes)}: {faster}"


def _slower_than_larger(times: Mapping[Series, TimesBySize]) -> Iterator[tuple[float, str]]:
    """Yield how many times as long as larger calls of the same series others take."""
    for series, sizes in times.items():
        for nbytes, seconds in sizes.items():
            least, size = min((other, size) for size, other in sizes.items() if size >= nbytes)
            longer = f"{format_time(seconds)}, longer than one of {series.shown_size(size)}"
            yield seconds / least, f"{series.call(nbytes)} takes {longer} ({format_time(least)})"


def _steep(times: Mapping[Series, TimesBySize]) -> Iterator[tuple[float, str]]:
    """Yield the growth of times from size to size over that of the sizes."""
    for series, sizes in times.items():
        for (small, before), (large, after) in pairwise(sizes.items()):
            growth, one = after / before, series.shown_size(small)
            yield (
                growth * small / large,
                f"{series.call(large)} takes {growth:.1f} times as long as one of {one}",
            )


def _slower_than_substitutes(times: Mapping[Series, TimesBySize]) -> Iterator[tuple[float, str]]:
    """Yield how many times as long calls take as other collectives that together do the same."""
    for series, sizes in times.items():
        for others in Collective(series.name).substitutes:
            alike = [times.get(replace(series, name=str(one)), {}) for one in others]
            for nbytes, seconds in sizes.items():
                if all(nbytes in timed for timed in alike):
                    least = sum(timed[nbytes] for timed in alike)
                    names = f"{' and '.join(others)} of the same size ({format_time(least)})"
                    longer = f"{format_time(seconds)}, longer than {names}"
                    yield seconds / least, f"{series.call(nbytes)} takes {longer}"
