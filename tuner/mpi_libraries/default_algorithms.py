"""The library's default algorithms, by shape and message size.

They depend on the shape and on bytes alone, so they are determined once, without moving any data
(`tuner/validation/openmpi_default_algorithms.py` and `tuner/formats/mpich/default_algorithms.py`),
and stored with the measurements.
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
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries import library_module

DEFAULT_ALGORITHMS_KEY = "default_runs"  # in the provenance of measurements
PlacedCollective = tuple[Collective, int, int, str]  # collective, nodes, ppn, placement
DefaultLookup = Callable[[PlacedCollective, int], AlgorithmChoice | None]  # takes nbytes


@dataclass(frozen=True)
class DefaultAlgorithms(PlacementMixin):
    """The default's algorithms on nodes x ppn ranks, for calls of up to `max_bytes` bytes.

    thresholds  bytes from which on the choice at the same position is used; ascending, empty where
                nothing is known
    choices     None for a range where the algorithm is unknown: in Open MPI another component than
                coll/tuned runs it, in MPICH the device layer, or no choice stands for it
    """

    collective: Collective
    nodes: int
    ppn: int
    max_bytes: int
    thresholds: tuple[int, ...]
    choices: tuple[AlgorithmChoice | None, ...]
    placement: str = BLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.thresholds) != len(self.choices) or min(self.nodes, self.ppn) < 1:
            raise ValueError("default algorithms need a shape, and a choice for every threshold")
        if any(low >= high for low, high in pairwise((0, *self.thresholds))):
            raise ValueError("thresholds of default algorithms must ascend")

    @property
    def placed_collective(self) -> PlacedCollective:
        return self.collective, self.nodes, self.ppn, self.placement

    def choice_at(self, nbytes: int) -> AlgorithmChoice | None:
        """Return the choice that the default uses for `nbytes`; None where that is unknown."""
        place = bisect_right(self.thresholds, nbytes) - 1
        return self.choices[place] if place >= 0 and nbytes <= self.max_bytes else None


def default_lookup(decisions: Iterable[DefaultAlgorithms], library: str) -> DefaultLookup:
    """Return a function that looks up the algorithm finally run; it returns None if unknown."""
    known = {each.placed_collective: each for each in decisions}

    def choice(call: PlacedCollective, nbytes: int) -> AlgorithmChoice | None:
        asked = known[call].choice_at(nbytes) if call in known else None
        collective, nodes, ppn, _ = call
        return asked and library_module(library).effective_algorithm(
            collective, asked, nodes * ppn, nbytes
        )

    return choice


def default_algorithms_record(decisions: Iterable[DefaultAlgorithms]) -> list[dict[str, Any]]:
    """Return the decisions as stored in the header of measurements."""
    return [encode_infinities(omit_default_placement(asdict(each))) for each in decisions]


def default_algorithms_from_provenance(
    provenance: Mapping[str, Any], library: str, name: str
) -> tuple[DefaultAlgorithms, ...]:
    """Return the stored decisions of a library; none where nothing was stored.

    name    the file in the message of InputError, raised where the record is damaged
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
            f" {DEFAULT_ALGORITHMS_KEY!r} in its first line or probe again"
        ) from None
    return found
