"""Which algorithms, with which parameters, compete on a machine, and how much work each one is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from tuner import algorithms
from tuner.algorithms import Algorithm
from tuner.base.errors import InputError, ScheduleError
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.topology import MULTICAST, NVSWITCH_REDUCTION, SWITCH_REDUCTION

SEGMENTS = (8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20)  # bytes
NCCL = ("nccl_ring", "nccl_tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain")
NCCL_SEGMENTS = SEGMENTS[1:]  # it cuts no finer: calcCollChunking in its src/enqueue.cc
ON_THE_WAY = {MULTICAST, SWITCH_REDUCTION, NVSWITCH_REDUCTION}  # who combines or replicates there
BUSY_ANYWAY = ("segmented_ring", "two_level_ring")  # so are rings
MOST_PIECES_BUSY_ANYWAY = 16  # of those that need no pipeline to keep all links busy
MOST_PIECES = 128  # a message cut into more is all latency, and dear to simulate
GROUP = 0  # stands for the ranks of a node, which are the group where there are several
OFFERED: Mapping[str, tuple[int, ...]] = {  # beside an algorithm's own default
    "group": (GROUP,),
    "radix": (8,),
    "chains": (2,),
    "length": (4,),
    "leaders": (4,),
}
CUTTING_SHARES: Mapping[str, str] = {  # cut is not the message but one of so many shares of it
    "segmented_ring": "p",
    "nvls": "p",
    "nvls_tree": "group",
    "collnet_direct": "group",
    "collnet_chain": "group",
    "nccl_ring": "channels",
    "nccl_tree": "channels",
}
GROWTH_FROM = (16, 32)  # rank counts whose transfers tell how many there are at others


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
    collective: Collective, names: Sequence[str], nodes: int, ppn: int, nbytes: int
) -> Iterator[Candidate]:
    """Each algorithm with all parameters worth trying, and every segment that cuts something.

    Two levels are offered between nodes, with the ranks of a node as the group; where each node has
    one rank, with the algorithm's own group.
    """
    for name in names:
        entry = algorithms.describe(collective, name)
        if nodes > 1 or "group" not in entry.params:
            for shape in _shapes(entry, nodes, ppn):
                for segment in _segments(entry, shape, nodes * ppn, nbytes):
                    yield of(collective, name, {**shape, **segment})


def _shapes(entry: Algorithm, nodes: int, ppn: int) -> Iterator[dict[str, int]]:
    """Combinations of all parameters but the segment."""
    known, p = entry.params, nodes * ppn
    names = [name for name in known if name != "segment"]
    group = known.get("group", 1) if ppn == 1 and not on_the_way(entry) else ppn
    values = []
    for name in names:
        own = () if OFFERED.get(name) == (GROUP,) else (known[name],)
        offered = (group if value == GROUP else value for value in OFFERED.get(name, ()))
        values.append(dict.fromkeys([*own, *(value for value in offered if value < max(p, 2))]))
    for combined in product(*values):
        yield dict(zip(names, combined, strict=True))


def _segments(
    entry: Algorithm, shape: Mapping[str, int], p: int, nbytes: int
) -> Iterator[dict[str, int]]:
    """Those that cut the message into some pieces but not too many, and the default."""
    if "segment" not in entry.params:
        yield {}
        return
    default = entry.params["segment"]
    busy = on_the_way(entry) or entry.name in BUSY_ANYWAY
    most = MOST_PIECES_BUSY_ANYWAY if busy else MOST_PIECES
    offered = NCCL_SEGMENTS if entry.name in NCCL else SEGMENTS
    number = {
        segment: pieces(entry.name, {**shape, "segment": segment}, p, nbytes)
        for segment in (default, *offered)
    }
    if number[default] <= most:
        yield {"segment": default}
    for segment in offered:
        if segment != default and 1 < number[segment] <= most:
            yield {"segment": segment}


def on_the_way(entry: Algorithm) -> bool:
    """Whether it is not only the ranks who combine or replicate."""
    return not ON_THE_WAY.isdisjoint(entry.needs)


def of(collective: Collective, algorithm: str, params: Mapping[str, int]) -> Candidate:
    """The candidate with these parameters; an algorithm that need not be segmented is not by 0."""
    optional = algorithms.describe(collective, algorithm).params.get("segment") == 0
    unsegmented = optional and params.get("segment") == 0
    return Candidate(
        algorithm, {k: v for k, v in params.items() if k != "segment" or not unsegmented}
    )


def pieces(algorithm: str, params: Mapping[str, int], p: int, nbytes: int) -> int:
    """How many segments there are: all that a schedule depends on besides p and parameters."""
    segment = params.get("segment", 0)
    shares = {"p": p, **params}.get(CUTTING_SHARES.get(algorithm, ""), 1)
    return max(1, -(-nbytes // shares // segment)) if segment else 1


def build(collective: Collective, candidate: Candidate, p: int, nbytes: int) -> Schedule:
    """The candidate's schedule, root 0; raises InputError for wrong parameters.

    Not replayed: a study runs nothing, and makes so many schedules that it would do little else.
    """
    return algorithms.build(
        collective, candidate.algorithm, p, nbytes=nbytes, params=candidate.params, replayed=False
    )


def transfers(collective: Collective, candidate: Candidate, p: int, nbytes: int) -> float:
    """About how many transfers the candidate makes, without building it.

    What an unsegmented schedule has at two numbers of ranks tells how it grows, as a power of p,
    and a pipeline has so many of each segment.
    """
    fixed = {name: value for name, value in candidate.params.items() if name != "segment"}
    few, more = (
        _counted(collective, candidate.algorithm, tuple(sorted(fixed.items())), ranks)
        for ranks in GROWTH_FROM
    )
    power = max(1.0, math.log2(more / few))
    number = pieces(candidate.algorithm, candidate.params, p, nbytes)
    return float(number * more * (p / GROWTH_FROM[1]) ** power)


@cache
def _counted(
    collective: Collective, algorithm: str, fixed: tuple[tuple[str, int], ...], p: int
) -> int:
    params = {name: min(value, p // 2) for name, value in fixed}
    if "segment" in algorithms.describe(collective, algorithm).params:
        params["segment"] = 0
    try:
        made = build(collective, Candidate(algorithm, params), p, 0)
    except (InputError, ScheduleError):  # not for so many ranks; whoever prices it finds out
        return p
    return max(1, sum(map(len, made.rounds())))
