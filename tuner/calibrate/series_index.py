"""An index of the series in a file of measurements, for all that a calibration needs of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.base.arrays import FloatArray
from tuner.calibrate.bootstrap import Bootstrap, estimate_drift
from tuner.core.measurement import Measurement, Measurements
from tuner.core.speedup import LAUNCH_RELATIVE_SD
from tuner.core.table import RUNNER_OF_KIND

PINGPONG = "pingpong"
LaunchSeries = tuple[Measurement, ...]  # the same point, once for each launch


@dataclass(frozen=True)
class SeriesIndex:
    """The series of one file by kind and subject, with their bootstrap."""

    measurements: Measurements

    @cached_property
    def _by_kind_and_subject(self) -> Mapping[tuple[str, str], list[LaunchSeries]]:
        points: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
        for one in _keep_finest(self.measurements.series):
            points[*one.point, one.algorithm, *sorted(one.params.items())].append(one)
        found: dict[tuple[str, str], list[LaunchSeries]] = defaultdict(list)
        for launches in points.values():
            found[launches[0].kind, launches[0].subject].append(tuple(launches))
        return found

    def find(self, kind: str, subject: str, memory: str = "host") -> list[LaunchSeries]:
        """Return the points of a kind, subject and memory, ascending in nbytes."""
        found = [
            one
            for one in self._by_kind_and_subject.get((kind, subject), ())
            if one[0].memory == memory
        ]
        return sorted(found, key=lambda one: one[0].nbytes)

    def subjects(self, kind: str, memory: str = "host") -> list[str]:
        """Return the subjects of a kind in the order of the file."""
        return [
            subject
            for (own, subject), found in self._by_kind_and_subject.items()
            if own == kind and any(one[0].memory == memory for one in found)
        ]

    @cached_property
    def bootstrap(self) -> Bootstrap:
        """A bootstrap with the drift between the repetitions of sentinels.

        With a single launch, the usual variation between launches is added.
        """
        repeated: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
        for one in self.measurements.series:
            if one.kind == "sentinel":
                repeated[one.point].append(one)
        drift = estimate_drift(list(repeated.values()))
        launches = {
            one.launch for one in self.measurements.series if one.kind not in RUNNER_OF_KIND
        }
        return Bootstrap(math.hypot(drift, LAUNCH_RELATIVE_SD if len(launches) == 1 else 0.0))

    def median(self, launches: LaunchSeries) -> FloatArray:
        return self.bootstrap.median(launches)

    def midmean(self, launches: LaunchSeries) -> FloatArray:
        return self.bootstrap.midmean(launches)

    @cached_property
    def call_overhead(self) -> FloatArray | float:
        """The resampled seconds of a call that sends nothing; 0 where it was not measured."""
        found = [
            launches for subject in self.subjects("call") for launches in self.find("call", subject)
        ]
        return self.median(found[0]) if found else 0.0


def _keep_finest(series: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield the series, of ping-pongs at each size only that of the finest series of sizes.

    A probe measures a few sizes of each path first, in case there is no time for all of them.
    """
    found, sizes = list(series), Counter[tuple[object, ...]]()
    finest: dict[tuple[object, ...], tuple[int, int]] = {}
    for one in found:
        sizes[*_path_key(one), one.params.get("of", 0)] += one.kind == PINGPONG
    for one in found:
        if one.kind == PINGPONG:
            number = one.params.get("of", 0)
            own = sizes[*_path_key(one), number], -number
            finest[*_path_key(one), one.nbytes] = max(
                own, finest.get((*_path_key(one), one.nbytes), own)
            )
    for one in found:
        if one.kind != PINGPONG or finest[*_path_key(one), one.nbytes][1] == -one.params.get(
            "of", 0
        ):
            yield one


def _path_key(one: Measurement) -> tuple[object, ...]:
    """Return a key of a series' path, the same for all series of sizes on it."""
    ends = one.params.get("first", 0), one.params.get("second", 1)
    return one.subject, one.nodes, one.ppn, one.p, one.memory, one.placement, one.launch, ends


def param(launches: LaunchSeries, name: str, default: int = 0) -> int:
    """Return a parameter of the point."""
    return launches[0].params.get(name, default)


def message_sizes(found: list[LaunchSeries]) -> FloatArray:
    """Return the sizes of points."""
    return np.array([float(one[0].nbytes) for one in found])
