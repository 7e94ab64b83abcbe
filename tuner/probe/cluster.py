"""Choosing what a probe of several hosts measures, in which order and how long.

Messages first, because everything is predicted from them; then the collectives, from few hosts to
many and small to large, all of them in one launch. Points of one shape are dealt out over disjoint
copies of it, which measure side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tuner import libraries
from tuner.measurement import Measurements
from tuner.probe.device_points import device_calls, device_points
from tuner.probe.machine import local_cluster, provenance
from tuner.probe.plan import Arm, Plan, Point
from tuner.probe.planning import (
    BURST_LENGTHS,
    BURST_SIZES,
    PINGPONG_SIZES,
    REDUCTION_SIZES,
)
from tuner.probe.request import Request, Shape, check, cluster_name, shapes
from tuner.probe.run import carry_out
from tuner.probe.watch import Progress
from tuner.runtime.launch import Launcher, Template
from tuner.topology import MEMORY_BUS, NETWORK, NODE

EXCHANGE_SIZES = (8, 1024, 8192, 32768, 65536, 2**17, 2**18, 2**20)
LEAST_LARGEST = 2**18  # bytes: both protocols show up to there
ROWS = 3  # exchanges that follow one another at once
OVERHEAD_SIZES = (8, 1024, 16384)
SHARED_SIZES = (2**16, 2**19)
SWEEP_SIZES = (8, 2**16)
SENTINEL_SIZE = 2**16
SENTINELS = 8  # through one probe
BUDGET = 300.0  # seconds

# Rough seconds of a network, used for nothing but dealing out the time budget.
PER_CALL, PER_MESSAGE, PER_BYTE = 2e-3, 1e-4, 2e-9


def probe_cluster(
    out: Path,
    request: Request,
    launcher: Launcher,
    *,
    name: str = "",
    budget: float = BUDGET,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Measurements:
    """Measure a cluster and write `out`; resume what `out` already holds.

    name    of the cluster; by default what the batch system calls it, else what its hosts share
    budget  seconds of measuring

    Raises InputError and ProbeError as `tuner.probe.run.probe` does.
    """
    plan = plan_cluster(request)
    here = local_cluster()
    cluster = replace(here, name=name or cluster_name(request.hosts), nodes=request.nodes)
    words = (launcher.template or Template.parse(request.library)).words
    about = {**provenance(launcher.version(), launcher.python), "launcher_words": list(words)}
    return carry_out(plan, launcher, out, cluster, about, budget, on_progress)


def plan_cluster(request: Request) -> Plan:
    """Everything `request` asks for, in the order of measuring; raises InputError for nonsense."""
    check(request)
    points: list[Point] = []
    if "messages" in request.parts:
        points += _messages(request)
    if "shared" in request.parts:
        points += _shared(request)
    if "sweep" in request.parts and request.nodes > 2:
        points += _sweep(request)
    if "collectives" in request.parts:
        points += _collectives(request)
    points = list(_with_sentinels(points, request))
    with_devices = "devices" in request.parts
    if with_devices:  # first: without a GPU their time is left for what follows
        calls = device_calls(_collectives(request))
        points = [*device_points(request.nodes, request.ppn), *calls, *points]
    return Plan(
        request.library, request.nodes * request.ppn, os.cpu_count() or 1, request.target,
        request.operators, tuple(points), fewest=request.fewest, hosts=request.hosts.names,
        ppn=request.ppn, devices=with_devices,
    )  # fmt: skip


def _ladder(sizes: Sequence[int], **params: int) -> tuple[Arm, ...]:
    return tuple(Arm(params=params, nbytes=nbytes) for nbytes in sizes)


def _cost(arms: Sequence[Arm], calls: float = 1.0) -> float:
    """Rough seconds of one repetition of every arm."""
    return calls * sum(PER_CALL + PER_MESSAGE + PER_BYTE * (arm.nbytes or 0) for arm in arms)


def _messages(request: Request) -> Iterator[Point]:
    """One pair for each path class: of two hosts, and of two ranks on one host."""
    yield Point("call", "proc_null", 1, 0, (Arm(),), 0.02, ppn=1)
    ladder = _ladder(REDUCTION_SIZES)
    yield Point("reduction", "sum_float32", 1, 0, ladder, _cost(ladder), ppn=1)
    pairs = [(NETWORK, 2, 1)] * (request.nodes > 1) + [(NODE, 1, 2)] * (request.ppn > 1)
    for subject, nodes, ppn in pairs:
        yield from _of_pair(subject, nodes, ppn, max(request.sizes))
    if request.nodes > 3:
        everyone = request.nodes // 2 * 2
        arms = _exchanges(max(request.sizes))
        yield Point("exchange", NETWORK, everyone, 0, arms, 2 * _cost(arms), nodes=everyone, ppn=1)


def _of_pair(subject: str, nodes: int, ppn: int, largest: int) -> Iterator[Point]:
    def point(kind: str, nbytes: int, arms: tuple[Arm, ...], calls: float) -> Point:
        return Point(kind, subject, 2, nbytes, arms, _cost(arms, calls), nodes=nodes, ppn=ppn)

    yield point("eager", 0, (Arm(),), 20.0)
    yield point("pingpong", 0, _ladder(_up_to(PINGPONG_SIZES, largest)), 2.0)
    bursts = tuple(Arm(params={"messages": count}) for count in BURST_LENGTHS)
    for nbytes in BURST_SIZES:
        yield point("burst", nbytes, bursts, 4.0)
    yield point("overhead", 0, _ladder(OVERHEAD_SIZES), 2.0)
    yield point("exchange", 0, _exchanges(largest), 2.0)


def _exchanges(largest: int) -> tuple[Arm, ...]:
    sizes = _up_to(EXCHANGE_SIZES, largest)
    return (*_ladder(sizes), *_ladder(sizes, rows=ROWS))


def _up_to(sizes: Sequence[int], largest: int) -> list[int]:
    """No message of a collective is larger than its buffer."""
    return [size for size in sizes if size <= max(largest, LEAST_LARGEST)]


def _shared(request: Request) -> Iterator[Point]:
    """k pairs at once through one adapter, through the middle of the network, on one memory bus."""
    arms = _ladder(SHARED_SIZES)
    for k in _doublings(request.ppn) if request.nodes > 1 else ():
        yield Point("pairs", "nic", 2 * k, 0, arms, k * _cost(arms), nodes=2, ppn=k)
    half = request.nodes // 2
    for k in _doublings(half) if half > 1 else ():
        hosts = tuple(host for n in range(k) for host in (n, half + n))
        yield Point("pairs", "uplink", 2 * k, 0, arms, k * _cost(arms), nodes=2 * k, ppn=1,
                    hosts=hosts)  # fmt: skip
    for k in _doublings(request.ppn // 2) if request.ppn > 1 else ():
        yield Point("pairs", MEMORY_BUS, 2 * k, 0, arms, k * _cost(arms), ppn=2 * k)


def _doublings(most: int) -> list[int]:
    """1, 2, 4, ... up to and always including `most`."""
    return sorted({2**n for n in range(most.bit_length()) if 2**n <= most} | {most} - {0})


def _sweep(request: Request) -> Iterator[Point]:
    arms = _ladder(SWEEP_SIZES)
    hosts = tuple(range(request.nodes))
    weight = _cost(arms, 8.0 * min(request.nodes, 32))
    yield Point("sweep", NETWORK, 2, 0, arms, weight, nodes=2, ppn=1, hosts=hosts)


def _collectives(request: Request) -> Iterator[Point]:
    for number, one in enumerate(shapes(request), start=1):
        copies = request.nodes // one.nodes
        points = sorted(_of_shape(one, request), key=lambda point: -point.weight)
        dealt = [
            replace(point, weight=point.weight / copies, group=number if copies > 1 else 0,
                    first=(turn % copies) * one.nodes)
            for turn, point in enumerate(points)
        ]  # fmt: skip
        yield from sorted(dealt, key=lambda point: (point.first, point.weight))


def _of_shape(one: Shape, request: Request) -> Iterator[Point]:
    library = libraries.named(request.library)
    for collective in request.collectives:
        for nbytes in sorted(request.sizes):
            found = library.candidates(
                collective, one.ranks, nbytes, request.segments, request.radices
            )
            arms = tuple(
                Arm(choice.algorithm, dict(choice.params), library.settings(collective, choice))
                for choice in found
            )
            sample = PER_CALL + one.ranks * (PER_MESSAGE + PER_BYTE * nbytes)
            yield Point("collective", str(collective), one.ranks, nbytes, arms,
                        len(arms) * sample, nodes=one.nodes, ppn=one.ppn)  # fmt: skip


def _with_sentinels(points: list[Point], request: Request) -> Iterator[Point]:
    """The reference point again and again, between points that are not measured side by side."""
    subject, nodes, ppn = (NETWORK, 2, 1) if request.nodes > 1 else (NODE, 1, 2)
    whole = sum(point.weight for point in points)
    number, spent = 0, 0.0
    for place, point in enumerate(points):
        inside = place > 0 and point.group and points[place - 1].group == point.group
        if spent >= number * whole / (SENTINELS - 1) and not inside:
            yield _sentinel(subject, nodes, ppn, number)
            number += 1
        spent += point.weight
        yield point
    yield _sentinel(subject, nodes, ppn, number)


def _sentinel(subject: str, nodes: int, ppn: int, number: int) -> Point:
    arms = (Arm(params={"of": number}),)
    return Point("sentinel", subject, 2, SENTINEL_SIZE, arms, 10 * _cost(arms), nodes=nodes,
                 ppn=ppn, number=number)  # fmt: skip
