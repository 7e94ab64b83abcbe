"""A probe from the outside: plan, launch, watch, resume, finish the file."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import mpi_libraries
from tuner.base.errors import InputError, ProbeError, UnendedError
from tuner.core.measurement import Cluster, Measurements, read_measurements
from tuner.launch import Hosts, Launcher, available_cores
from tuner.launch.rank_program import SINGLE, THREAD_LEVELS, rank_program
from tuner.probe.deadline import moment
from tuner.probe.heartbeat import EVERY
from tuner.probe.machine import local_cluster, provenance
from tuner.probe.monitor import STARTING, Progress, Watch
from tuner.probe.probe_file import BEGAN, ProbeFile
from tuner.probe.probe_plan import Plan, write_plan
from tuner.probe.probe_spec import check_parts
from tuner.probe.single_host import COLLECTIVE_SIZES, make_plan

__all__ = ["LAUNCHES", "Progress", "carry_out", "plan_here", "probe"]

FEWEST_RANKS = 4  # of Open MPI: fewer leave the algorithms nothing to differ in
LAUNCHES = 6  # of the ranks: their cores are settled anew each time, and times with them
USUAL = ("messages", "collectives")  # parts
HERE = {*USUAL, "devices"}  # those that there are of one computer
BUDGETS = {"openmpi": 90.0, "mpich": 30.0}  # seconds
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "openmpi": {},
    "mpich": {"MPIR_CVAR_COLLECTIVE_FALLBACK": "error"},  # else another algorithm runs silently
}
RANKS = "tuner.rank_programs.probe"
OVERTIME = 1.0  # seconds that a call may last beyond the end before the ranks are ended
PATIENCE = 180.0  # seconds beyond three times the budget after which the ranks must be stuck


def probe(
    out: Path,
    *,
    library: str = "openmpi",
    python: Path = Path(sys.executable),
    ranks: int | None = None,
    budget: float | None = None,
    sizes: Sequence[int] | None = None,
    target: float = 0.03,
    launches: int = LAUNCHES,
    operators: str = "commutative",
    parts: Sequence[str] = USUAL,
    thread_level: str = SINGLE,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Measurements:
    """Measure this computer with `library` and write `out`; resume what `out` already holds.

    ranks       default: the cores, at least 4 for Open MPI (oversubscribed), at least 2 for MPICH
    budget      seconds of measuring; default 90 for Open MPI, 30 for MPICH
    sizes       bytes of the collectives' buffers, multiples of 4
    target      relative half-width of the 95 % interval of a median at which a point is done
    launches    how often the ranks are started, for every number of them; each start measures every
                algorithm
    operators   `commutative`, or `any` to time only algorithms that keep the operands' order
    parts       `messages`, `collectives` and `devices`; others are of several hosts
    thread_level    of MPI_Init_thread: that of the programs which the table is for

    Raises InputError for arguments that cannot be used, for an `out` of another probe and where the
    environment decides what the library runs; ProbeError when the ranks cannot be started or fail;
    what was measured until then stays in `out`.
    """
    launcher = Launcher.find(library, python)
    capabilities = launcher.capabilities
    plan = plan_here(library, ranks, sizes, target, launches, operators, parts, thread_level)
    plan = plan.limited(capabilities)
    mpi_libraries.require_unset(mpi_libraries.named(library).DECIDING)
    about = {
        **provenance(launcher.version(), python),
        "notes": mpi_libraries.shortcomings(launcher.version(), capabilities),
    }
    seconds = BUDGETS[library] if budget is None else budget
    return carry_out(plan, launcher, out, local_cluster(), about, seconds, on_progress)


def carry_out(
    plan: Plan,
    launcher: Launcher,
    out: Path,
    cluster: Cluster,
    about: Mapping[str, Any],
    budget: float,
    on_progress: Callable[[Progress], None] = lambda _: None,
    end: float = math.inf,
    anew: bool | None = None,
    only: int | None = None,
) -> Measurements:
    """Measure what `out` lacks of `plan` in `budget` seconds, and finish `out`.

    about       provenance known beforehand; what the ranks know is added to it. `plan` there is
                what identifies the file if that is not the plan's own fingerprint.
    budget      seconds, launches included; points that do not fit are left out
    end         when ranks on several hosts are done at the latest, as time.monotonic shows it;
                those that are not are ended
    anew        what the budget counts, as `ProbeFile` says
    only        the launch to carry out; what others lack is left out. None: all

    Raises as `probe` does.
    """
    version = launcher.version()
    known = {
        "plan": plan.fingerprint,
        **about,
        "ranks": plan.ranks,
        "target": plan.target,
        "operators": plan.operators,
        "thread_level": plan.thread_level,
        "budget": budget,
        "excluded": [],
        BEGAN: time.time(),
    }
    file = ProbeFile(out, cluster, version, plan, known, anew)
    left = file.resume()
    if not file.ended:
        kept = len(plan.points) - len(left.points)
        watch = Watch(left, file.seconds, on_progress, file.spent, kept)
        for number in sorted({point.launch for point in plan.points}):
            watch.later = left.after_launch(number)
            over = end if only in (None, number) else -math.inf
            left = _measure_launch(launcher, file, left, number, watch, over)
        file.finish(watch)
    return read_measurements(out)


def _measure_launch(
    launcher: Launcher, file: ProbeFile, left: Plan, number: int, watch: Watch, end: float
) -> Plan:
    """Start the ranks until they have measured what is `left` of one launch, or until `end`; return
    what is left then of all launches.
    """
    while (part := left.of_launch(number)).points and not watch.no_time_for(part):
        if time.monotonic() > end:
            watch.left_out += [list(point.key) for point in part.points]
            break
        failure = _launch(launcher, part, file.path, watch, end)
        if failure is None:
            break
        left = file.resume()
        if isinstance(failure, _OutOfTimeError):
            continue
        if len(left.of_launch(number).points) == len(part.points) or _final(failure, file.plan):
            raise _told(failure, file.plan, left, file.path)
    return left


class _OutOfTimeError(ProbeError):
    """Ranks that were ended because their time was over."""


FINAL = ("cannot be written", "another run")  # of failures that another start cannot help
LOST = ("was lost", "fell silent", "stopped answering")  # and that it is unlikely to on many hosts


def _final(failure: ProbeError, plan: Plan) -> bool:
    """Whether starting the ranks again would cost time and bring nothing."""
    words = (*FINAL, *LOST) if plan.hosts else FINAL
    return any(word in str(failure) for word in words)


def _told(failure: ProbeError, plan: Plan, left: Plan, out: Path) -> ProbeError:
    kept = len(plan.points) - len(left.points)
    if not plan.hosts:
        return failure
    return ProbeError(
        f"{failure}; {kept} of {len(plan.points)} points are kept in {out}: the same command goes"
        " on with the rest; other hosts need another file"
    )


def plan_here(
    library: str,
    ranks: int | None,
    sizes: Sequence[int] | None,
    target: float,
    launches: int,
    operators: str,
    parts: Sequence[str] = USUAL,
    thread_level: str = SINGLE,
) -> Plan:
    """What a probe of this computer measures; raises InputError for what cannot be measured."""
    if thread_level not in THREAD_LEVELS:
        raise InputError(
            f"expected a thread level, got {thread_level!r}: choose from {', '.join(THREAD_LEVELS)}"
        )
    cores = available_cores()
    usual = max(FEWEST_RANKS, cores) if library == "openmpi" else max(2, cores)
    wanted = usual if ranks is None else ranks
    if wanted < 2:
        raise InputError("one rank has nobody to talk to: ask for at least 2")
    if launches < 1:
        raise InputError(f"{launches} launches measure nothing: ask for at least 1")
    if operators not in ("any", "commutative"):
        raise InputError(f"operators are `any` or `commutative`, not {operators!r}")
    ladder = COLLECTIVE_SIZES if sizes is None else tuple(sizes)
    odd = [size for size in ladder if size < 4 or size % 4]
    if odd or not ladder:
        raise InputError(f"sizes are positive multiples of 4 bytes, not {odd or 'none'}")
    check_parts(parts)
    if not {*parts} & HERE:
        raise InputError(f"{', '.join(parts)}: of this computer there is {', '.join(sorted(HERE))}")
    return make_plan(
        library,
        wanted,
        cores,
        target,
        operators,
        launches,
        ladder,
        mpi_libraries.named(library).candidates,
        mpi_libraries.named(library).settings,
        parts,
        thread_level,
    )


def _launch(
    launcher: Launcher, plan: Plan, out: Path, watch: Watch, end: float
) -> ProbeError | None:
    """Start the ranks once, to measure all of `plan`; why they failed, if they did."""
    watch.start(plan)
    hosts = Hosts(plan.hosts, plan.ppn)
    # Other hosts see the directory of the results, not this computer's /tmp.
    shelf = None if hosts.local else out.resolve().parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tuner-probe-", dir=shelf) as place:
            written = Path(place, "plan.json")
            write_plan(plan, written)
            _started(launcher, plan, hosts, [str(written), str(out.resolve())], watch, end)
    except ProbeError as reason:
        if isinstance(reason, UnendedError) and time.monotonic() >= end:
            return _OutOfTimeError(str(reason))
        # Ranks that need a lost host may give up before it has been silent for long.
        lost = watch.silent(3 * EVERY)
        return ProbeError(f"{lost or reason} (while measuring {watch.current})")
    except OSError as reason:
        where = shelf or "the directory of temporary files"
        raise InputError(
            f"{where}: what the ranks are to measure cannot be written: {reason.strerror}; make"
            " room and run the same command again"
        ) from None
    return None


def _at_start(launcher: Launcher) -> Mapping[str, str]:
    """Return what the library takes from the environment alone, for algorithms to be forced."""
    settings: Mapping[str, str] = mpi_libraries.named(launcher.library).at_start(
        launcher.capabilities
    )
    return settings


def _started(
    launcher: Launcher, plan: Plan, hosts: Hosts, files: Sequence[str], watch: Watch, end: float
) -> None:
    """Start the ranks and see them through; raises ProbeError when they fail."""
    told, timeout = [moment(end)], end + OVERTIME - time.monotonic()
    if end == math.inf:
        told, timeout = [], math.inf if plan.hosts else watch.limit + PATIENCE
    run = launcher.run(
        plan.ranks,
        [
            *rank_program(RANKS, plan.thread_level),
            *told,
            *files,
            str(watch.budget),
            str(watch.limit),
        ],
        hosts=hosts,
        ppn=plan.ppn or None,
        settings={**SETTINGS[plan.library], **_at_start(launcher)},
        on_line=watch.line,
        patience=STARTING if plan.hosts else None,
        timeout=timeout if timeout < math.inf else None,
    )
    # Launchers have been seen to lose a host and to end as if all were well.
    if watch.finished < len(plan.points):
        raise ProbeError(launcher.explained(run, plan.ranks, hosts))
