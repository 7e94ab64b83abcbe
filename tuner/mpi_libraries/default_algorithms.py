"""What a library's default runs: its own decisions, by shape and size.

They depend on the shape and on bytes alone, so they are found out once, without moving any data
(`decisions.py` of tuner/formats/openmpi and tuner/formats/mpich), and kept with the measurements.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tuner.base.atomic_io import finite, from_record
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.path_classes import CONSECUTIVE, Placed, placed_record
from tuner.core.table import Choice
from tuner.mpi_libraries import named

DEFAULT_RUNS = "default_runs"  # in the provenance of measurements
Call = tuple[Collective, int, int, str]  # nodes, ppn, placement
Runs = Callable[[Call, int], Choice | None]  # of nbytes


@dataclass(frozen=True)
class Decisions(Placed):
    """Of the default on nodes x ppn ranks, of calls of up to `most` bytes.

    starts      bytes from which on it asks for the choice of the same position; ascending, none
                where nothing is known of such calls
    choices     None for a range of which nothing is known: of Open MPI another component than
                coll/tuned answers, of MPICH the device layer, or no choice stands for the algorithm
    """

    collective: Collective
    nodes: int
    ppn: int
    most: int
    starts: tuple[int, ...]
    choices: tuple[Choice | None, ...]
    placement: str = CONSECUTIVE

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.starts) != len(self.choices) or min(self.nodes, self.ppn) < 1:
            raise ValueError("decisions need a shape, and a choice for every start")
        if any(low >= high for low, high in pairwise((0, *self.starts))):
            raise ValueError("starts of decisions ascend")

    @property
    def call(self) -> Call:
        """What they are of."""
        return self.collective, self.nodes, self.ppn, self.placement

    def at(self, nbytes: int) -> Choice | None:
        """What it asks for in a call of so many bytes; None where that is not known."""
        place = bisect_right(self.starts, nbytes) - 1
        return self.choices[place] if place >= 0 and nbytes <= self.most else None


def runs(decisions: Iterable[Decisions], library: str) -> Runs:
    """All of them as one function, of what is run in the end; None where nothing is known."""
    known = {each.call: each for each in decisions}

    def choice(call: Call, nbytes: int) -> Choice | None:
        asked = known[call].at(nbytes) if call in known else None
        collective, nodes, ppn, _ = call
        return asked and named(library).executed(collective, asked, nodes * ppn, nbytes)

    return choice


def in_provenance(decisions: Iterable[Decisions]) -> list[dict[str, Any]]:
    """As the header of measurements keeps them."""
    return [finite(placed_record(asdict(each))) for each in decisions]


def decisions_of(provenance: Mapping[str, Any], library: str, name: str) -> tuple[Decisions, ...]:
    """What was kept of a library; none where nothing was. Raises InputError where it is damaged in
    `name`.
    """
    try:
        found = tuple(from_record(Decisions, each) for each in provenance.get(DEFAULT_RUNS, []))
        for each in found:
            for choice in filter(None, each.choices):
                named(library).settings(each.collective, choice)
    except (ValueError, TypeError, InputError) as reason:
        raise InputError(
            f"{name}: what the default runs is damaged: {reason}; delete {DEFAULT_RUNS!r} in its"
            " first line or probe again"
        ) from None
    return found
