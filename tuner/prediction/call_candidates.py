"""Algorithms with the parameters that are worth a prediction, and how much work each one is."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, count, product, takewhile

from tuner import algorithms
from tuner.algorithms import Algorithm
from tuner.base.errors import InputError, ScheduleError
from tuner.base.units import format_size
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.topology import MULTICAST, NVSWITCH_REDUCTION, SWITCH_REDUCTION

SEGMENTS_BYTES = (8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20)  # and every double of the last
NCCL_SEGMENTS_BYTES = SEGMENTS_BYTES[1:]  # calcCollChunking in NCCL's src/enqueue.cc cuts no finer
MAX_SEGMENT_SIZES = 5  # tried of one algorithm for one message
NCCL_ALGORITHMS = ("nccl_ring", "nccl_tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain")
IN_NETWORK_NEEDS = {
    MULTICAST,
    SWITCH_REDUCTION,
    NVSWITCH_REDUCTION,
}  # what combines or replicates messages there
SATURATING_ALGORITHMS = ("segmented_ring", "two_level_ring")  # keep all links busy unpipelined
MAX_SATURATING_SEGMENTS = 16  # for these and for in-network algorithms
MAX_SEGMENTS = 128  # with more, latency dominates and simulation takes long
NODE_GROUP = 0  # stands for the ranks of a node
PARAM_VALUES: Mapping[str, tuple[int, ...]] = {  # tried besides an algorithm's own default
    "group": (NODE_GROUP,),
    "radix": (8,),
    "chains": (2,),
    "length": (4,),
    "leaders": (4,),
    "requests": (8,),
}
# Number of shares of the message, each of which is segmented: the first of these that is given
SHARES_PARAMS: Mapping[str, tuple[str, ...]] = {
    "segmented_ring": ("p",),
    "nvls": ("group", "p"),
    "nvls_tree": ("group",),
    "collnet_direct": ("group",),
    "collnet_chain": ("group",),
    "nccl_ring": ("channels",),
    "nccl_tree": ("channels",),
}
EXTRAPOLATION_RANKS = (16, 32)  # rank counts from which numbers of transfers are extrapolated


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its parameters; an unsegmented one has no parameter `segment`."""

    algorithm: str
    params: Mapping[str, int]

    @property
    def choice(self) -> AlgorithmChoice:
        """The choice of our schedule of it."""
        return AlgorithmChoice(self.algorithm, self.params, SCHEDULE)

    def __str__(self) -> str:
        inside = ", ".join(
            f"{name}={format_size(value) if name == 'segment' else value}"
            for name, value in sorted(self.params.items())
        )
        return f"{self.algorithm}({inside})" if inside else self.algorithm


Variant = Candidate | AlgorithmChoice  # an algorithm with parameters


def is_run_by_nccl(choice: AlgorithmChoice, of_nccl: Collection[str]) -> bool:
    """Return whether NCCL's model is of a choice, given the algorithms that it knows.

    It is of algorithms as NCCL itself runs them. Parameters of a schedule are ours; those of
    another runner are in tuning tables for NCCL.
    """
    return choice.algorithm in of_nccl and not (choice.runner == SCHEDULE and choice.params)


def list_candidates(
    collective: Collective,
    names: Sequence[str],
    nodes: int,
    ppn: int,
    nbytes: int,
    of_nccl: Collection[str] = (),
) -> Iterator[Candidate]:
    """Yield each algorithm with all parameters worth trying and every segment size worth trying.

    Algorithms in `of_nccl` are yielded without parameters: NCCL decides about them.

    Two-level algorithms are offered for several nodes, with the ranks of a node as the group; where
    each node has one rank, with the algorithm's own default group. One whose default group is all
    ranks (0) is offered for one node, too, without the parameter.
    """
    for name in names:
        entry = algorithms.describe(collective, name)
        if name in of_nccl:
            yield Candidate(name, {})
        elif nodes > 1 or not entry.params.get("group"):
            for shape in _param_sets(entry, nodes, ppn):
                for segment in _segments(entry, shape, nodes * ppn, nbytes):
                    yield make_candidate(collective, name, {**shape, **segment})


def _param_sets(entry: Algorithm, nodes: int, ppn: int) -> Iterator[dict[str, int]]:
    """Yield the combinations of all parameters but the segment."""
    known, p = entry.params, nodes * ppn
    names = [name for name in known if name != "segment" and (nodes > 1 or name != "group")]
    group = known.get("group", 1) if ppn == 1 and not is_in_network(entry) else ppn
    values = []
    for name in names:
        own = () if PARAM_VALUES.get(name) == (NODE_GROUP,) else (known[name],)
        offered = (group if value == NODE_GROUP else value for value in PARAM_VALUES.get(name, ()))
        values.append(dict.fromkeys([*own, *(value for value in offered if value < max(p, 2))]))
    for combined in product(*values):
        yield dict(zip(names, combined, strict=True))


def _segments(
    entry: Algorithm, params: Mapping[str, int], p: int, nbytes: int
) -> Iterator[dict[str, int]]:
    """Yield the default segment and others that cut the message into several pieces.

    Segments that cut it into too many pieces for the algorithm are left out. The others grow with
    the message, so that no message is too long for an algorithm.
    """
    if "segment" not in entry.params:
        yield {}
        return
    default = entry.params["segment"]
    busy = is_in_network(entry) or entry.name in SATURATING_ALGORITHMS
    most = MAX_SATURATING_SEGMENTS if busy else MAX_SEGMENTS
    offered = _segment_sizes(entry, nbytes)
    number = {
        segment: segment_count(entry.name, {**params, "segment": segment}, p, nbytes)
        for segment in (default, *offered)
    }
    if number[default] <= most:
        yield {"segment": default}
    cutting = [segment for segment in offered if 1 < number[segment] <= most]
    for segment in cutting[:MAX_SEGMENT_SIZES]:
        if segment != default:
            yield {"segment": segment}


def _segment_sizes(entry: Algorithm, nbytes: int) -> list[int]:
    """Return the segment sizes of which a message of `nbytes` has at least one, ascending."""
    usual = NCCL_SEGMENTS_BYTES if entry.name in NCCL_ALGORITHMS else SEGMENTS_BYTES
    sizes = chain(usual, (usual[-1] << power for power in count(1)))
    return list(takewhile(lambda size: size <= nbytes, sizes))


def is_in_network(entry: Algorithm) -> bool:
    """Return whether the network, too, combines or replicates messages."""
    return not IN_NETWORK_NEEDS.isdisjoint(entry.requires)


def make_candidate(collective: Collective, algorithm: str, params: Mapping[str, int]) -> Candidate:
    """Return the candidate with these parameters, without `segment` where 0 means unsegmented."""
    optional = algorithms.describe(collective, algorithm).params.get("segment") == 0
    unsegmented = optional and params.get("segment") == 0
    return Candidate(
        algorithm, {k: v for k, v in params.items() if k != "segment" or not unsegmented}
    )


def segment_count(algorithm: str, params: Mapping[str, int], p: int, nbytes: int) -> int:
    """Return the number of segments: besides p and parameters all that a schedule depends on."""
    segment = params.get("segment", 0)
    given = {"p": p, **params}
    named = SHARES_PARAMS.get(algorithm, ())
    shares = next((given[name] for name in named if given.get(name)), 1)
    return max(1, -(-nbytes // shares // segment)) if segment else 1


def schedule_key(
    collective: Collective, candidate: Variant, p: int, nbytes: int
) -> tuple[object, ...]:
    """Return a key that is equal for calls of p ranks that share a schedule of ours."""
    algorithm, params = candidate.algorithm, candidate.params
    fixed = sorted((k, v) for k, v in params.items() if k != "segment")
    number = segment_count(algorithm, params, p, nbytes)
    segment = params["segment"] if leaves_rest(collective, candidate, nbytes) else 0
    return collective, algorithm, *fixed, number, segment


def leaves_rest(collective: Collective, candidate: Variant, nbytes: int) -> bool:
    """Return whether the last segment of a message is shorter than the others."""
    segment = candidate.params.get("segment", 0)
    cuts_whole = algorithms.describe(collective, candidate.algorithm).cuts_whole
    return cuts_whole and segment > 0 and nbytes % segment > 0


def build_schedule(collective: Collective, candidate: Variant, p: int, nbytes: int) -> Schedule:
    """Return the candidate's schedule with root 0; raises InputError for wrong parameters.

    The schedule is not verified, which would take most of the time of a study.
    """
    return algorithms.build(
        collective,
        candidate.algorithm,
        p,
        nbytes=nbytes,
        params=candidate.params,
        verify_schedule=False,
    )


def estimate_transfers(collective: Collective, candidate: Variant, p: int, nbytes: int) -> float:
    """Estimate how many transfers the candidate makes, without building its schedule.

    The numbers of transfers of the unsegmented schedule at two rank counts give the power of p with
    which they grow; a pipeline has as many for each segment.
    """
    fixed = {name: value for name, value in candidate.params.items() if name != "segment"}
    few, more = (
        _count_transfers(collective, candidate.algorithm, tuple(sorted(fixed.items())), ranks)
        for ranks in EXTRAPOLATION_RANKS
    )
    power = max(1.0, math.log2(more / few))
    number = segment_count(candidate.algorithm, candidate.params, p, nbytes)
    return float(number * more * (p / EXTRAPOLATION_RANKS[1]) ** power)


@cache
def _count_transfers(
    collective: Collective, algorithm: str, fixed: tuple[tuple[str, int], ...], p: int
) -> int:
    params = {name: min(value, p // 2) for name, value in fixed}
    if "segment" in algorithms.describe(collective, algorithm).params:
        params["segment"] = 0
    try:
        made = build_schedule(collective, Candidate(algorithm, params), p, 0)
    except (InputError, ScheduleError):  # not for this many ranks; evaluating the task tells
        return p
    return max(1, sum(map(len, made.rounds())))
