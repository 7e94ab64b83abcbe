"""Published results of training, which predictions are compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import POSITIVE, TEXT, Count, read_settings, share

MEASURES = ("rate", "efficiency", "speedup")
MAX_RESULTS = 50  # of a workload
MAX_EFFICIENCY = 1.5  # caches and noise can take it above 1


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


@dataclass(frozen=True)
class PublishedSettings:
    """The settings of a published result, with one of the MEASURES."""

    ranks: Count
    source: Annotated[str, TEXT] = ""
    rate: Annotated[float | None, POSITIVE, "samples per second of all ranks"] = None
    efficiency: Annotated[float | None, share(MAX_EFFICIENCY)] = None
    speedup: Annotated[float | None, POSITIVE] = None


def parse_published(what: str, entry: Any) -> tuple[PublishedResult, ...]:
    """Return the results of a workload's key `published`; raise InputError for invalid ones."""
    if not isinstance(entry, list):
        raise InputError(f"{what} must be a list of results, not {shortened_repr(entry)}")
    if len(entry) > MAX_RESULTS:
        raise InputError(f"{what} has {len(entry)} results, more than {MAX_RESULTS}")
    return tuple(_parse_result(f"{what}: result {n}", one) for n, one in enumerate(entry, start=1))


def _parse_result(what: str, entry: Any) -> PublishedResult:
    read = read_settings(PublishedSettings, entry, what)
    given = [measure for measure in MEASURES if measure in read]
    if len(given) != 1:
        raise InputError(f"{what} must have one of {', '.join(MEASURES)}")
    return PublishedResult(read["ranks"], given[0], read[given[0]], read.get("source", ""))
