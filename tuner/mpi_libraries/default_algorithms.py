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

from tuner.base.atomic_io import dataclass_from_record, encode_infinities
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, PlacementMixin, omit_default_placement
from tuner.core.table import AlgorithmConfig
from tuner.mpi_libraries import library_module

DEFAULT_ALGORITHMS_KEY = "default_runs"  # in the provenance of measurements
PlacedCollective = tuple[Collective, int, int, str]  # nodes, ppn, placement
DefaultLookup = Callable[[PlacedCollective, int], AlgorithmConfig | None]  # of nbytes


@dataclass(frozen=True)
class DefaultAlgorithms(PlacementMixin):
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
    choices: tuple[AlgorithmConfig | None, ...]
    placement: str = BLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.starts) != len(self.choices) or min(self.nodes, self.ppn) < 1:
            raise ValueError("decisions need a shape, and a choice for every start")
        if any(low >= high for low, high in pairwise((0, *self.starts))):
            raise ValueError("starts of decisions ascend")

    @property
    def placed_collective(self) -> PlacedCollective:
        """What they are of."""
        return self.collective, self.nodes, self.ppn, self.placement

    def config_at(self, nbytes: int) -> AlgorithmConfig | None:
        """What it asks for in a call of so many bytes; None where that is not known."""
        place = bisect_right(self.starts, nbytes) - 1
        return self.choices[place] if place >= 0 and nbytes <= self.most else None


def default_lookup(decisions: Iterable[DefaultAlgorithms], library: str) -> DefaultLookup:
    """All of them as one function, of what is run in the end; None where nothing is known."""
    known = {each.placed_collective: each for each in decisions}

    def choice(call: PlacedCollective, nbytes: int) -> AlgorithmConfig | None:
        asked = known[call].config_at(nbytes) if call in known else None
        collective, nodes, ppn, _ = call
        return asked and library_module(library).effective_algorithm(
            collective, asked, nodes * ppn, nbytes
        )

    return choice


def default_algorithms_record(decisions: Iterable[DefaultAlgorithms]) -> list[dict[str, Any]]:
    """As the header of measurements keeps them."""
    return [encode_infinities(omit_default_placement(asdict(each))) for each in decisions]


def default_algorithms_from_provenance(
    provenance: Mapping[str, Any], library: str, name: str
) -> tuple[DefaultAlgorithms, ...]:
    """What was kept of a library; none where nothing was. Raises InputError where it is damaged in
    `name`.
    """
    try:
        found = tuple(
            dataclass_from_record(DefaultAlgorithms, each)
            for each in provenance.get(DEFAULT_ALGORITHMS_KEY, [])
        )
        for each in found:
            for choice in filter(None, each.choices):
                library_module(library).settings(each.collective, choice)
    except (ValueError, TypeError, InputError) as reason:
        raise InputError(
            f"{name}: what the default runs is damaged: {reason}; delete"
            f" {DEFAULT_ALGORITHMS_KEY!r} in its"
            " first line or probe again"
        ) from None
    return found
