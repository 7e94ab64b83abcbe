"""The messages that a probe of several hosts measures, in order of importance.

Everything is predicted from them, and a short budget only has time for the first of them. First
come a few sizes for each path class (`essential_points`), from which every collective can be
simulated, then all sizes and messages that interact (`refinement_points`). With a topology there is
a pair for each distance and there are pairs for each kind of uplink; without one the first two
hosts represent all, and pairs between two halves of the hosts the middle of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tuner.probe.probe_plan import ProbeCandidate, ProbePoint
from tuner.probe.probe_spec import ProbeSpec
from tuner.probe.representative_pairs import HostPair, ProbedHosts
from tuner.probe.single_host import (
    MESSAGE_TRAIN_LENGTHS,
    MESSAGE_TRAIN_SIZES,
    PINGPONG_SIZES,
    REDUCTION_SIZES,
)
from tuner.topology import CROSS_SOCKET, MEMORY_BUS, NETWORK, NODE

COARSE_INDEX_BASE = 1000  # first number of the coarse size series
COARSE_SIZES = (4, 1024, 8192, 32768, 65536, 2**17, 2**18)  # some on either side of eager limits
COARSE_DISTANCE_SIZES = (4, 8192, 65536)  # enough to show what a longer distance adds
AHEAD_SIZES = (65536, 2**18)  # of messages that may arrive before a late receive
ACKNOWLEDGED_SIZES = (128, 256, 2048)  # where acknowledgements may begin
EXCHANGE_SIZES = (8, 1024, 8192, 32768, 65536, 2**17, 2**18, 2**19)
MIN_NEAR_HOSTS = 4  # hosts near to one another whose exchanges stand for those of all
MIN_LARGEST_BYTES = 2**18  # bytes; the range up to there shows both protocols
BACK_TO_BACK_EXCHANGES = 5  # exchanges in immediate succession
FAN_OUT_SIZES = (2**13, 2**16, 2**19)
FAN_OUT_PEERS = (1, 2, 4)  # numbers of ranks that a rank sends to at once
OVERHEAD_SIZES = (8, 1024, 16384)
SHARED_SIZES = (2**16, 2**19)
ALL_PAIRS_SIZES = (8, 2**16)

# Rough seconds of a network, only used to distribute the time budget.
SECONDS_PER_CALL = 2e-3
SECONDS_PER_MESSAGE = 1e-4
SECONDS_PER_BYTE = 2e-9
LOCAL_COST_FRACTION = 0.2  # of these seconds, for points without messages


def estimate_seconds(candidates: Sequence[ProbeCandidate], calls: float = 1.0) -> float:
    """Return the rough seconds of one repetition of every candidate."""
    return calls * sum(
        SECONDS_PER_CALL + SECONDS_PER_MESSAGE + SECONDS_PER_BYTE * (candidate.nbytes or 0)
        for candidate in candidates
    )


def _size_candidates(sizes: Sequence[int], **params: int) -> tuple[ProbeCandidate, ...]:
    return tuple(ProbeCandidate(params=params, nbytes=nbytes) for nbytes in sizes)


def essential_points(spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield what every prediction rests on, for each path class that ranks of the spec use.

    These are times at a few sizes, then the overhead of a message and the eager limit, and
    reductions.
    """
    yield ProbePoint("call", "proc_null", 1, 0, (ProbeCandidate(),), 0.02, ppn=1)
    near, *far = _pair_per_distance(spec)
    classes = [(NETWORK, 2, 1)] * (spec.nodes > 1) + [(NODE, 1, 2)] * (spec.ppn > 1)
    for subject, nodes, ppn in classes:
        params = _pair_params(spec, near) if subject == NETWORK else {}
        candidates = _size_candidates(COARSE_SIZES, **params, of=COARSE_INDEX_BASE)
        point = replace(_pingpong(subject, nodes, ppn, candidates), index=COARSE_INDEX_BASE)
        yield _on_hosts(point, near) if subject == NETWORK else point
    for subject, nodes, ppn in classes:
        for point in (
            _message_train(subject, nodes, ppn, MESSAGE_TRAIN_SIZES[0]),
            _eager_limit(subject, nodes, ppn),
        ):
            yield _on_hosts(point, near) if subject == NETWORK else point
    for number, pair in enumerate(far, start=COARSE_INDEX_BASE + 1):
        candidates = _size_candidates(COARSE_DISTANCE_SIZES, **_pair_params(spec, pair), of=number)
        yield _on_hosts(replace(_pingpong(NETWORK, 2, 1, candidates), index=number), pair)
    by_size = _size_candidates(REDUCTION_SIZES)
    yield ProbePoint(
        "reduction",
        "sum_float32",
        1,
        0,
        by_size,
        estimate_seconds(by_size, LOCAL_COST_FRACTION),
        ppn=1,
    )


def refinement_points(spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield all sizes of each path class, then concurrent messages.

    What collectives depend on most comes first.
    """
    largest = max(spec.sizes)
    sizes = _sizes_up_to(PINGPONG_SIZES, largest)
    near, *far = _pair_per_distance(spec)
    if spec.nodes > 1:
        candidates = _size_candidates(sizes, **_pair_params(spec, near))
        yield _on_hosts(_pingpong(NETWORK, 2, 1, candidates), near)
    if spec.ppn > 1:
        yield _pingpong(NODE, 1, 2, _size_candidates(sizes))
        yield replace(_pingpong(CROSS_SOCKET, 1, 2, _size_candidates(sizes)), cross_socket=True)
    for number, pair in enumerate(far, start=1):
        candidates = _size_candidates(sizes, **_pair_params(spec, pair), of=number)
        yield _on_hosts(replace(_pingpong(NETWORK, 2, 1, candidates), index=number), pair)
    yield from _exchanges_of_several(spec, largest)
    if spec.nodes > 2:
        yield _fan_out(spec, near[0])
    if spec.nodes > 1:
        yield from (_on_hosts(point, near) for point in _pair_refinements(NETWORK, 2, 1, largest))
    if spec.ppn > 1:
        yield from _pair_refinements(NODE, 1, 2, largest)


def _pair_per_distance(spec: ProbeSpec) -> list[HostPair]:
    """Return the nearest pair of hosts, then one of every other distance."""
    if spec.topology is None or spec.nodes < 2:
        return [(0, 1)]
    return ProbedHosts(spec.topology, spec.hosts.names).pair_per_distance()


def _pair_params(spec: ProbeSpec, pair: HostPair) -> dict[str, int]:
    """Return the parameters that name the hosts of a series; empty without a topology."""
    return {} if spec.topology is None else {"first": pair[0], "second": pair[1]}


def _on_hosts(point: ProbePoint, pair: HostPair) -> ProbePoint:
    return replace(point, hosts=() if pair == (0, 1) else pair)


def _pingpong(
    subject: str, nodes: int, ppn: int, candidates: tuple[ProbeCandidate, ...]
) -> ProbePoint:
    return _two_rank_point(subject, nodes, ppn, "pingpong", 0, candidates, 2.0)


def _message_train(subject: str, nodes: int, ppn: int, nbytes: int) -> ProbePoint:
    candidates = tuple(
        ProbeCandidate(params={"messages": count}) for count in MESSAGE_TRAIN_LENGTHS
    )
    return _two_rank_point(subject, nodes, ppn, "burst", nbytes, candidates, 4.0)


def _eager_limit(subject: str, nodes: int, ppn: int) -> ProbePoint:
    return _two_rank_point(subject, nodes, ppn, "eager", 0, (ProbeCandidate(),), 20.0)


def _two_rank_point(
    subject: str,
    nodes: int,
    ppn: int,
    kind: str,
    nbytes: int,
    candidates: tuple[ProbeCandidate, ...],
    calls: float,
) -> ProbePoint:
    return ProbePoint(
        kind,
        subject,
        2,
        nbytes,
        candidates,
        estimate_seconds(candidates, calls),
        nodes=nodes,
        ppn=ppn,
    )


def _pair_refinements(subject: str, nodes: int, ppn: int, largest: int) -> Iterator[ProbePoint]:
    """Yield what two ranks show beyond the times of single messages."""
    pair = subject, nodes, ppn
    sizes = sorted({*EXCHANGE_SIZES, *ACKNOWLEDGED_SIZES})
    yield _two_rank_point(*pair, "exchange", 0, _size_candidates(_sizes_up_to(sizes, largest)), 2.0)
    for nbytes in MESSAGE_TRAIN_SIZES[1:]:
        yield _message_train(*pair, nbytes)
    yield _two_rank_point(*pair, "overhead", 0, _size_candidates(OVERHEAD_SIZES), 1.0)
    for nbytes in _sizes_up_to(AHEAD_SIZES, largest) if subject == NETWORK else ():
        yield _two_rank_point(*pair, "ahead", nbytes, (ProbeCandidate(),), 30.0)


def _fan_out(spec: ProbeSpec, host: int) -> ProbePoint:
    """Return the point of fan-outs from one host to several others, to see how its port shares."""
    most = min(max(FAN_OUT_PEERS), spec.nodes - 1)
    hosts: tuple[int, ...] = ()
    if spec.topology is not None:
        hosts = (host, *ProbedHosts(spec.topology, spec.hosts.names).nearest_hosts(host, most))
    candidates = tuple(
        candidate
        for nbytes in FAN_OUT_SIZES
        for k in FAN_OUT_PEERS
        if k <= most
        for candidate in (
            ProbeCandidate(params={"peers": k}, nbytes=nbytes),
            *([ProbeCandidate(params={"peers": k, "nth": 1}, nbytes=nbytes)] if k > 1 else []),
        )
    )
    weight = sum(
        candidate.params["peers"] * estimate_seconds([candidate]) for candidate in candidates
    )
    return ProbePoint(
        "fan", NETWORK, most + 1, 0, candidates, weight, nodes=most + 1, ppn=1, hosts=hosts
    )


def _exchanges_of_several(spec: ProbeSpec, largest: int) -> Iterator[ProbePoint]:
    """Yield exchanges of several hosts in a ring, and of an even number of them in pairs.

    The hosts are all near to one another, so that no link between switches limits them, as long as
    there are enough for pairs that alternate; else they are all hosts.
    """
    sizes = _sizes_up_to(EXCHANGE_SIZES, largest)
    hosts, near = list(range(spec.nodes)), dict[str, int]()
    if spec.topology is not None and spec.nodes > 1:
        group = ProbedHosts(spec.topology, spec.hosts.names).largest_near_set()
        if MIN_NEAR_HOSTS <= len(group) < spec.nodes:
            hosts, near = group, {"near": 1}
    pairs = (
        *_size_candidates(sizes, turns=1, **near),
        *_size_candidates(sizes, rows=BACK_TO_BACK_EXCHANGES, turns=1, **near),
    )
    ring = (
        *_size_candidates(sizes, rows=1, ring=1, **near),
        *_size_candidates(sizes, rows=BACK_TO_BACK_EXCHANGES, ring=1, **near),
    )
    if len(hosts) % 2 and len(hosts) > 3:
        yield _exchange_point(hosts[:-1], pairs)
    if len(hosts) > 2:
        yield _exchange_point(hosts, ring if len(hosts) % 2 else (*pairs, *ring))


def _exchange_point(hosts: Sequence[int], candidates: tuple[ProbeCandidate, ...]) -> ProbePoint:
    named = () if list(hosts) == list(range(len(hosts))) else tuple(hosts)
    weight, p = 2 * estimate_seconds(candidates), len(hosts)
    return ProbePoint("exchange", NETWORK, p, 0, candidates, weight, nodes=p, ppn=1, hosts=named)


def _sizes_up_to(sizes: Sequence[int], largest: int) -> list[int]:
    """Return the sizes up to `largest`: no message of a collective is larger than its buffer."""
    return [size for size in sizes if size <= max(largest, MIN_LARGEST_BYTES)]


def shared_resource_points(spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield k concurrent pairs through one adapter, each kind of uplink, and the memory bus."""
    candidates = _size_candidates(SHARED_SIZES)
    for k in _doublings(spec.ppn) if spec.nodes > 1 else ():
        yield ProbePoint(
            "pairs", "nic", 2 * k, 0, candidates, k * estimate_seconds(candidates), nodes=2, ppn=k
        )
    for kind, pairs in enumerate(_pairs_per_uplink_kind(spec)):
        own = _size_candidates(SHARED_SIZES, of=kind) if kind else candidates
        for k in _doublings(len(pairs)):
            hosts = tuple(host for pair in pairs[:k] for host in pair)
            yield ProbePoint(
                "pairs",
                "uplink",
                2 * k,
                0,
                own,
                k * estimate_seconds(own),
                nodes=2 * k,
                ppn=1,
                hosts=hosts,
                index=kind,
            )
    for k in _doublings(spec.ppn // 2) if spec.ppn > 1 else ():
        yield ProbePoint(
            "pairs", MEMORY_BUS, 2 * k, 0, candidates, k * estimate_seconds(candidates), ppn=2 * k
        )


def _pairs_per_uplink_kind(spec: ProbeSpec) -> list[list[HostPair]]:
    """Return pairs that share a link: as the routes say, else between two halves of the hosts."""
    if spec.topology is not None:
        return ProbedHosts(spec.topology, spec.hosts.names).pairs_per_uplink_kind()
    half = spec.nodes // 2
    return [[(n, half + n) for n in range(half)]] if half > 1 else []


def _doublings(largest: int) -> list[int]:
    """Return 1, 2, 4, ... up to and always including `largest`."""
    return sorted({2**n for n in range(largest.bit_length()) if 2**n <= largest} | {largest} - {0})


def all_pairs_points(spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield the sweep over all pairs of hosts."""
    candidates = _size_candidates(ALL_PAIRS_SIZES)
    hosts = tuple(range(spec.nodes))
    weight = estimate_seconds(candidates, 8.0 * min(spec.nodes, 32))
    yield ProbePoint("sweep", NETWORK, 2, 0, candidates, weight, nodes=2, ppn=1, hosts=hosts)
