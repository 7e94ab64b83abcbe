"""Choose what a probe of several hosts measures, in which order and for how long.

Messages come first, because everything is predicted from them; then the collectives, from few
hosts to many and from small to large, all of them in one launch. Points of one shape are
distributed over disjoint copies of it, which measure concurrently.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner import mpi_libraries
from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, ProbeError
from tuner.base.processes import available_cores
from tuner.base.units import plural
from tuner.core.measurement import (
    REQUESTED_CALLS_KEY,
    Cluster,
    Measurements,
    read_partial,
    unreadable_file_error,
)
from tuner.core.path_classes import omit_default_placement
from tuner.launch import Hosts, Launcher, LauncherTemplate
from tuner.launch.rank_program import rank_arguments
from tuner.mpi_libraries.default_algorithms import (
    DEFAULT_ALGORITHMS_KEY,
    DefaultAlgorithms,
    default_algorithms_record,
)
from tuner.mpi_libraries.profiles import profile_of
from tuner.probe.batches import ExperimentRequest, experiment_points, read_batches, request_record
from tuner.probe.collective_points import make_concurrent, points_of_shape
from tuner.probe.device_points import device_collective_points, device_points
from tuner.probe.driver import RunLimits, run_plan
from tuner.probe.monitor import ProbeProgress
from tuner.probe.p2p_points import (
    all_pairs_points,
    essential_points,
    estimate_seconds,
    refinement_points,
    shared_resource_points,
)
from tuner.probe.probe_file import ProbeFile
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan, ProbePoint
from tuner.probe.probe_spec import ProbeSpec, check_spec, default_cluster_name, shapes_to_measure
from tuner.probe.probed_machine import collect_provenance, local_cluster
from tuner.probe.single_host import DEFAULT_COLLECTIVES, local_message_points
from tuner.topology import NETWORK, NODE

SENTINEL_BYTES = 2**16
SENTINEL_COUNT = 8  # in one probe, roughly
DEFAULT_BUDGET_S = 300.0  # seconds
LOOPBACK_TIMEOUT_S = 30.0  # seconds
# Remaining seconds from which on the latency of the links is worth a launch.
MIN_TIME_FOR_LOOPBACK_S = 45.0
# In error messages about hosts.
UNREACHABLE_TEXT = "cannot be reached"
DENIED_TEXT = "Permission denied"
NO_LOOPBACK_NOTE = (
    "two ranks on {host} alone could not be measured ({why}): the latency of the links is less"
    " certain, all else is as usual"
)


def probe_cluster(
    out: Path,
    spec: ProbeSpec,
    launcher: Launcher,
    *,
    budget: float = DEFAULT_BUDGET_S,
    default_algorithms: Sequence[DefaultAlgorithms] = (),
    requested_calls: Sequence[Mapping[str, Any]] = (),
    extra_provenance: Mapping[str, Any] = MappingProxyType({}),
    on_progress: Callable[[ProbeProgress], None] = lambda _: None,
    deadline: float = math.inf,
    retry_skipped: bool | None = None,
) -> Measurements:
    """Measure a cluster and write `out`; resume what `out` already holds, batches included.

    budget      seconds of measuring; points that do not fit are left out, and measured by a later
                call with a larger budget
    default_algorithms  what the library runs by default, stored with the measurements
    requested_calls     calls that a table is for, measured or not, stored with the measurements
    extra_provenance    further provenance
    deadline, retry_skipped     as in `tuner.probe.driver.RunLimits`

    Raises InputError and ProbeError as `tuner.probe.driver.probe` does.
    """
    kept = {
        DEFAULT_ALGORITHMS_KEY: default_algorithms_record(default_algorithms),
        REQUESTED_CALLS_KEY: [omit_default_placement(one) for one in requested_calls],
    }
    known = {**extra_provenance, **{name: records for name, records in kept.items() if records}}
    limits = RunLimits(budget, deadline, retry_skipped)
    return _run_probe(out, spec, launcher, read_batches(out), known, limits, on_progress)


def probe_experiments(
    out: Path,
    spec: ProbeSpec,
    launcher: Launcher,
    experiments: Sequence[ExperimentRequest],
    *,
    budget: float = DEFAULT_BUDGET_S,
    ci_half_width: float | None = None,
    extra_provenance: Mapping[str, Any] = MappingProxyType({}),
    on_progress: Callable[[ProbeProgress], None] = lambda _: None,
    deadline: float = math.inf,
    skip_first_plan: bool = False,
) -> Measurements:
    """Measure another batch of chosen points, append it to `out` and return all series.

    ci_half_width       relative half-width for this batch; None: that of `spec`
    extra_provenance    further provenance
    deadline            as in `tuner.probe.driver.RunLimits`
    skip_first_plan     leave out what `out` lacks of `probe_cluster`, instead of measuring it first

    `out` is what `probe_cluster` made of the same `spec`; what it lacks is measured first, unless
    `skip_first_plan` says otherwise. The
    batch is a launch of its own; on this computer there is one for every number of ranks. Raises
    as `probe_cluster` does.
    """
    before = read_batches(out)
    rounds = [*before, *_launches_of(experiments, spec.hosts)]
    first = plan_cluster(spec).launches + len(before) if skip_first_plan else 0
    limits = RunLimits(budget, deadline, retry_skipped=False, first_launch=first)
    return _run_probe(
        out, spec, launcher, rounds, extra_provenance, limits, on_progress, ci_half_width
    )


def _launches_of(
    experiments: Sequence[ExperimentRequest], hosts: Hosts
) -> list[tuple[ExperimentRequest, ...]]:
    """Return the experiments of each launch: all, or on this computer those of as many ranks.

    Most ranks come first: if time runs out, what they lack costs the longest to start again.
    """
    if not hosts.is_local:
        return [tuple(experiments)]
    ranks = sorted({one.ppn for one in experiments}, reverse=True)
    return [tuple(one for one in experiments if one.ppn == p) for p in ranks]


def _run_probe(
    out: Path,
    spec: ProbeSpec,
    launcher: Launcher,
    rounds: Sequence[Sequence[ExperimentRequest]],
    extra_provenance: Mapping[str, Any],
    limits: RunLimits,
    on_progress: Callable[[ProbeProgress], None],
    ci_half_width: float | None = None,
) -> Measurements:
    require_writable_file(out)
    first = plan_cluster(spec)
    mpi_libraries.require_no_override(mpi_libraries.library_module(spec.library).OVERRIDING_PATTERN)
    further = [
        point
        for launch, chosen in enumerate(rounds, start=first.launches)
        for point in plan_experiments(spec, chosen, launch).points
    ]
    words = (launcher.template or LauncherTemplate.parse(spec.library)).words
    missing = mpi_libraries.describe_missing_algorithms(launcher.version(), launcher.capabilities)
    about = {
        **collect_provenance(launcher.version(), launcher.python),
        "notes": missing,
        "launcher_words": list(words),
        "plan": first.fingerprint,
        "thread_level": spec.thread_level,
        **extra_provenance,
    }
    if rounds:
        records = [[request_record(one) for one in chosen] for chosen in rounds]
        about["rounds"] = json.loads(json.dumps(records))  # as stored in the file
    left = limits.deadline - time.monotonic()
    messages = "messages" in spec.parts and not limits.first_launch
    if spec.nodes > 1 and messages and not _has_samples(out) and left > MIN_TIME_FOR_LOOPBACK_S:
        found = _measure_loopback(spec, launcher, min(LOOPBACK_TIMEOUT_S, left / 4))
        about |= {**found, "notes": [*missing, *found.get("notes", ())]}
    wanted = spec.ci_half_width if ci_half_width is None else ci_half_width
    plan = replace(first, points=(*first.points, *further), ci_half_width=wanted)
    capable = plan.drop_unsupported(launcher.capabilities)
    return run_plan(capable, launcher, out, provisional_cluster(spec), about, limits, on_progress)


@dataclass(frozen=True)
class EarlierRun:
    """The contents of the file of an earlier run.

    measured_points     measured points of the plan
    planned_points      all points of the plan
    measured_calls      measured calls of further batches
    messages_only       whether the plan has no collectives
    """

    measured_points: int
    planned_points: int
    measured_calls: int
    messages_only: bool

    def __str__(self) -> str:
        if not self.measured_points + self.measured_calls:
            return ""
        kind = "message points" if self.messages_only else "points"
        parts = [f"{self.measured_points} of {self.planned_points} {kind}"] * (
            self.measured_points > 0
        )
        parts += [plural(self.measured_calls, "measured call")] * (self.measured_calls > 0)
        return f"kept {' and '.join(parts)} from the earlier run"


def earlier_run(out: Path, plan: ProbePlan) -> EarlierRun:
    """Return what `out` holds of a plan and of further batches.

    Raises InputError for a file that cannot be read.
    """
    series = read_partial(out)[1] if _has_samples(out) else []
    launches = {point.launch for point in plan.points}
    own = plan.select_finished([one for one in series if one.launch in launches])
    calls = {(one.launch, one.point) for one in series if one.launch not in launches}
    left = len(plan.drop_measured(own).points)
    messages = all(point.kind != "collective" for point in plan.points)
    return EarlierRun(len(plan.points) - left, len(plan.points), len(calls), messages)


def _has_samples(out: Path) -> bool:
    """Return whether the file has samples; the run that its first line describes then continues."""
    try:
        return out.exists() and bool(read_partial(out)[1])
    except (OSError, UnicodeDecodeError) as reason:
        raise unreadable_file_error(out, reason) from None


def check_probe(out: Path, spec: ProbeSpec, launcher: Launcher) -> None:
    """Raise InputError where `probe_cluster` would, as far as this can be found without ranks.

    This covers unusable arguments, a topology of other hosts, an environment that decides what the
    library runs, an `out` of another probe and an `out` that cannot be written.
    """
    require_writable_file(out)
    plan = plan_cluster(spec)
    mpi_libraries.require_no_override(mpi_libraries.library_module(spec.library).OVERRIDING_PATTERN)
    plan_experiments(spec, [one for chosen in read_batches(out) for one in chosen])
    about = {"plan": plan.fingerprint, "budget": 0.0}
    ProbeFile(out, provisional_cluster(spec), launcher.version(), plan, about).check_same_probe()


def provisional_cluster(spec: ProbeSpec) -> Cluster:
    """Return the cluster as it is known before its ranks have described it."""
    here = local_cluster()
    if spec.hosts.is_local:
        return here
    return replace(here, name=spec.name or default_cluster_name(spec.hosts), nodes=spec.nodes)


def _measure_loopback(spec: ProbeSpec, launcher: Launcher, timeout: float) -> dict[str, Any]:
    """Return what `tuner.rank_programs.loopback` measures on the first host, as provenance.

    Where it cannot be measured within `timeout` seconds, a note is returned instead, since only the
    latency of the links depends on it. Raises ProbeError when no other launch can do better.
    """
    first = Hosts(spec.hosts.names[:1], 2)
    try:
        run = launcher.run(
            2,
            rank_arguments("tuner.rank_programs.loopback"),
            hosts=first,
            ppn=2,
            settings=profile_of(spec.library).loopback_settings,
            timeout=timeout,
        )
        found = json.loads(run.stdout.splitlines()[-1])
        if isinstance(found, dict):
            return {"loopback": found}
        why = "the ranks said something else"
    except ProbeError as reason:
        why = str(reason)
        if UNREACHABLE_TEXT in why and DENIED_TEXT not in why:
            raise
    except InputError as reason:
        why = str(reason)
    except (ValueError, IndexError):
        why = "the ranks said nothing"
    return {"loopback": {}, "notes": [NO_LOOPBACK_NOTE.format(host=first, why=why)]}


def plan_cluster(spec: ProbeSpec) -> ProbePlan:
    """Return the plan of all that `spec` asks for, in order; raise InputError for bad specs.

    On this computer these are the messages; its calls are chosen as experiments.
    """
    check_spec(spec)
    if spec.hosts.is_local:
        messages = local_message_points(spec.ppn, available_cores())
        return _make_plan(spec, messages if "messages" in spec.parts else ())
    first, points = list[ProbePoint](), list[ProbePoint]()
    if "messages" in spec.parts:
        first += essential_points(spec)
        points += refinement_points(spec)
    if "shared" in spec.parts:
        points += shared_resource_points(spec)
    if "sweep" in spec.parts and spec.nodes > 2:
        points += all_pairs_points(spec)
    if "collectives" in spec.parts:
        points += _collective_points(spec)
    points = [*first, *_with_sentinels(points, spec)]
    if "devices" in spec.parts:  # first, as without a GPU their time is left for later points
        usual = replace(spec, collectives=DEFAULT_COLLECTIVES, schedules=())
        calls = device_collective_points(_collective_points(usual))
        points = [*device_points(spec.nodes, spec.ppn), *calls, *points]
    return _make_plan(spec, points)


def _collective_points(spec: ProbeSpec) -> Iterator[ProbePoint]:
    return make_concurrent(
        spec, [p for one in shapes_to_measure(spec) for p in points_of_shape(one, spec)]
    )


def plan_experiments(
    spec: ProbeSpec, experiments: Sequence[ExperimentRequest], launch: int = 0
) -> ProbePlan:
    """Return the plan of one launch that measures exactly these experiments.

    Raises InputError for shapes that do not fit the hosts and for unknown algorithms.
    """
    check_spec(spec)
    return _make_plan(spec, make_concurrent(spec, experiment_points(spec, experiments, launch)))


def _make_plan(spec: ProbeSpec, points: Iterable[ProbePoint]) -> ProbePlan:
    return ProbePlan(
        spec.library,
        spec.nodes * spec.ppn,
        os.cpu_count() or 1,
        spec.ci_half_width,
        spec.operators,
        tuple(points),
        min_repetitions=spec.min_repetitions,
        hosts=spec.hosts.names,
        ppn=0 if spec.hosts.is_local else spec.ppn,
        detect_gpus="devices" in spec.parts,
        thread_level=spec.thread_level,
    )


def _with_sentinels(points: Sequence[ProbePoint], spec: ProbeSpec) -> Iterator[ProbePoint]:
    """Yield the points with sentinels between them, but not among points measured concurrently."""
    subject, nodes, ppn = (NETWORK, 2, 1) if spec.nodes > 1 else (NODE, 1, 2)
    whole = sum(point.weight for point in points)
    number, spent = 0, 0.0
    for place, point in enumerate(points):
        inside = (
            place > 0
            and point.concurrency_group
            and points[place - 1].concurrency_group == point.concurrency_group
        )
        if spent >= number * whole / (SENTINEL_COUNT - 1) and not inside:
            yield _sentinel(subject, nodes, ppn, number)
            number += 1
        spent += point.weight
        yield point
    yield _sentinel(subject, nodes, ppn, number)


def _sentinel(subject: str, nodes: int, ppn: int, number: int) -> ProbePoint:
    candidates = (ProbeCandidate(params={"of": number}),)
    return ProbePoint(
        "sentinel",
        subject,
        2,
        SENTINEL_BYTES,
        candidates,
        10 * estimate_seconds(candidates),
        nodes=nodes,
        ppn=ppn,
        index=number,
    )
