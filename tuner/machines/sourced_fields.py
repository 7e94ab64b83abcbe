"""Reader of numbers with sources in YAML, and of the costs that consist of them.

A number is a mapping, a quantity inside a mapping that states source and certainty for all of its
numbers, or the name of a part:

    {value: 12GB/s, source: data sheet, certainty: published}
    {source: our ping-pongs, certainty: verified, alpha: 1.2us, rate: 11GB/s}
    edr-port

The cost of a path class is one alpha and rate for all sizes, or segments by first size, either with
`eager_limit` and `overhead`. The rate `join` leads from the alpha of the first segment to the time
at which the next one begins; `through` draws straight lines between measured times:

    segments:
      - {from: 0B, alpha: 1.5us, rate: join}
      - {from: 16KiB, alpha: 6.2us, rate: 11GB/s, staged: true}
    segments:
      - {through: {0B: 1.5us, 8KiB: 4.2us, 4MiB: 97us}}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import (
    RATE,
    SIZE,
    TIME,
    one_of,
    parse_flag,
    parse_int,
    parse_name,
    require_keys,
)
from tuner.machines.provenance import (
    CERTAINTIES,
    SourcedPathCost,
    SourcedReduction,
    SourcedSegment,
    SourcedValue,
)

ORIGIN_KEYS = {"source", "certainty"}
NUMBER_KEYS = ORIGIN_KEYS | {"value"}
LIMIT_KEYS = {"eager_limit", "overhead"}
MAX_SEGMENTS = 256
JOIN, NEVER = "join", "never"
READERS: Mapping[str, Callable[[str, Any], float]] = {  # by unit
    "s": TIME.read,
    "B/s": RATE.read,
    "B": lambda what, value: math.inf if value == NEVER else float(SIZE.read(what, value)),
    "": lambda what, value: float(parse_int(what, value)),
}


@dataclass(frozen=True)
class SourcedReader:
    """A reader of numbers and costs; every method raises InputError that names the place.

    parts       name -> the YAML of a part, or a number or cost that was read before
    source      source of the numbers that do not state their own; "" if none was stated
    certainty   certainty of the numbers that do not state their own; "" if none was stated
    """

    parts: Mapping[str, Any]
    source: str = ""
    certainty: str = ""

    def number(self, what: str, value: Any, unit: str) -> SourcedValue:
        """Return a number.

        what    place of the number, for messages
        unit    `s`, `B/s`, `B` or "" for a count
        """
        if _is_quantity(value):
            return self._sourced(what, value, unit)
        found = self._part(what, value)
        if isinstance(found, SourcedValue):
            return found
        require_keys(what, found, NUMBER_KEYS, {"value"})
        return self._within(what, found)._sourced(what, found["value"], unit)

    def origin(self, what: str, value: Any) -> tuple[str, str]:
        """Return the source and the certainty of something that is not a number."""
        found = self._part(what, value)
        require_keys(what, found, ORIGIN_KEYS, ORIGIN_KEYS)
        inner = self._within(what, found)
        return inner.source, inner.certainty

    def numbers(
        self, what: str, value: Any, units: Mapping[str, str], optional: Set[str] = frozenset()
    ) -> dict[str, SourcedValue]:
        """Return numbers by name, of which all but the optional ones are required.

        units   as in `number`, by name
        """
        found = self._part(what, value)
        require_keys(what, found, ORIGIN_KEYS | units.keys(), units.keys() - optional)
        inner, given = self._within(what, found), [name for name in units if name in found]
        return {name: inner.number(f"{what}: {name}", found[name], units[name]) for name in given}

    def reduction(self, what: str, value: Any) -> SourcedReduction:
        """Return the cost of a reduction: `launch` and `rate`."""
        found = self._part(what, value)
        if isinstance(found, SourcedReduction):
            return found
        return SourcedReduction(**self.numbers(what, found, {"launch": "s", "rate": "B/s"}))

    def path_cost(self, what: str, value: Any) -> SourcedPathCost:
        found = self._part(what, value)
        single = not (isinstance(found, dict) and "segments" in found)
        keys = {"alpha", "rate"} if single else {"segments"}
        require_keys(what, found, ORIGIN_KEYS | LIMIT_KEYS | keys, keys)
        inner = self._within(what, found)
        if single:
            line = {"from": 0, "alpha": found["alpha"], "rate": found["rate"]}
            cost = SourcedPathCost(inner._segment(what, line, ()))
        else:
            cost = SourcedPathCost(inner._segments(what, found["segments"]))
        if "eager_limit" in found:
            limit = inner.number(f"{what}: eager_limit", found["eager_limit"], "B")
            cost = replace(cost, eager_limit=limit)
        if "overhead" in found:
            cost = replace(cost, overhead=inner.number(f"{what}: overhead", found["overhead"], "s"))
        return cost

    def _segments(self, what: str, value: Any) -> tuple[SourcedSegment, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_SEGMENTS:
            raise InputError(f"{what}: segments must be a list of 1 to {MAX_SEGMENTS}")
        found: tuple[SourcedSegment, ...] = ()
        for number, entry in reversed(list(enumerate(value, start=1))):
            found = self._segment(f"{what}: segment {number}", entry, found) + found
        starts = [segment.min_bytes for segment in found]
        if starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
            raise InputError(f"{what}: the segments must begin at 0B and ascend")
        return found

    def _segment(
        self, what: str, entry: Any, following: tuple[SourcedSegment, ...]
    ) -> tuple[SourcedSegment, ...]:
        """Return the segments of one entry of the list; `following` are those after it."""
        if isinstance(entry, dict) and "through" in entry:
            return self._through(what, entry)
        keys = {"from", "alpha", "rate"}
        require_keys(what, entry, keys | ORIGIN_KEYS | {"staged"}, keys)
        inner = self._within(what, entry)
        start = SIZE.read(f"{what}: from", entry["from"])
        alpha = inner.number(f"{what}: alpha", entry["alpha"], "s")
        if entry["rate"] == JOIN:
            rate = _joining_rate(what, start, alpha, following)
        else:
            rate = inner.number(f"{what}: rate", entry["rate"], "B/s")
        staged = parse_flag(f"{what}: staged", entry.get("staged", False))
        return (SourcedSegment(float(start), alpha, rate, staged),)

    def _through(self, what: str, entry: dict[str, Any]) -> tuple[SourcedSegment, ...]:
        """Return straight lines between measured times; the last line continues."""
        require_keys(what, entry, {"through"} | ORIGIN_KEYS, set())
        points = entry["through"]
        if not isinstance(points, dict) or not 2 <= len(points) <= MAX_SEGMENTS:
            raise InputError(f"{what}: through must map 2 to {MAX_SEGMENTS} sizes to times")
        inner = self._within(what, entry)
        inner._require_origin(what)
        known = [(SIZE.read(what, size), TIME.read(what, time)) for size, time in points.items()]
        return tuple(inner._line(what, *a, *b) for a, b in pairwise(known))

    def _line(self, what: str, a: int, start: float, b: int, end: float) -> SourcedSegment:
        """Return the line through (a bytes, start seconds) and (b bytes, end seconds)."""
        if not (a < b and start < end):
            raise InputError(f"{what}: sizes and times must ascend, unlike from {a} B to {b} B")
        rate = (b - a) / (end - start)
        alpha = start - a / rate
        if alpha < 0:
            raise InputError(f"{what}: the line through {a} B and {b} B has a negative alpha")
        told = replace(self, source=f"{self.source}; through {a} B and {b} B")
        return SourcedSegment(
            float(a), told._stated(what, alpha, "s"), told._stated(what, rate, "B/s")
        )

    def _part(self, what: str, value: Any) -> Any:
        """Return the part that a name stands for, and anything else as it is."""
        if not isinstance(value, str):
            return value
        found = self.parts.get(value)
        if found is None or isinstance(found, str):
            raise InputError(
                f"{what}: {shortened_repr(value)} is neither a quantity such as 12GB/s or 2us nor"
                " a part that the page on machines or the file lists"
            )
        return found

    def _within(self, what: str, record: Mapping[str, Any]) -> SourcedReader:
        """Return the reader for the numbers inside a mapping."""
        source = parse_name(f"{what}: source", record.get("source", self.source))
        certainty = record.get("certainty", self.certainty)
        if certainty:
            one_of(CERTAINTIES).read(f"{what}: certainty", certainty)
        return replace(self, source=source, certainty=certainty)

    def _sourced(self, what: str, value: Any, unit: str) -> SourcedValue:
        return self._stated(what, READERS[unit](what, value), unit)

    def _stated(self, what: str, value: float, unit: str) -> SourcedValue:
        self._require_origin(what)
        return SourcedValue(value, unit, self.source, self.certainty)

    def _require_origin(self, what: str) -> None:
        if not (self.source and self.certainty):
            raise InputError(
                f"{what} has no {'certainty' if self.source else 'source'}: write it like"
                " {value: 12GB/s, source: data sheet, certainty: published}"
            )


def _is_quantity(value: Any) -> bool:
    """Return whether a value is a number with or without unit, and not the name of a part."""
    return isinstance(value, int | float) or (
        isinstance(value, str) and (value[:1].isdigit() or value == NEVER)
    )


def _joining_rate(
    what: str, start: int, alpha: SourcedValue, following: tuple[SourcedSegment, ...]
) -> SourcedValue:
    """Return the rate of the first segment that ends where the next one begins."""
    if start != 0 or not following:
        raise InputError(f"{what}: `rate: {JOIN}` is for a segment from 0B before another one")
    end = following[0].min_bytes
    seconds = following[0].seconds(end) - alpha.value
    if seconds <= 0 or end <= 0:
        raise InputError(f"{what}: the next segment must begin later and with a longer time")
    source = f"joins the small messages with the line from {end:g} B"
    return SourcedValue(end / seconds, "B/s", source, "computed")
