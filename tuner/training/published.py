"""Published results of training, which predictions are compared with."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import parse_int, parse_positive_float, require_keys

MEASURES = ("rate", "efficiency", "speedup")


@dataclass(frozen=True)
class PublishedResult:
    """A published result on some number of ranks.

    measure     "rate" (samples per second of all ranks), "efficiency" or "speedup"
    """

    ranks: int
    measure: str
    value: float
    source: str

    def efficiency(self, alone: float) -> float:
        """Return the scaling efficiency, given the samples per second of one rank alone."""
        if self.measure == "efficiency":
            return self.value
        return self.value / self.ranks / (alone if self.measure == "rate" else 1.0)


def uncompared_warning(published: Sequence[PublishedResult], ranks: Collection[int]) -> str:
    """Return a warning of results for numbers of ranks that are not predicted, "" without any."""
    missing = sorted({one.ranks for one in published} - {*ranks})
    if not missing:
        return ""
    listed = ", ".join(map(str, missing))
    return f"caution: published results for {listed} ranks are compared only if ranks has {listed}"


def parse_published(entry: Any) -> tuple[PublishedResult, ...]:
    """Return the results of a workload's key `published`; raise InputError for invalid ones."""
    if not isinstance(entry, list):
        raise InputError(f"published must be a list of results, not {shortened_repr(entry)}")
    return tuple(_parse_result(number, one) for number, one in enumerate(entry, start=1))


def _parse_result(number: int, entry: Any) -> PublishedResult:
    what = f"published: result {number}"
    require_keys(what, entry, {"ranks", "source", *MEASURES}, {"ranks"})
    given = [measure for measure in MEASURES if measure in entry]
    if len(given) != 1:
        raise InputError(f"{what} must have one of {', '.join(MEASURES)}")
    value = entry[given[0]]
    return PublishedResult(
        parse_int(f"{what}: ranks", entry["ranks"]),
        given[0],
        parse_share(f"{what}: efficiency", value, 1.5)
        if given[0] == "efficiency"
        else parse_positive_float(f"{what}: {given[0]}", value),
        str(entry.get("source", "")),
    )


def parse_share(what: str, entry: Any, below: float = 1.0) -> float:
    """Return a share, written as a number or in percent; raise InputError for anything else."""
    text = str(entry).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if isinstance(entry, bool) or not 0 <= share < below:
        raise InputError(
            f"{what} is a share from 0 to {below:g}, such as 2%, not {shortened_repr(entry)}"
        )
    return share
