"""Which messages a probe of several hosts measures, and in which order: everything is predicted
from them, and a short budget has only the first of them.

First come a few sizes for each class of paths (`essentials`), from which every collective can be
simulated, then all sizes and what several messages do to one another (`refinements`). With a
topology there is a pair for each distance and there are pairs for each kind of uplink; without one
the first two hosts stand for all, and two halves of them for the middle of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tuner.probe.probe_plan import Arm, Point
from tuner.probe.probe_spec import Request
from tuner.probe.representative_pairs import Pair, Reach
from tuner.probe.single_host import BURST_LENGTHS, BURST_SIZES, PINGPONG_SIZES, REDUCTION_SIZES
from tuner.topology import CROSS_SOCKET, MEMORY_BUS, NETWORK, NODE

COARSE = 1000  # the numbers of ladders of few sizes begin here
COARSE_SIZES = (4, 1024, 8192, 32768, 65536, 2**17, 2**18)  # three on either side of most protocols
COARSE_FAR = (4, 8192, 65536)  # show what a longer distance adds
AHEAD_SIZES = (65536, 2**18)  # of messages that a late receiver may find there already
ACKNOWLEDGED_SIZES = (128, 256, 2048)  # among which libraries begin to acknowledge messages
EXCHANGE_SIZES = (8, 1024, 8192, 32768, 65536, 2**17, 2**18, 2**19)
LEAST_LARGEST = 2**18  # bytes: both protocols show up to there
ROWS = 5  # exchanges that follow one another at once
FAN_SIZES = (2**13, 2**16, 2**19)
PEERS = (1, 2, 4)  # that a rank sends to at once
OVERHEAD_SIZES = (8, 1024, 16384)
SHARED_SIZES = (2**16, 2**19)
SWEEP_SIZES = (8, 2**16)

# Rough seconds of a network, used for nothing but dealing out the time budget.
PER_CALL, PER_MESSAGE, PER_BYTE = 2e-3, 1e-4, 2e-9
LOCAL = 0.2  # of that, for what no message is sent for


def cost(arms: Sequence[Arm], calls: float = 1.0) -> float:
    """Rough seconds of one repetition of every arm."""
    return calls * sum(PER_CALL + PER_MESSAGE + PER_BYTE * (arm.nbytes or 0) for arm in arms)


def _ladder(sizes: Sequence[int], **params: int) -> tuple[Arm, ...]:
    return tuple(Arm(params=params, nbytes=nbytes) for nbytes in sizes)


def essentials(request: Request) -> Iterator[Point]:
    """Yield what every prediction rests on, for each class of paths that ranks of the request use:
    times at a few sizes, then the overhead of a message and the eager limit; and reductions.
    """
    yield Point("call", "proc_null", 1, 0, (Arm(),), 0.02, ppn=1)
    near, *far = _distances(request)
    classes = [(NETWORK, 2, 1)] * (request.nodes > 1) + [(NODE, 1, 2)] * (request.ppn > 1)
    for subject, nodes, ppn in classes:
        params = _pair_params(request, near) if subject == NETWORK else {}
        arms = _ladder(COARSE_SIZES, **params, of=COARSE)
        point = replace(_pingpong(subject, nodes, ppn, arms), number=COARSE)
        yield _between(point, near) if subject == NETWORK else point
    for subject, nodes, ppn in classes:
        for point in (_burst(subject, nodes, ppn, BURST_SIZES[0]), _eager(subject, nodes, ppn)):
            yield _between(point, near) if subject == NETWORK else point
    for number, pair in enumerate(far, start=COARSE + 1):
        arms = _ladder(COARSE_FAR, **_pair_params(request, pair), of=number)
        yield _between(replace(_pingpong(NETWORK, 2, 1, arms), number=number), pair)
    ladder = _ladder(REDUCTION_SIZES)
    yield Point("reduction", "sum_float32", 1, 0, ladder, cost(ladder, LOCAL), ppn=1)


def refinements(request: Request) -> Iterator[Point]:
    """Yield all sizes of each class of paths, then messages that meet others: what collectives
    depend on most comes first.
    """
    largest = max(request.sizes)
    sizes = _up_to(PINGPONG_SIZES, largest)
    near, *far = _distances(request)
    if request.nodes > 1:
        arms = _ladder(sizes, **_pair_params(request, near))
        yield _between(_pingpong(NETWORK, 2, 1, arms), near)
    if request.ppn > 1:
        yield _pingpong(NODE, 1, 2, _ladder(sizes))
        yield replace(_pingpong(CROSS_SOCKET, 1, 2, _ladder(sizes)), apart=True)
    for number, pair in enumerate(far, start=1):
        arms = _ladder(sizes, **_pair_params(request, pair), of=number)
        yield _between(replace(_pingpong(NETWORK, 2, 1, arms), number=number), pair)
    for nodes, arms in _of_everyone(request.nodes, largest):
        yield Point("exchange", NETWORK, nodes, 0, arms, 2 * cost(arms), nodes=nodes, ppn=1)
    if request.nodes > 2:
        yield _fan(request, near[0])
    if request.nodes > 1:
        yield from (_between(point, near) for point in _of_pair(NETWORK, 2, 1, largest))
    if request.ppn > 1:
        yield from _of_pair(NODE, 1, 2, largest)


def _distances(request: Request) -> list[Pair]:
    """Return the nearest pair of hosts, then one of every other distance."""
    if request.topology is None or request.nodes < 2:
        return [(0, 1)]
    return Reach(request.topology, request.hosts.names).distances()


def _pair_params(request: Request, pair: Pair) -> dict[str, int]:
    """Return what says which hosts a series is of, where that matters."""
    return {} if request.topology is None else {"first": pair[0], "second": pair[1]}


def _between(point: Point, pair: Pair) -> Point:
    """Return the point between these hosts."""
    return replace(point, hosts=() if pair == (0, 1) else pair)


def _pingpong(subject: str, nodes: int, ppn: int, arms: tuple[Arm, ...]) -> Point:
    return _two(subject, nodes, ppn, "pingpong", 0, arms, 2.0)


def _burst(subject: str, nodes: int, ppn: int, nbytes: int) -> Point:
    arms = tuple(Arm(params={"messages": count}) for count in BURST_LENGTHS)
    return _two(subject, nodes, ppn, "burst", nbytes, arms, 4.0)


def _eager(subject: str, nodes: int, ppn: int) -> Point:
    return _two(subject, nodes, ppn, "eager", 0, (Arm(),), 20.0)


def _two(
    subject: str, nodes: int, ppn: int, kind: str, nbytes: int, arms: tuple[Arm, ...], calls: float
) -> Point:
    return Point(kind, subject, 2, nbytes, arms, cost(arms, calls), nodes=nodes, ppn=ppn)


def _of_pair(subject: str, nodes: int, ppn: int, largest: int) -> Iterator[Point]:
    """Yield what two ranks show beside the times of single messages."""
    pair = subject, nodes, ppn
    sizes = sorted({*EXCHANGE_SIZES, *ACKNOWLEDGED_SIZES})
    yield _two(*pair, "exchange", 0, _ladder(_up_to(sizes, largest)), 2.0)
    for nbytes in BURST_SIZES[1:]:
        yield _burst(*pair, nbytes)
    yield _two(*pair, "overhead", 0, _ladder(OVERHEAD_SIZES), 1.0)
    for nbytes in _up_to(AHEAD_SIZES, largest) if subject == NETWORK else ():
        yield _two(*pair, "ahead", nbytes, (Arm(),), 30.0)


def _fan(request: Request, host: int) -> Point:
    """From one host to several others at once: what its port does with them."""
    most = min(max(PEERS), request.nodes - 1)
    hosts: tuple[int, ...] = ()
    if request.topology is not None:
        hosts = (host, *Reach(request.topology, request.hosts.names).around(host, most))
    arms = tuple(
        arm
        for nbytes in FAN_SIZES
        for k in PEERS
        if k <= most
        for arm in (
            Arm(params={"peers": k}, nbytes=nbytes),
            *([Arm(params={"peers": k, "nth": 1}, nbytes=nbytes)] if k > 1 else []),
        )
    )
    weight = sum(arm.params["peers"] * cost([arm]) for arm in arms)
    return Point("fan", NETWORK, most + 1, 0, arms, weight, nodes=most + 1, ppn=1, hosts=hosts)


def _of_everyone(nodes: int, largest: int) -> Iterator[tuple[int, tuple[Arm, ...]]]:
    """Exchanges of all hosts, or of all but one where pairs are meant: in pairs that take turns,
    and in a ring."""
    sizes = _up_to(EXCHANGE_SIZES, largest)
    pairs = (*_ladder(sizes, turns=1), *_ladder(sizes, rows=ROWS, turns=1))
    ring = (*_ladder(sizes, rows=1, ring=1), *_ladder(sizes, rows=ROWS, ring=1))
    if nodes % 2 and nodes > 3:
        yield nodes - 1, pairs
    if nodes > 2:
        yield nodes, ring if nodes % 2 else (*pairs, *ring)


def _up_to(sizes: Sequence[int], largest: int) -> list[int]:
    """No message of a collective is larger than its buffer."""
    return [size for size in sizes if size <= max(largest, LEAST_LARGEST)]


def shared(request: Request) -> Iterator[Point]:
    """k pairs at once through one adapter, through each kind of uplink, on one memory bus."""
    arms = _ladder(SHARED_SIZES)
    for k in _doublings(request.ppn) if request.nodes > 1 else ():
        yield Point("pairs", "nic", 2 * k, 0, arms, k * cost(arms), nodes=2, ppn=k)
    for kind, pairs in enumerate(_uplinks(request)):
        own = _ladder(SHARED_SIZES, of=kind) if kind else arms
        for k in _doublings(len(pairs)):
            hosts = tuple(host for pair in pairs[:k] for host in pair)
            yield Point(
                "pairs",
                "uplink",
                2 * k,
                0,
                own,
                k * cost(own),
                nodes=2 * k,
                ppn=1,
                hosts=hosts,
                number=kind,
            )
    for k in _doublings(request.ppn // 2) if request.ppn > 1 else ():
        yield Point("pairs", MEMORY_BUS, 2 * k, 0, arms, k * cost(arms), ppn=2 * k)


def _uplinks(request: Request) -> list[list[Pair]]:
    """Pairs that share something: as the routes say, else of two halves of the hosts."""
    if request.topology is not None:
        return Reach(request.topology, request.hosts.names).uplinks()
    half = request.nodes // 2
    return [[(n, half + n) for n in range(half)]] if half > 1 else []


def _doublings(most: int) -> list[int]:
    """1, 2, 4, ... up to and always including `most`."""
    return sorted({2**n for n in range(most.bit_length()) if 2**n <= most} | {most} - {0})


def sweep(request: Request) -> Iterator[Point]:
    """Every host with every other."""
    arms = _ladder(SWEEP_SIZES)
    hosts = tuple(range(request.nodes))
    weight = cost(arms, 8.0 * min(request.nodes, 32))
    yield Point("sweep", NETWORK, 2, 0, arms, weight, nodes=2, ppn=1, hosts=hosts)
