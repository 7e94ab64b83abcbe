"""Choosing what a probe of several hosts measures, in which order and how long.

Messages first, because everything is predicted from them; then the collectives, from few hosts to
many and small to large, all of them in one launch. Points of one shape are dealt out over disjoint
copies of it, which measure side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tuner import libraries
from tuner.measurement import Measurements
from tuner.probe.device_points import device_calls, device_points
from tuner.probe.machine import local_cluster, provenance
from tuner.probe.messages import PER_BYTE, PER_CALL, PER_MESSAGE, cost, messages, shared, sweep
from tuner.probe.plan import Arm, Plan, Point
from tuner.probe.request import Request, Shape, check, cluster_name, shapes
from tuner.probe.run import carry_out
from tuner.probe.watch import Progress
from tuner.runtime.launch import Launcher, Template
from tuner.topology import NETWORK, NODE

SENTINEL_SIZE = 2**16
SENTINELS = 8  # through one probe
BUDGET = 300.0  # seconds


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
        points += messages(request)
    if "shared" in request.parts:
        points += shared(request)
    if "sweep" in request.parts and request.nodes > 2:
        points += sweep(request)
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
    return Point("sentinel", subject, 2, SENTINEL_SIZE, arms, 10 * cost(arms), nodes=nodes,
                 ppn=ppn, number=number)  # fmt: skip
