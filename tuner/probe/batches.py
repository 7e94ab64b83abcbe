"""Rounds of chosen points: what somebody wants to know beyond a plan, after a look at the results.

A round is a launch of its own in the same file. The header says what each was to measure, so that a
round that was killed is resumed without anybody remembering why it had been chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.algorithms import describe
from tuner.base.atomic_io import from_record
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.measurement import LineReader, unreadable
from tuner.core.path_classes import CONSECUTIVE, Placed
from tuner.core.table import SCHEDULE, Choice
from tuner.probe.collective_points import call, divisible
from tuner.probe.probe_plan import Point
from tuner.probe.probe_spec import Request, Shape


@dataclass(frozen=True)
class Chosen(Placed):
    """A call to be measured: these choices, and the library's default beside them."""

    collective: Collective
    nodes: int
    ppn: int
    nbytes: int
    choices: tuple[Choice, ...]
    placement: str = CONSECUTIVE


def points_of(request: Request, chosen: Sequence[Chosen], launch: int) -> Iterator[Point]:
    """A point for each call, those of one call together.

    Raises InputError for shapes that do not fit the hosts, odd sizes and unknown algorithms.
    """
    together: dict[tuple[Collective, Shape, int], dict[Choice, None]] = {}
    for one in chosen:
        shape = Shape(one.nodes, one.ppn, one.placement)
        _check(request, one, shape)
        choices = together.setdefault((one.collective, shape, one.nbytes), {Choice(): None})
        choices.update(dict.fromkeys(one.choices))
    for (collective, shape, nbytes), choices in together.items():
        yield replace(call(request.library, collective, shape, nbytes, choices), launch=launch)


def _check(request: Request, one: Chosen, shape: Shape) -> None:
    if not (1 <= one.nodes <= request.nodes and 1 <= one.ppn <= request.ppn) or shape.ranks < 2:
        raise InputError(
            f"shape {shape} does not fit {plural(request.nodes, 'host')} with"
            f" {plural(request.ppn, 'rank')} each"
        )
    if one.nbytes < 4 or one.nbytes % 4 or divisible(one.collective, one.nbytes, shape) < 4:
        raise InputError(f"{one.collective} of {one.nbytes} bytes: sizes are multiples of 4 bytes")
    if divisible(one.collective, one.nbytes, shape) != one.nbytes:
        raise InputError(
            f"{one.collective} of {one.nbytes} bytes has no whole share for each of"
            f" {shape.ranks} ranks"
        )
    for choice in one.choices:
        if choice.via == SCHEDULE:
            describe(one.collective, choice.algorithm)


def rounds_of(path: Path) -> list[tuple[Chosen, ...]]:
    """What a file says of the rounds it holds; none for a file that is not there.

    Raises InputError for a file that is no measurements.
    """
    try:
        return [_round(record) for record in provenance_of(path).get("rounds", [])]
    except (ValueError, TypeError) as reason:
        raise InputError(f"{path}: its rounds are damaged: {reason}; probe again") from None


def provenance_of(path: Path) -> Mapping[str, Any]:
    """What the first line of a file says of its circumstances; nothing for one that is not there.

    Raises InputError for a file that is no measurements.
    """
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8") as lines:
            header = LineReader(lines, str(path)).header
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable(path, reason) from None
    return header["provenance"] if header else {}


def _round(records: Sequence[Mapping[str, Any]]) -> tuple[Chosen, ...]:
    return tuple(from_record(Chosen, record) for record in records)
