"""Choose what a probe of one computer measures, in which order and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.base.thread_levels import THREAD_SINGLE
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.path_classes import HOST
from tuner.mpi_libraries.products import OPENMPI
from tuner.probe.device_points import device_collective_points, device_points
from tuner.probe.probe_plan import COLLECTIVE_KINDS, ProbeCandidate, ProbePlan, ProbePoint
from tuner.topology import NODE, NODE_OVERSUBSCRIBED

DEFAULT_COLLECTIVES = (Collective.BCAST, Collective.ALLREDUCE)
DEFAULT_LAUNCHES = 6  # launches of the ranks: core assignment, and times with it, change with each
DEFAULT_PARTS = ("messages", "collectives")
# No powers of two: libraries switch algorithms there, so they are not typical of other sizes.
COLLECTIVE_SIZES = (4, 64, *(1200 * 2**k for k in range(13)))
PINGPONG_SIZES = (
    0,
    4,
    64,
    256,
    512,
    1024,
    2048,
    3072,
    4096,
    8192,
    16384,
    32768,
    65536,
    2**17,
    2**18,
    2**19,
    2**20,
    2**21,
    2**22,
    2**23,
)
MESSAGE_TRAIN_SIZES = (8, 1024, 8192)
MESSAGE_TRAIN_LENGTHS = (1, 33)
REDUCTION_SIZES = (0, 64, 1024, 4096, 16384, 65536, 2**18, 2**20, 2**22, 2**23)

# Rough seconds, only used to distribute the time budget; measured times correct it.
SECONDS_PER_SAMPLE = 5e-4
SECONDS_PER_MESSAGE = 2e-6
SECONDS_PER_BYTE = 5e-10
MESSAGES_TIME_FRACTION = 0.12  # share of the budget for everything but collectives


def communicator_sizes(ranks: int) -> tuple[int, ...]:
    """Return 2, 3, 4, 6, 8, 12, 16, ... up to and always including `ranks`."""
    sizes = {2**k * f // 2 for k in range(1, ranks.bit_length() + 1) for f in (2, 3)} | {ranks}
    return tuple(sorted(p for p in sizes if 2 <= p <= ranks))


@dataclass(frozen=True)
class SingleHostSpec:
    """A description of what to measure on this computer.

    ranks           default: the cores, at least 4 for Open MPI (oversubscribed), at least 2 for
                    MPICH
    sizes           bytes of the collectives' buffers, multiples of 4
    ci_half_width   relative half-width of the 95 % interval of a median at which a point is done
    launches        how often the ranks are started, for every number of them; each launch measures
                    every algorithm
    operators       `commutative`, or `any` to time only algorithms that keep the operands' order
    parts           `messages`, `collectives` and `devices`; other parts need several hosts
    thread_level    of MPI_Init_thread, as in the programs that the table is for
    """

    library: str = OPENMPI
    ranks: int | None = None
    sizes: tuple[int, ...] = COLLECTIVE_SIZES
    ci_half_width: float = 0.03
    launches: int = DEFAULT_LAUNCHES
    operators: str = "commutative"
    parts: tuple[str, ...] = DEFAULT_PARTS
    thread_level: str = THREAD_SINGLE
    collectives: tuple[Collective, ...] = DEFAULT_COLLECTIVES


def make_plan(spec: SingleHostSpec, ranks: int, cores: int) -> ProbePlan:
    """Return a plan of `launches` repetitions, each with a launch for every number of ranks.

    A communicator of p ranks is thus measured as a user has it, with p ranks started. Points that
    need a GPU come first, as without one their time is left for the others; then messages and
    reductions. Both are in the first repetition only. Then come collectives, from coarse to fine
    sizes.
    """
    once = tuple(_collective_points(spec, ranks))
    share = (
        MESSAGES_TIME_FRACTION
        / (1 - MESSAGES_TIME_FRACTION)
        * spec.launches
        * sum(q.weight for q in once)
    )
    first: list[ProbePoint] = []
    calls: list[ProbePoint] = []
    if "devices" in spec.parts:
        first += _with_total_weight(list(device_points(1, ranks)), share)
        usual = replace(spec, collectives=DEFAULT_COLLECTIVES)
        calls += device_collective_points(tuple(_collective_points(usual, ranks)))
    if "messages" in spec.parts:
        first += _with_total_weight(list(_message_points(ranks, cores)), share)
    if "collectives" in spec.parts:
        calls += once
    return ProbePlan(
        spec.library,
        ranks,
        cores,
        spec.ci_half_width,
        spec.operators,
        tuple(_over_launches(first, calls, communicator_sizes(ranks), spec.launches)),
        detect_gpus="devices" in spec.parts,
        thread_level=spec.thread_level,
    )


def local_message_points(ranks: int, cores: int) -> Iterator[ProbePoint]:
    """Yield the points of messages and reductions alone, in launches of as few ranks as they need.

    Their weights are relative to one another.
    """
    points = tuple(_message_points(ranks, cores))
    started = sorted({_ranks_for(point, communicator_sizes(ranks)) for point in points})
    return _over_launches(points, (), started, 1)


def _over_launches(
    first: Sequence[ProbePoint], calls: Sequence[ProbePoint], started: Sequence[int], launches: int
) -> Iterator[ProbePoint]:
    """Yield the points of every launch; those of `first` are in the first repetition alone."""
    for turn in range(launches):
        for place, p in enumerate(started):
            for point in [*first, *calls] if turn == 0 else calls:
                if _ranks_for(point, started) == p:
                    yield replace(point, launch=turn * len(started) + place)


def _ranks_for(point: ProbePoint, started: Sequence[int]) -> int:
    """Return the number of ranks to start for a point: the fewest that it needs.

    Messages between GPUs need all ranks, which find out together which two of them have these GPUs.
    """
    if point.memory != HOST and point.kind not in COLLECTIVE_KINDS:
        return started[-1]
    return next(p for p in started if p >= point.p)


def coarse_to_fine(sizes: Sequence[int]) -> list[int]:
    """Return the sizes in an order of which every prefix is spread over all of them."""
    ordered, step = sorted(set(sizes)), 1
    while step < len(ordered):
        step *= 2
    found = dict.fromkeys([ordered[0], ordered[-1]]) if ordered else {}
    while step > 1:
        step //= 2
        found |= dict.fromkeys(ordered[::step])
    return list(found)


def _with_total_weight(points: list[ProbePoint], weight: float) -> Iterator[ProbePoint]:
    """Return the points with their weights scaled to a sum of `weight`."""
    whole = sum(point.weight for point in points)
    return (replace(point, weight=weight * point.weight / whole) for point in points)


def _message_points(ranks: int, cores: int) -> Iterator[ProbePoint]:
    """Yield the points of messages and reductions, with weights relative to one another."""
    yield ProbePoint("call", "proc_null", 1, 0, (ProbeCandidate(),), 0.02)
    yield ProbePoint("reduction", "sum_float32", 1, 0, _size_candidates(REDUCTION_SIZES), 0.2)
    yield ProbePoint("eager", NODE, 2, 0, (ProbeCandidate(),), 0.1)
    bursts = tuple(ProbeCandidate(params={"messages": count}) for count in MESSAGE_TRAIN_LENGTHS)
    for p in sorted({2, min(ranks, cores) // 2 * 2, ranks // 2 * 2} - {0}):
        subject = NODE if p <= max(cores, 2) else NODE_OVERSUBSCRIBED
        for nbytes in MESSAGE_TRAIN_SIZES:
            yield ProbePoint("burst", subject, p, nbytes, bursts, 0.05)
        yield ProbePoint("pingpong", subject, p, 0, _size_candidates(PINGPONG_SIZES), 1.0)


def _size_candidates(sizes: Sequence[int]) -> tuple[ProbeCandidate, ...]:
    return tuple(ProbeCandidate(nbytes=nbytes) for nbytes in sizes)


def _calls_of_ranks(spec: SingleHostSpec, p: int) -> list[tuple[Collective, int]]:
    """Return the collectives and sizes for p ranks, from coarse to fine sizes.

    Raises InputError for a collective of which no size gives each rank an element.
    """
    calls = dict.fromkeys(
        (collective, collective.rounded_down(nbytes, p))
        for nbytes in coarse_to_fine(spec.sizes)
        for collective in spec.collectives
    )
    kept = [(collective, nbytes) for collective, nbytes in calls if nbytes > 0]
    if {collective for collective, _ in kept} != {*spec.collectives}:
        raise InputError(
            f"no size of --sizes gives each of {p} ranks {PROBE_ELEMENT_BYTES} bytes: name larger"
            " ones"
        )
    return kept


def _collective_points(spec: SingleHostSpec, ranks: int) -> Iterator[ProbePoint]:
    library = mpi_libraries.library_module(spec.library)
    for p in communicator_sizes(ranks):
        for collective, nbytes in _calls_of_ranks(spec, p):
            tried = tuple(
                ProbeCandidate(
                    choice.algorithm,
                    dict(choice.params),
                    dict(library.settings(collective, choice)),
                )
                for choice in library.candidates(collective, p, nbytes)
            )
            sample = SECONDS_PER_SAMPLE + p * (SECONDS_PER_MESSAGE + SECONDS_PER_BYTE * nbytes)
            yield ProbePoint("collective", str(collective), p, nbytes, tried, len(tried) * sample)
