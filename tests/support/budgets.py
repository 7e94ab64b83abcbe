"""Tuning runs within a budget, on ranks that only seem to run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.ranks import REQUEST, Ranks
from tuner.calibrate import calibrate
from tuner.core.calibration import Calibration
from tuner.core.measurement import REQUESTED_CALLS_KEY, Measurements
from tuner.core.path_classes import NETWORK, omit_default_placement
from tuner.launch import CompletedRun, Hosts
from tuner.machines.topology_files import parse_topology
from tuner.probe.deadline import seconds_until
from tuner.probe.monitor import STARTUP_SECONDS_KEY, ProbeProgress
from tuner.probe.multi_host import plan_cluster, provisional_cluster
from tuner.probe.probe_plan import ProbePlan, ProbePoint
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.topology import Topology
from tuner.workflows.active_tuning import Callbacks, StoppingRule, TuningResult, run_active_tuning
from tuner.workflows.candidates import candidate_points
from tuner.workflows.time_limit import TimeLimit

FLAT = parse_topology("{name: flat, nodes: 4, latency: 200us, bandwidth: 100Mbit/s}")[1]


SOCKETS = parse_topology("""
name: sockets
nodes: 2
latency: 2us
bandwidth: 12.5GB/s
interior:
  devices:
    - {name: cpu, kind: cpu, cores: 2, count: 2}
    - {name: nic, kind: nic}
  links:
    - {between: [cpu0, cpu1], bandwidth: 30GB/s, latency: 0.1us, kind: socket}
    - {between: [cpu0, nic], bandwidth: 26GB/s, latency: 0us, kind: pcie}
""")[1]


TWO = replace(
    REQUEST,
    parts=("messages", "shared"),
    ppn=2,
    shapes=(ProbeShape(2, 1), ProbeShape(4, 2)),
    sizes=(1024, 65536),
    topology=FLAT,
)


SHORTER = 25.0  # s, for which messages and simulations pay on an idle computer


def plan_of(request: ProbeSpec) -> ProbePlan:
    return plan_cluster(replace(request, parts=("messages", "shared")))


def messages_of(points: Sequence[ProbePoint], request: ProbeSpec) -> Measurements:
    """Return the measurements of these points in a network of 200 us and 12.5 MB/s."""
    series = []
    for point in points:
        for arm in point.candidates:
            nbytes = point.nbytes_of(arm)
            alpha, beta = (3e-4, 8e-8) if point.nodes > 1 else (1e-5, 1e-9)
            taken = (alpha + beta * nbytes) * np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0])
            series.append(point.to_measurement(arm, taken.tolist()))
    found = candidate_points(request)
    about = {
        REQUESTED_CALLS_KEY: [omit_default_placement(asdict(call)) for call in found],
        "hosts": ["a", "b", "c", "d"],
    }
    cluster = provisional_cluster(request)
    return Measurements(cluster, "openmpi 5.0.11", about, tuple(series))


def borrowed(topology: Topology | None, *classes: str) -> Calibration:
    """A calibration of messages between hosts and of these classes."""
    request = replace(TWO, topology=topology)
    if topology is SOCKETS:
        request = replace(
            request, hosts=Hosts(("node0", "node1")), shapes=(ProbeShape(2, 2),), ppn=4
        )
        request = replace(request, shapes=(ProbeShape(2, 4),))
    points = [q for q in plan_of(request).points if q.subject in (NETWORK, *classes)]
    measured = messages_of([q for q in points if q.kind in ("pingpong", "burst")], request)
    hosts = {"hosts": list(request.hosts.names)}
    return calibrate(replace(measured, provenance={**measured.provenance, **hosts}), topology)


@dataclass
class Listener:
    """Hears what is said."""

    notes: list[str]
    shown: list[ProbeProgress]

    @property
    def callbacks(self) -> Callbacks:
        return Callbacks(self.shown.append, on_note=self.notes.append)


def tuned(
    out: Path, ranks: Ranks, budget: float = SHORTER, request: ProbeSpec = TWO, **known: Any
) -> tuple[TuningResult, Listener]:
    listener = Listener([], [])
    found = run_active_tuning(
        out,
        request,
        ranks,
        StoppingRule(budget, 1e-9),
        limit=TimeLimit(budget, **known),
        callbacks=listener.callbacks,
    )
    return found, listener


@dataclass(frozen=True)
class Never(Ranks):
    """Ranks that must not be started."""

    def run(self, ranks: int, arguments: Sequence[str], **known: Any) -> CompletedRun:
        raise AssertionError(f"{ranks} ranks were started: {arguments}")


@dataclass(frozen=True)
class Slow(Ranks):
    """Ranks that say when they were to be done, and how long they took to start."""

    ends: list[float] = field(default_factory=list)
    start: float = 2.0

    def run(self, ranks: int, arguments: Sequence[str], **known: Any) -> CompletedRun:
        told = [seconds_until(word) for word in arguments if word.count(":") and word[-1].isdigit()]
        if told:
            self.ends.append(told[0])
            known["on_line"](json.dumps({"event": "facts", STARTUP_SECONDS_KEY: self.start}))
        return super().run(ranks, arguments, **known)
