"""How far gains over the default stray from the line between two probed sizes, and what a rule may
lose there.

    python -m tests.bench.gain_drift GRID.ndjson...

Each GRID is of `tuner probe run` with many sizes. Two sizes at most four octaves apart, of which
one speaks for an algorithm and one for the default, are taken as probed, the sizes between them as
not. For each deviation per root octave (`tuner.select.crossover.GAIN_DRIFT_PER_SQRT_OCTAVE`): at
how many of them the algorithm would be used, at how many it is slower than the default beyond 2 %,
and which part of what it could gain there is kept.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from tuner.base.statistics import NORMAL_95
from tuner.cli.terminal.output import print_table
from tuner.core.measurement import read_measurements
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import MIN_GAIN, build_observations

OCTAVES = 4.0
CERTAIN = 0.02  # deviation of a measured gain
SLOWER = 0.02
WANDERS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.37)
COLUMNS = ("wander", "sizes", "used", "slower", "kept")

Times = Mapping[AlgorithmChoice, float]


@dataclass(frozen=True)
class Between:
    """A size between two others: the line's gain there, the bridge's width, and the true gain."""

    line: float
    width: float
    gain: float

    def used(self, wander: float) -> bool:
        doubt = NORMAL_95 * math.hypot(CERTAIN, wander * self.width)
        return self.line - doubt > math.log1p(MIN_GAIN)


def times_of(path: Path) -> Iterator[Mapping[int, Times]]:
    """Of every call, by size."""
    calls: dict[object, dict[int, dict[AlgorithmChoice, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in build_observations(read_measurements(path), lambda _point, _choice: math.nan):
        calls[row.point.key()][row.point.nbytes][row.choice] = row.seconds
    for sizes in calls.values():
        yield {nbytes: times for nbytes, times in sizes.items() if AlgorithmChoice() in times}


def gain(times: Times, choice: AlgorithmChoice) -> float:
    """Logarithm."""
    return math.log(times[AlgorithmChoice()] / times[choice])


def betweens(sizes: Mapping[int, Times]) -> Iterator[Between]:
    """Of all pairs of sizes."""
    threshold = math.log1p(MIN_GAIN)
    for near, far in permutations(sizes, 2):
        octaves = abs(math.log2(far / near))
        choice = min(sizes[near], key=lambda one: sizes[near][one])
        best = min(sizes[far].values())
        if (
            octaves > OCTAVES
            or gain(sizes[near], choice) <= threshold
            or math.log(sizes[far][AlgorithmChoice()] / best) > threshold
            or choice not in sizes[far]
        ):
            continue
        for nbytes, times in sizes.items():
            if min(near, far) < nbytes < max(near, far) and choice in times:
                way = abs(math.log2(nbytes / near)) / octaves
                line = (1 - way) * gain(sizes[near], choice) + way * gain(sizes[far], choice)
                yield Between(line, math.sqrt(octaves * way * (1 - way)), gain(times, choice))


def main(*files: str) -> None:
    """Print one line for each deviation."""
    found = [one for file in files for sizes in times_of(Path(file)) for one in betweens(sizes)]
    possible = sum(max(one.gain, 0.0) for one in found)
    rows = []
    for wander in WANDERS:
        used = [one for one in found if one.used(wander)]
        slower = sum(one.gain < -math.log1p(SLOWER) for one in used)
        kept = sum(max(one.gain, 0.0) for one in used) / possible if possible else 1.0
        rows.append((f"{wander:g}", str(len(found)), str(len(used)), str(slower), f"{kept:.0%}"))
    print_table("between a size for the default and one against it", COLUMNS, rows, right=COLUMNS)


if __name__ == "__main__":
    main(*sys.argv[1:])
