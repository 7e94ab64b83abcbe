"""Which algorithms, with which parameters, compete at a point, and how much work each one is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from tuner import algorithms
from tuner.collective import Collective
from tuner.schedule import Schedule
from tuner.units import format_size

SEGMENTS = (8 << 10, 32 << 10, 128 << 10, 1 << 20)  # bytes offered where a message is longer
MOST_TRANSFERS = 1 << 21  # of one call: a ring of 1024 ranks, some ten seconds to simulate

Count = Callable[["Candidate", int, int], int]  # candidate, p, nbytes -> transfers


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its parameters; an unsegmented one has no parameter `segment`."""

    algorithm: str
    params: Mapping[str, int]

    def __str__(self) -> str:
        inside = ", ".join(
            f"{name}={format_size(value) if name == 'segment' else value}"
            for name, value in sorted(self.params.items())
        )
        return f"{self.algorithm}({inside})" if inside else self.algorithm


def candidates(
    collective: Collective, names: tuple[str, ...], nodes: int, ppn: int, nbytes: int
) -> Iterator[Candidate]:
    """Each algorithm with its defaults and, where it can be, every segment that cuts something.

    Two levels are offered where there are two, with the ranks of a node as the group.
    """
    for name in names:
        known = algorithms.describe(collective, name).params
        if "group" in known and min(nodes, ppn) == 1:
            continue
        own = {**known, "group": ppn} if "group" in known else known
        yield of(name, own)
        for segment in SEGMENTS:
            cuts = segment < _cut(name, nodes * ppn, nbytes)
            if "segment" in known and segment != known["segment"] and cuts:
                yield of(name, {**own, "segment": segment})


def of(algorithm: str, params: Mapping[str, int]) -> Candidate:
    """The candidate with these parameters; a segment of 0 is none."""
    written = {key: value for key, value in params.items() if (key, value) != ("segment", 0)}
    return Candidate(algorithm, written)


def _cut(name: str, p: int, nbytes: int) -> int:
    """Bytes of what is cut into segments: the message, or a rank's share of it."""
    return -(-nbytes // p) if name == "segmented_ring" else nbytes


def build(collective: Collective, candidate: Candidate, p: int, nbytes: int) -> Schedule:
    """The candidate's schedule, root 0; raises InputError for wrong parameters."""
    return algorithms.build(
        collective, candidate.algorithm, p, nbytes=nbytes, params=candidate.params
    )


def counter(collective: Collective) -> Count:
    """How many transfers a candidate makes, at most.

    A pipeline makes those of the unsegmented schedule once for every segment; these are counted,
    up to the limit, once for every p.
    """

    @cache
    def whole(algorithm: str, fixed: tuple[tuple[str, int], ...], p: int) -> int:
        transfers = 0
        for r in build(collective, Candidate(algorithm, dict(fixed)), p, 0).rounds():
            transfers += len(r)
            if transfers > MOST_TRANSFERS:
                break
        return transfers

    def count(candidate: Candidate, p: int, nbytes: int) -> int:
        fixed = {name: value for name, value in candidate.params.items() if name != "segment"}
        segment = candidate.params.get("segment", 0)
        pieces = -(-_cut(candidate.algorithm, p, nbytes) // segment) if segment else 1
        return max(1, pieces) * whole(candidate.algorithm, tuple(sorted(fixed.items())), p)

    return count
