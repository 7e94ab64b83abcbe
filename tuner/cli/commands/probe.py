"""Measure an MPI library: messages, reductions, and every Bcast and Allreduce algorithm it has, at
several sizes and communicator sizes, on this computer or on the hosts of a cluster.

`plan` shows what would be measured, in which order and for how long; `run`, or no word, measures;
`merge` puts the files of several runs together. Inside a job of Slurm, LSF or PBS, `plan` and `run`
take its hosts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, UsageError
from tuner.base.progress import StageCallback
from tuner.base.units import format_time, humanize, parse_duration, plural
from tuner.cli.options import argument_types, host_options
from tuner.cli.options.argument_types import count_option, file_option, measured_sizes_option
from tuner.cli.options.host_options import (
    add_library_options,
    add_thread_level_option,
    probe_spec_of,
    single_host_spec_of,
)
from tuner.cli.terminal.output import (
    finish_command,
    print_cautions,
    print_command,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.cli.terminal.progress import Display
from tuner.core.measurement import Measurements, cluster_title
from tuner.core.path_classes import HOST
from tuner.launch import Hosts, Launcher, LauncherTemplate, find_interpreter
from tuner.launch.template import default_template
from tuner.probe import multi_host
from tuner.probe.driver import default_budget, plan_single_host, probe
from tuner.probe.merge import merge_files
from tuner.probe.monitor import forward_progress
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.probe_spec import PARTS, ProbeSpec
from tuner.probe.single_host import DEFAULT_LAUNCHES, SingleHostSpec
from tuner.runtime.nvidia import has_driver
from tuner.workflows.time_limit import (
    BUSY_SLOWDOWN,
    busy_message,
    read_scheduling_times,
    slowdown_between,
)

EXAMPLES = """examples:
  tuner probe --out measurements.ndjson
  tuner probe --out measurements.ndjson --ranks 8 --budget 300s --sizes 1KiB,32KiB,1MiB
  tuner probe --library mpich --python .venv-mpich/bin/python --out mpich.ndjson
  tuner probe plan --hosts node1,node2,node3,node4 --ppn 2
  tuner probe run --hostfile hosts.txt --ppn 4 --out cluster.ndjson
  tuner probe run --measure devices --hosts gpu1,gpu2 --ppn 4 --out gpus.ndjson
  tuner probe run --launcher srun --shapes 8x1,8x4 --out cluster.ndjson
  tuner probe run --hosts a,b --launcher 'mpirun -np {n} --host {slots} {program}' --out ab.ndjson
  tuner probe merge monday.ndjson tuesday.ndjson --out both.ndjson

Every finished point is written at once. Interrupted, the same command resumes."""
ACTIONS = ("run", "plan", "merge")
CANNOT_CALIBRATE = (
    "a probe with messages, or with a larger --budget: without ping-pongs nothing can be calibrated"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, help="action (default: run, on this computer)"
    )
    file_option(parser, "files", "files to merge", nargs="*")
    file_option(parser, "--out", "NDJSON file to write")
    add_library_options(parser)
    add_thread_level_option(parser)
    count_option(parser, "--ranks", "number of ranks (default: the cores, at least 4; mpich: 2)")
    parser.add_argument(
        "--budget",
        type=parse_duration,
        help="measuring time, such as 90s (default: 90s, mpich: 30s, several hosts: 300s)",
    )
    measured_sizes_option(parser)
    count_option(
        parser,
        "--launches",
        "number of launches on this computer; with two, only very stable gains are significant"
        f" (default: {DEFAULT_LAUNCHES}; on several hosts: 1)",
        default=DEFAULT_LAUNCHES,
    )
    parser.add_argument(
        "--ci-width",
        type=float,
        default=0.03,
        help="relative half-width of a median's 95 %% interval that suffices (default: 0.03)",
    )
    parser.add_argument(
        "--measure",
        type=argument_types.name_list,
        default=PARTS,
        help=f"parts to measure (default: {','.join(PARTS)}; on this computer no shared and sweep)",
    )
    host_options.add_measurement_options(parser.add_argument_group("several hosts"))
    finish_command(parser, run, resumes=True)


@dataclass(frozen=True)
class AskedProbe:
    """A probe of several hosts or of this computer.

    python      interpreter that was named
    launcher    template that was named
    budget      seconds of measuring
    """

    spec: ProbeSpec | SingleHostSpec
    python: Path | None
    launcher: LauncherTemplate | None
    budget: float

    def plan(self) -> ProbePlan:
        """Return the plan; raise InputError for what cannot be measured."""
        if isinstance(self.spec, ProbeSpec):
            return multi_host.plan_cluster(self.spec)
        return plan_single_host(self.spec)

    def measure(self, out: Path, report: StageCallback) -> Measurements:
        """Measure into a file, and return all that is in it."""
        spec, budget, tell = self.spec, self.budget, forward_progress(report)
        python = find_interpreter(spec.library, self.python)
        if isinstance(spec, ProbeSpec):
            template = self.launcher or default_template(spec.library)
            launcher = Launcher.find(spec.library, python, template)
            return multi_host.probe_cluster(out, spec, launcher, budget=budget, on_progress=tell)
        if self.launcher is not None:
            raise UsageError("--launcher needs to know the hosts: give --hosts or --hostfile too")
        return probe(out, spec, python=python, budget=budget, on_progress=tell)


def run(options: argparse.Namespace) -> None:
    """Plan a probe, run one, or merge files."""
    if options.action != "merge" and options.files:
        raise UsageError(f"{options.files[0]}: only `tuner probe merge` reads files")
    if options.action != "plan" and options.out is None:
        raise UsageError("say where the measurements go: --out FILE")
    if options.action == "merge":
        measurements = merge_files(options.files, options.out)
    else:
        # The hosts of the job only count with the word `run` or `plan`.
        there = (
            host_options.resolve_hosts(options)
            if options.action
            else host_options.given_hosts(options)
        )
        spec = single_host_spec_of(options) if there.is_local else probe_spec_of(options, there)
        usual = default_budget(spec.library) if there.is_local else multi_host.DEFAULT_BUDGET_S
        budget = usual if options.budget is None else options.budget
        asked = AskedProbe(spec, options.python, options.launcher, budget)
        if options.action == "plan":
            record, all_listed = _plan_record(asked.plan(), budget), options.measure != PARTS
            print_result(options.json, record, lambda: _print_plan(record, all_listed))
            return
        measurements = _measure(asked, options.out, there)
    record = summarise_probe(measurements) | {"out": str(options.out)}
    able = any(one.kind == "pingpong" for one in measurements.series)
    calibrating = _calibration_command(options.out, options.topology) if able else ""
    print_result(options.json, record, lambda: _print(record, calibrating))


def _measure(asked: AskedProbe, out: Path, there: Hosts) -> Measurements:
    display = Display()
    where = "" if there.is_local else f" on {plural(len(there.names), 'host')}"
    _say_beforehand(asked.plan(), out, display)
    with display.stage(f"probing {asked.spec.library}{where}") as report:
        return asked.measure(out, report)


def _say_beforehand(plan: ProbePlan, out: Path, display: Display) -> None:
    """Report what an earlier run left, and whether other programs keep this computer busy."""
    if not plan.hosts and not has_driver():
        plan = _of_host_memory(plan)
    earlier = str(multi_host.earlier_run(out, plan))
    if earlier:
        display.note(earlier)
    if (slow := slowdown_between(read_scheduling_times())) >= BUSY_SLOWDOWN:
        display.note(busy_message(slow))


def _plan_record(plan: ProbePlan, budget: float) -> dict[str, Any]:
    """Return a plan as JSON data; warn of points that this computer cannot measure."""
    fingerprint = plan.fingerprint  # of the whole plan, as in the file
    if not plan.hosts and not has_driver():
        plan = _without_gpus(plan)
    seconds = budget / plan.total_weight
    rows = [
        {
            "point": str(point),
            "candidates": len(point.candidates),
            "launch": point.launch,
            "memory": point.memory,
            "first_host": plan.hosts[point.first_host] if plan.hosts else "",
            "at_once": point.concurrency_group,
            "seconds": round(point.weight * seconds, 4),
        }
        for point in plan.points
    ]
    return {
        "hosts": list(plan.hosts),
        "ppn": plan.ppn or plan.ranks,
        "launches": len({point.launch for point in plan.points}),
        "seconds": round(plan.total_weight * seconds, 1),
        "repetitions": plan.min_repetitions,
        "fingerprint": fingerprint,
        "points": rows,
    }


def _without_gpus(plan: ProbePlan) -> ProbePlan:
    """Return the plan without its GPU points, with a warning; raise InputError if it is empty."""
    own = _of_host_memory(plan)
    if not own.points:
        raise InputError("no NVIDIA driver on this computer: of GPUs nothing can be measured")
    if len(own.points) < len(plan.points):
        warn(
            f"no NVIDIA driver on this computer: {len(plan.points) - len(own.points)} points of"
            " GPUs are left out, their time goes to the others"
        )
    return own


def _of_host_memory(plan: ProbePlan) -> ProbePlan:
    return replace(plan, points=tuple(q for q in plan.points if q.memory == HOST))


def _print_plan(record: Mapping[str, Any], all_listed: bool) -> None:
    """Print the points in host memory, then those that only GPUs have, in the order of measuring.

    all_listed      whether to list the points of GPUs, too, since the user chose the parts
    """
    own = [row for row in record["points"] if row["memory"] == HOST]
    of_gpus = [row for row in record["points"] if row["memory"] != HOST]
    launches = "1 launch" if record["launches"] == 1 else f"{record['launches']} launches"
    _print_points(
        f"{len(own)} points, {launches}, {record['seconds']:g}s of measuring and at least"
        f" {record['repetitions']} repetitions of every candidate",
        own,
    )
    if not of_gpus:
        return
    more = f"{len(of_gpus)} more where hosts have GPUs; elsewhere their time goes to those above"
    if all_listed:
        _print_points(more, of_gpus, len(own) + 1)
    else:
        print_text(f"{more} (`--measure devices` lists them)")


def _print_points(title: str, points: Sequence[Mapping[str, Any]], first: int = 1) -> None:
    columns = ("", "what", "candidates", "first host", "at once with", "time")
    rows = [
        (
            str(number),
            humanize(row["point"]),
            str(row["candidates"]),
            row["first_host"],
            f"group {row['at_once']}" if row["at_once"] else "",
            format_time(row["seconds"]),
        )
        for number, row in enumerate(points, start=first)
    ]
    print_table(
        title,
        columns,
        rows,
        right=("", "candidates", "time"),
        droppable=("at once with", ""),
        wrappable=("what", "first host"),
    )


def _calibration_command(out: Path, topology: Path | None) -> str:
    known = f" --topology {topology}" if topology else ""
    return f"tuner calibrate {out}{known} --out calibration.json"


def summarise_probe(measurements: Measurements) -> dict[str, Any]:
    """Return the result of a probe in numbers."""
    kinds = [series.kind for series in measurements.series]
    return {
        "cluster": measurements.cluster.name,
        "hosts": measurements.cluster.nodes,
        "library": measurements.library,
        "series": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "samples": sum(len(series.samples) for series in measurements.series),
        "excluded": measurements.provenance.get("excluded", []),
        "notes": measurements.provenance.get("notes", []),
    }


def _print(record: Mapping[str, Any], calibrating: str) -> None:
    """Print a summary, and the command that calibrates, if there is one."""
    where = cluster_title(record["cluster"], record["hosts"])
    print_text(f"{record['library']} on {where}: {record['samples']} samples")
    for line in record["excluded"]:
        print_text(f"left out: {humanize(line)}")
    print_cautions(map(humanize, record["notes"]))
    if calibrating:
        print_command("next:", calibrating)
    else:
        print_text(f"next: {CANNOT_CALIBRATE}")
