"""How often reported intervals hold what a longer measurement finds.

    python -m tests.bench.intervals SHORT.ndjson LONG.ndjson

Of series that both files have, by kind: the part of SHORT's 95 % intervals in which LONG's time
lies, as tables take time and interval; and of gains over the default, on which rules rest. `width`
is half of an interval over its value, `prediction_error` how far LONG's value is from SHORT's,
both medians; `outside` how far the worst is outside its interval.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tuner.cli.terminal.output import print_table
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.speedup import mean_over_launches, paired_speedup
from tuner.core.table import DEFAULT, RUNNER_OF_KIND

Launches = dict[int, tuple[float, ...]]  # samples by launch
Series = dict[tuple[object, ...], dict[tuple[object, ...], Launches]]  # by point, by algorithm
GAIN = "gain over the default"
KIND = 0  # where a point has its kind
PLAIN = (DEFAULT, frozenset[object]())
COLUMNS = ("cases", "covered", "width", "off", "outside")


@dataclass(frozen=True)
class Case:
    """A value with its interval, and what the longer measurement gives."""

    value: float
    low: float
    high: float
    longer: float

    @property
    def outside(self) -> float:
        """Of the interval, relative; 0 within it."""
        return max(self.low / self.longer, self.longer / self.high, 1.0) - 1


def series(measurements: Measurements) -> Series:
    """What was measured, launch by launch."""
    found: Series = defaultdict(dict)
    for one in measurements.series:
        name = (one.algorithm, frozenset(one.params.items()))
        found[one.point].setdefault(name, {})[one.launch] = one.samples
    return found


def cases(short: Series, long: Series) -> dict[str, list[Case]]:
    """Everything that both have, by kind."""
    found: dict[str, list[Case]] = defaultdict(list)
    for point, own in short.items():
        for name in own.keys() & long.get(point, {}).keys():
            value, low, high = mean_over_launches(list(own[name].values()))
            longer = mean_over_launches(list(long[point][name].values()))[0]
            found[str(point[KIND])].append(Case(value, low, high, longer))
        if point[KIND] in RUNNER_OF_KIND:
            found[GAIN] += gains(own, long.get(point, {}))
    return {kind: own for kind, own in sorted(found.items()) if own}


def gains(
    short: dict[tuple[object, ...], Launches], long: dict[tuple[object, ...], Launches]
) -> Iterator[Case]:
    """Of the algorithms at one point over the default there."""
    if PLAIN not in short or PLAIN not in long:
        return
    for name in short.keys() & long.keys() - {PLAIN}:
        value, low, high = paired_speedup(*paired(short[PLAIN], short[name]))
        yield Case(value, low, high, paired_speedup(*paired(long[PLAIN], long[name]))[0])


def paired(
    default: Launches, chosen: Launches
) -> tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]:
    """The repetitions that both have, launch by launch."""
    pairs = [
        tuple(zip(default[launch], chosen[launch], strict=False))
        for launch in sorted(default.keys() & chosen.keys())
    ]
    return [[a for a, _ in own] for own in pairs], [[b for _, b in own] for own in pairs]


def cells(own: Sequence[Case]) -> tuple[str, ...]:
    """A line of the table."""
    inside = sum(case.outside == 0 for case in own)
    width = median((case.high - case.low) / 2 / case.value for case in own)
    off = median(abs(case.longer / case.value - 1) for case in own)
    return (
        str(len(own)),
        f"{inside / len(own):.1%}",
        f"{width:.2%}",
        f"{off:.2%}",
        f"{max(case.outside for case in own):.1%}",
    )


def main(short: str, long: str) -> None:
    """Compare and print."""
    found = cases(*(series(read_measurements(Path(name))) for name in (short, long)))
    rows = [(kind, *cells(own)) for kind, own in found.items()]
    print_table("intervals", ("", *COLUMNS), rows, right=COLUMNS)


if __name__ == "__main__":
    main(*sys.argv[1:])
