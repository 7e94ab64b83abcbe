"""Run a probe from outside the ranks: plan, launch, monitor, resume and finish the file."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import mpi_libraries
from tuner.base.errors import InputError, LaunchTimeoutError, ProbeError
from tuner.base.processes import available_cores
from tuner.base.thread_levels import THREAD_LEVELS
from tuner.core.measurement import Cluster, Measurements, read_measurements
from tuner.launch import Hosts, Launcher
from tuner.launch.rank_program import rank_arguments
from tuner.mpi_libraries.profiles import profile_of
from tuner.probe.deadline import format_deadline
from tuner.probe.heartbeat import HEARTBEAT_INTERVAL_S
from tuner.probe.monitor import STARTUP_TIMEOUT_S, ProbeMonitor, ProbeProgress
from tuner.probe.probe_file import BEGAN_KEY, ProbeFile
from tuner.probe.probe_plan import ProbePlan, write_plan
from tuner.probe.probe_spec import check_operators, check_parts, check_sizes
from tuner.probe.probed_machine import collect_provenance, local_cluster
from tuner.probe.single_host import DEFAULT_PARTS, SingleHostSpec, make_plan

__all__ = ["ProbeProgress", "RunLimits", "SingleHostSpec", "plan_single_host", "probe", "run_plan"]

SINGLE_HOST_PARTS = {*DEFAULT_PARTS, "devices"}  # parts that one computer has
DEFAULT_BUDGET_S = 90.0  # seconds for Open MPI
RANK_MODULE = "tuner.rank_programs.probe"
DEADLINE_GRACE_S = 1.0  # seconds after the deadline until the ranks are terminated
STUCK_TIMEOUT_S = 180.0  # seconds beyond the time limit after which the ranks must be stuck


@dataclass(frozen=True)
class RunLimits:
    """The limits of one run of a plan.

    budget      seconds, launches included; points that do not fit are left out
    deadline    latest end of the ranks, as time.monotonic() shows it; ranks that are not done then
                are terminated
    retry_skipped   what the budget counts, as in `ProbeFile`
    first_launch    the first launch to carry out; points that earlier ones lack are left out
    """

    budget: float
    deadline: float = math.inf
    retry_skipped: bool | None = None
    first_launch: int = 0


def probe(
    out: Path,
    spec: SingleHostSpec,
    *,
    python: Path = Path(sys.executable),
    budget: float | None = None,
    on_progress: Callable[[ProbeProgress], None] = lambda _: None,
) -> Measurements:
    """Measure this computer and write `out`; resume what `out` already holds.

    budget      seconds of measuring; default 90 for Open MPI, 30 for MPICH
    on_progress     called with the progress

    Raises InputError for an unusable specification, for an `out` of another probe, and where the
    environment decides what the library runs. Raises ProbeError when the ranks cannot be started or
    fail; what was measured until then stays in `out`.
    """
    library = spec.library
    launcher = Launcher.find(library, python)
    capabilities = launcher.capabilities
    plan = plan_single_host(spec).drop_unsupported(capabilities)
    mpi_libraries.require_no_override(mpi_libraries.library_module(library).OVERRIDING_PATTERN)
    about = {
        **collect_provenance(launcher.version(), python),
        "notes": mpi_libraries.describe_missing_algorithms(launcher.version(), capabilities),
    }
    seconds = default_budget(library) if budget is None else budget
    return run_plan(plan, launcher, out, local_cluster(), about, RunLimits(seconds), on_progress)


def default_budget(library: str) -> float:
    """Return the seconds of measuring in a probe of this computer."""
    return DEFAULT_BUDGET_S / profile_of(library).budget_divisor


def default_ranks(library: str) -> int:
    """Return the number of ranks that are measured on this computer unless another is named."""
    return max(profile_of(library).min_probe_ranks, available_cores())


def run_plan(
    plan: ProbePlan,
    launcher: Launcher,
    out: Path,
    cluster: Cluster,
    provenance: Mapping[str, Any],
    limits: RunLimits,
    on_progress: Callable[[ProbeProgress], None] = lambda _: None,
) -> Measurements:
    """Measure what `out` lacks of `plan` within `limits`, and finish `out`.

    provenance  what is known beforehand; what the ranks know is added to it. Its `plan` identifies
                the file if that is not the plan's own fingerprint.

    Raises as `probe` does.
    """
    version = launcher.version()
    known = {
        "plan": plan.fingerprint,
        **provenance,
        "ranks": plan.ranks,
        "target": plan.ci_half_width,
        "operators": plan.operators,
        "thread_level": plan.thread_level,
        "budget": limits.budget,
        "excluded": [],
        BEGAN_KEY: time.time(),
    }
    file = ProbeFile(out, cluster, version, plan, known, limits.retry_skipped)
    left = file.resume()
    if not file.is_finished:
        kept = len(plan.points) - len(left.points)
        own = left.after_launch(limits.first_launch - 1)
        watch = ProbeMonitor(own, file.remaining_seconds, on_progress, file.spent_seconds, kept)
        for number in sorted({point.launch for point in plan.points}):
            watch.later_plan = left.after_launch(number)
            over = limits.deadline if number >= limits.first_launch else -math.inf
            left = _measure_launch(launcher, file, left, number, watch, over)
        file.finish(watch)
    return read_measurements(out)


def _measure_launch(
    launcher: Launcher,
    file: ProbeFile,
    left: ProbePlan,
    number: int,
    monitor: ProbeMonitor,
    deadline: float,
) -> ProbePlan:
    """Start the ranks until they have measured one launch's part of `left`, or until `deadline`.

    Returns what is then left of all launches.
    """
    while (part := left.for_launch(number)).points and not monitor.skip_if_out_of_time(part):
        if time.monotonic() > deadline:
            monitor.skipped_keys += [list(point.key) for point in part.points]
            break
        failure = _launch(launcher, part, file.path, monitor, deadline)
        if failure is None:
            break
        late = isinstance(failure, _DeadlineReachedError)
        died = not late and not _is_final(failure, file.plan) and monitor.note_death(file.plan)
        left = file.resume().drop_candidates(monitor.fatal)
        if late or died:
            continue
        if len(left.for_launch(number).points) == len(part.points) or _is_final(failure, file.plan):
            raise _add_resume_hint(failure, file.plan, left, file.path)
    return left


class _DeadlineReachedError(ProbeError):
    """Raised for ranks that were terminated because their time was over."""


FATAL_TEXTS = ("cannot be written", "another run")  # of failures that starting again cannot help
# Of those that starting again is unlikely to help on many hosts.
HOST_LOST_TEXTS = ("was lost", "fell silent", "stopped answering")


def _is_final(failure: ProbeError, plan: ProbePlan) -> bool:
    """Return whether starting the ranks again would be useless."""
    words = (*FATAL_TEXTS, *HOST_LOST_TEXTS) if plan.hosts else FATAL_TEXTS
    return any(word in str(failure) for word in words)


def _add_resume_hint(
    failure: ProbeError, plan: ProbePlan, left: ProbePlan, out: Path
) -> ProbeError:
    kept = len(plan.points) - len(left.points)
    if not plan.hosts:
        return failure
    return ProbeError(
        f"{failure}; {kept} of {len(plan.points)} points are kept in {out}: the same command goes"
        " on with the rest; other hosts need another file"
    )


def plan_single_host(spec: SingleHostSpec) -> ProbePlan:
    """Return the plan of a probe of this computer; raise InputError where it cannot be measured."""
    if spec.thread_level not in THREAD_LEVELS:
        raise InputError(
            f"expected a thread level, got {spec.thread_level!r}: choose from"
            f" {', '.join(THREAD_LEVELS)}"
        )
    cores = available_cores()
    ranks = default_ranks(spec.library) if spec.ranks is None else spec.ranks
    if ranks < 2:
        raise InputError("one rank exchanges no messages: ask for at least 2")
    if spec.launches < 1:
        raise InputError(f"{spec.launches} launches measure nothing: ask for at least 1")
    check_operators(spec.operators)
    check_sizes(spec.sizes)
    check_parts(spec.parts)
    if not {*spec.parts} & SINGLE_HOST_PARTS:
        raise InputError(
            f"{', '.join(spec.parts)}: of this computer there is"
            f" {', '.join(sorted(SINGLE_HOST_PARTS))}"
        )
    return make_plan(spec, ranks, cores)


def _launch(
    launcher: Launcher, plan: ProbePlan, out: Path, monitor: ProbeMonitor, deadline: float
) -> ProbeError | None:
    """Start the ranks once to measure all of `plan`; return the error if they failed."""
    monitor.start(plan)
    hosts = Hosts(plan.hosts, plan.ppn)
    # Other hosts see the directory of the results, but not this computer's /tmp.
    shelf = None if hosts.is_local else out.resolve().parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tuner-probe-", dir=shelf) as place:
            written = Path(place, "plan.json")
            write_plan(plan, written)
            _run_ranks(launcher, plan, hosts, [str(written), str(out.resolve())], monitor, deadline)
    except ProbeError as reason:
        if isinstance(reason, LaunchTimeoutError) and time.monotonic() >= deadline:
            return _DeadlineReachedError(str(reason))
        # Ranks that need a lost host may give up before it has been silent for long.
        lost = monitor.describe_unresponsive_hosts(3 * HEARTBEAT_INTERVAL_S)
        return ProbeError(f"{lost or reason} (while measuring {monitor.current_point})")
    except OSError as reason:
        where = shelf or "the directory of temporary files"
        raise InputError(
            f"{where}: what the ranks are to measure cannot be written: {reason.strerror}; make"
            " room and run the same command again"
        ) from None
    return None


def _startup_settings(launcher: Launcher) -> Mapping[str, str]:
    """Return the settings that the library only reads at its start, for algorithms to be forced."""
    settings: Mapping[str, str] = mpi_libraries.library_module(launcher.library).startup_settings(
        launcher.capabilities
    )
    return settings


def _run_ranks(
    launcher: Launcher,
    plan: ProbePlan,
    hosts: Hosts,
    files: Sequence[str],
    monitor: ProbeMonitor,
    deadline: float,
) -> None:
    """Start the ranks and wait for them; raise ProbeError when they fail."""
    told, timeout = [format_deadline(deadline)], deadline + DEADLINE_GRACE_S - time.monotonic()
    if deadline == math.inf:
        told, timeout = [], math.inf if plan.hosts else monitor.time_limit + STUCK_TIMEOUT_S
    run = launcher.run(
        plan.ranks,
        [
            *rank_arguments(RANK_MODULE, plan.thread_level),
            *told,
            *files,
            str(monitor.budget),
            str(monitor.time_limit),
        ],
        hosts=hosts,
        ppn=plan.ppn or None,
        settings={**profile_of(plan.library).probe_settings, **_startup_settings(launcher)},
        on_line=monitor.handle_line,
        silence_timeout=STARTUP_TIMEOUT_S if plan.hosts else None,
        timeout=timeout if timeout < math.inf else None,
    )
    # Some launchers lose a host and still exit with success.
    if monitor.finished_points < len(plan.points):
        raise ProbeError(launcher.explain_failure(run, plan.ranks, hosts))
