"""Choosing what a probe of several hosts measures, in which order and how long.

Messages first, because everything is predicted from them; then the collectives, from few hosts to
many and small to large, all of them in one launch. Points of one shape are dealt out over disjoint
copies of it, which measure side by side.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner import mpi_libraries
from tuner.base.atomic_io import require_target
from tuner.base.errors import InputError, ProbeError
from tuner.base.units import plural
from tuner.core.measurement import WANTED, Cluster, Measurements, read_partial, unreadable
from tuner.core.path_classes import placed_record
from tuner.launch import Hosts, Launcher, Template
from tuner.launch.rank_program import rank_program
from tuner.mpi_libraries.default_algorithms import DEFAULT_RUNS, Decisions, in_provenance
from tuner.probe.batches import Chosen, points_of, rounds_of
from tuner.probe.collective_points import of_shape, side_by_side
from tuner.probe.device_points import device_calls, device_points
from tuner.probe.driver import carry_out
from tuner.probe.machine import local_cluster, provenance
from tuner.probe.monitor import Progress
from tuner.probe.p2p_points import cost, essentials, refinements, shared, sweep
from tuner.probe.probe_file import ProbeFile
from tuner.probe.probe_plan import Arm, Plan, Point
from tuner.probe.probe_spec import USUAL, Request, check, cluster_name, shapes
from tuner.topology import NETWORK, NODE

SENTINEL_SIZE = 2**16
SENTINELS = 8  # through one probe
BUDGET = 300.0  # seconds
# Settings under which ranks of one host talk over the network's transport: of Open MPI over TCP.
OWN_HOST = {"openmpi": {"btl": "self,tcp"}, "mpich": {"MPIR_CVAR_NOLOCAL": "1"}}
PATIENCE = 30.0  # seconds
ROOM = 45.0  # seconds for messages from which on the latency of the links is worth a launch
UNREACHED, DENIED = "cannot be reached", "Permission denied"  # in the sentences on hosts
WITHOUT_LOOPBACK = (
    "two ranks on {host} alone could not be measured ({why}): the latency of the links is less"
    " certain, all else is as usual"
)


def probe_cluster(
    out: Path,
    request: Request,
    launcher: Launcher,
    *,
    name: str = "",
    budget: float = BUDGET,
    decisions: Sequence[Decisions] = (),
    wanted: Sequence[Mapping[str, Any]] = (),
    about: Mapping[str, Any] = MappingProxyType({}),
    on_progress: Callable[[Progress], None] = lambda _: None,
    end: float = math.inf,
    anew: bool | None = None,
) -> Measurements:
    """Measure a cluster and write `out`; resume what `out` already holds, rounds included.

    name        of the cluster; by default what the batch system calls it, else what its hosts share
    budget      seconds of measuring; points that do not fit are left out, and measured by a later
                call with a larger budget
    decisions   of the library's default, to be kept with the measurements
    wanted      calls that a table is for, measured or not, to be kept likewise
    about       further provenance
    end, anew   as `tuner.probe.driver.carry_out` says

    Raises InputError and ProbeError as `tuner.probe.driver.probe` does.
    """
    kept = {DEFAULT_RUNS: in_provenance(decisions), WANTED: [placed_record(one) for one in wanted]}
    known = {**about, **{name: records for name, records in kept.items() if records}}
    carry = partial(carry_out, budget=budget, on_progress=on_progress, end=end, anew=anew)
    return _carried_out(out, request, launcher, rounds_of(out), name, known, carry)


def probe_chosen(
    out: Path,
    request: Request,
    launcher: Launcher,
    chosen: Sequence[Chosen],
    *,
    name: str = "",
    budget: float = BUDGET,
    target: float | None = None,
    about: Mapping[str, Any] = MappingProxyType({}),
    on_progress: Callable[[Progress], None] = lambda _: None,
    end: float = math.inf,
    alone: bool = False,
) -> Measurements:
    """Measure another round of chosen points and append it to `out`; all of its series.

    target      for this round, relative half-width; None: that of `request`
    about       further provenance
    end         as `tuner.probe.driver.carry_out` says
    alone       what `out` lacks of `probe_cluster` is left out instead of measured first

    `out` is what `probe_cluster` made of the same request; what it lacks is measured first. The
    series of the first round have launch 1, and so on. Raises as `probe_cluster` does.
    """
    rounds = [*rounds_of(out), tuple(chosen)]
    only = len(rounds) if alone else None
    carry = partial(
        carry_out, budget=budget, on_progress=on_progress, end=end, anew=False, only=only
    )
    return _carried_out(out, request, launcher, rounds, name, about, carry, target)


def _carried_out(
    out: Path,
    request: Request,
    launcher: Launcher,
    rounds: Sequence[Sequence[Chosen]],
    name: str,
    kept: Mapping[str, Any],
    carry: partial[Measurements],
    target: float | None = None,
) -> Measurements:
    require_target(out)
    first = plan_cluster(request)
    mpi_libraries.require_unset(mpi_libraries.named(request.library).DECIDING)
    further = [
        point
        for launch, chosen in enumerate(rounds, start=1)
        for point in plan_chosen(request, chosen, launch).points
    ]
    words = (launcher.template or Template.parse(request.library)).words
    about = {
        **provenance(launcher.version(), launcher.python),
        "launcher_words": list(words),
        "plan": first.fingerprint,
        "thread_level": request.thread_level,
        **kept,
    }
    if rounds:
        records = [[placed_record(asdict(one)) for one in chosen] for chosen in rounds]
        about["rounds"] = json.loads(json.dumps(records))  # as the file has them
    left = carry.keywords["end"] - time.monotonic()
    messages = "messages" in request.parts and carry.keywords.get("only") is None
    if request.nodes > 1 and messages and not _begun(out) and left > ROOM:
        about |= _loopback(request, launcher, min(PATIENCE, left / 4))
    wanted = request.target if target is None else target
    plan = replace(first, points=(*first.points, *further), target=wanted)
    capable = plan.limited(launcher.capabilities)
    return carry(capable, launcher, out, cluster_of(request, name), about)


@dataclass(frozen=True)
class EarlierRun:
    """What a file holds of an earlier run.

    points      measured points of the plan
    planned     all points of the plan
    calls       measured calls of further rounds
    messages    whether the plan has messages alone
    """

    points: int
    planned: int
    calls: int
    messages: bool

    def __str__(self) -> str:
        if not self.points + self.calls:
            return ""
        kind = "message points" if self.messages else "points"
        parts = [f"{self.points} of {self.planned} {kind}"] * (self.points > 0)
        parts += [plural(self.calls, "measured call")] * (self.calls > 0)
        return f"kept {' and '.join(parts)} from the earlier run"


def earlier_run(out: Path, plan: Plan) -> EarlierRun:
    """Return what `out` holds of a plan and of further rounds.

    Raises InputError for a file that cannot be read.
    """
    series = read_partial(out)[1] if _begun(out) else []
    launches = {point.launch for point in plan.points}
    own = plan.complete([one for one in series if one.launch in launches])
    calls = {(one.launch, one.point) for one in series if one.launch not in launches}
    left = len(plan.without(own).points)
    messages = all(point.kind != "collective" for point in plan.points)
    return EarlierRun(len(plan.points) - left, len(plan.points), len(calls), messages)


def _begun(out: Path) -> bool:
    """Whether there are samples in the file: what its first line says is kept then."""
    try:
        return out.exists() and bool(read_partial(out)[1])
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable(out, reason) from None


def check_probe(out: Path, request: Request, launcher: Launcher, *, name: str = "") -> None:
    """Raises InputError where `probe_cluster` would, as far as that can be told without ranks: for
    nonsense, a topology of other hosts, an environment that decides what the library runs, an `out`
    of another probe and one that cannot be written.
    """
    require_target(out)
    plan = plan_cluster(request)
    mpi_libraries.require_unset(mpi_libraries.named(request.library).DECIDING)
    plan_chosen(request, [one for chosen in rounds_of(out) for one in chosen])
    about = {"plan": plan.fingerprint, "budget": 0.0}
    ProbeFile(out, cluster_of(request, name), launcher.version(), plan, about).check()


def cluster_of(request: Request, name: str) -> Cluster:
    """As it is known before its ranks have described it."""
    here = local_cluster()
    return replace(here, name=name or cluster_name(request.hosts), nodes=request.nodes)


def _loopback(request: Request, launcher: Launcher, patience: float) -> dict[str, Any]:
    """Return what `tuner.rank_programs.loopback` measures between two ranks of the first host, as
    provenance; a note where it cannot be had within `patience` seconds, for only the latency of the
    links depends on it. Raises ProbeError when no other launch can do better."""
    first = Hosts(request.hosts.names[:1], 2)
    try:
        run = launcher.run(
            2,
            rank_program("tuner.rank_programs.loopback"),
            hosts=first,
            ppn=2,
            settings=OWN_HOST[request.library],
            timeout=patience,
        )
        found = json.loads(run.stdout.splitlines()[-1])
        if isinstance(found, dict):
            return {"loopback": found}
        why = "the ranks said something else"
    except ProbeError as reason:
        why = str(reason)
        if UNREACHED in why and DENIED not in why:
            raise
    except InputError as reason:
        why = str(reason)
    except (ValueError, IndexError):
        why = "the ranks said nothing"
    return {"loopback": {}, "notes": [WITHOUT_LOOPBACK.format(host=first, why=why)]}


def plan_cluster(request: Request) -> Plan:
    """Everything `request` asks for, in the order of measuring; raises InputError for nonsense."""
    check(request)
    first, points = list[Point](), list[Point]()
    if "messages" in request.parts:
        first += essentials(request)
        points += refinements(request)
    if "shared" in request.parts:
        points += shared(request)
    if "sweep" in request.parts and request.nodes > 2:
        points += sweep(request)
    if "collectives" in request.parts:
        points += _collectives(request)
    points = [*first, *_with_sentinels(points, request)]
    if "devices" in request.parts:  # first: without a GPU their time is left for what follows
        usual = replace(request, collectives=USUAL, schedules=())
        calls = device_calls(_collectives(usual))
        points = [*device_points(request.nodes, request.ppn), *calls, *points]
    return _plan(request, points)


def _collectives(request: Request) -> Iterator[Point]:
    return side_by_side(request, [p for one in shapes(request) for p in of_shape(one, request)])


def plan_chosen(request: Request, chosen: Sequence[Chosen], launch: int = 0) -> Plan:
    """One launch that measures exactly these choices, the default beside them.

    Raises InputError for shapes that do not fit the hosts and for unknown algorithms.
    """
    check(request)
    return _plan(request, side_by_side(request, points_of(request, chosen, launch)))


def _plan(request: Request, points: Iterable[Point]) -> Plan:
    return Plan(
        request.library,
        request.nodes * request.ppn,
        os.cpu_count() or 1,
        request.target,
        request.operators,
        tuple(points),
        fewest=request.fewest,
        hosts=request.hosts.names,
        ppn=request.ppn,
        devices="devices" in request.parts,
        thread_level=request.thread_level,
    )


def _with_sentinels(points: Sequence[Point], request: Request) -> Iterator[Point]:
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
    return Point(
        "sentinel",
        subject,
        2,
        SENTINEL_SIZE,
        arms,
        10 * cost(arms),
        nodes=nodes,
        ppn=ppn,
        number=number,
    )
