"""The job that measures the computer of the service and makes a table."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import db
from tuner.base.errors import InputError
from tuner.base.statistics import midmean
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement
from tuner.core.table import RUNNER_OF_KIND, AlgorithmChoice
from tuner.jobs.kinds import JobReport, JobSpec, StoreResult
from tuner.jobs.tune import describe_table
from tuner.launch import Hosts, Launcher, find_interpreter
from tuner.launch.template import default_template
from tuner.probe.monitor import ProbeProgress
from tuner.probe.probe_spec import ProbeSpec
from tuner.probe.probed_machine import local_cluster
from tuner.select.experiment_design import Experiment, RegretBound
from tuner.workflows.active_tuning import Callbacks, StoppingRule, TuningResult, run_active_tuning

MAX_LOGGED_CALLS = 200  # of one entry of the log


def work(engine: db.Engine, spec: JobSpec, report: JobReport) -> StoreResult:
    """Measure this computer as `spec` says and make a table.

    `spec` has cluster (the computer that the job is for), library, ranks, budget (seconds),
    target_regret, collectives and sizes. The result of the job is the ids of measurements and
    calibration and the version of the table; what the run measured, how far the regret was bounded
    and what came next stands in the log. Raises InputError on another computer.
    """
    if spec["cluster"] != (here := local_cluster().name):
        raise InputError(
            f"this probe is for {spec['cluster']}, and the service that took it runs on {here}:"
            " services that measure need databases of their own"
        )
    _end_ranks_on_sigterm()
    report.progress(0.0, "looking for the MPI library")
    launcher = Launcher.find(
        spec["library"], find_interpreter(spec["library"]), default_template(spec["library"])
    )
    with tempfile.TemporaryDirectory(prefix="tuner-probe-") as folder:
        found = run_active_tuning(
            Path(folder) / "measurements.ndjson",
            _probe_spec(spec),
            launcher,
            StoppingRule(spec["budget"], spec["target_regret"]),
            callbacks=_callbacks(report),
        )
    report.log(describe_table(found.table), None)
    return lambda session: _store(session, found)


def _end_ranks_on_sigterm() -> None:
    """Have this process end like a program that was interrupted, so that its ranks end with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def _probe_spec(spec: JobSpec) -> ProbeSpec:
    return ProbeSpec(
        spec["library"],
        Hosts(("localhost",), spec["ranks"]),
        spec["ranks"],
        sizes=tuple(spec["sizes"]),
        collectives=tuple(map(Collective, spec["collectives"])),
        name=spec["cluster"],
    )


def _store(session: db.Session, found: TuningResult) -> dict[str, Any]:
    measured = db.store_measurements(session, found.measurements).id
    fitted = None
    if found.calibration is not None:
        fitted = db.store_calibration(session, found.calibration, measured).id
    version = db.store_table(session, found.table, measured, fitted).id
    return {"measurements": measured, "calibration": fitted, "table": version}


def _callbacks(report: JobReport) -> Callbacks:
    log = _RunLog(report)
    return Callbacks(
        log.show_progress,
        log.add_plan,
        log.add_measured,
        log.add_bound,
        lambda note: report.log(note, None),
    )


@dataclass
class _RunLog:
    """Writer of the reports of a tuning run to the log of the job."""

    report: JobReport
    logged_series: int = 0

    def show_progress(self, progress: ProbeProgress) -> None:
        self.report.progress(progress.fraction, progress.text)

    def add_plan(self, tasks: Sequence[Experiment]) -> None:
        self.report.log(
            f"next are {plural(len(tasks), 'call')}", {"next": _planned(tasks[:MAX_LOGGED_CALLS])}
        )

    def add_measured(self, series: Sequence[Measurement]) -> None:
        fresh = series[self.logged_series :]
        self.logged_series = len(series)
        calls = [one for one in fresh if one.kind in RUNNER_OF_KIND]
        text = f"measured {len(calls)} series of calls, {len(fresh) - len(calls)} of messages"
        self.report.log(text, {"measured": _measured(calls[:MAX_LOGGED_CALLS])})

    def add_bound(self, bound: RegretBound, spent: float) -> None:
        text = f"after {spent:.0f} s a table would have {bound}"
        values = {"seconds": spent, "expected": bound.expected, "upper": bound.upper}
        self.report.log(text, {"bound": values})


def _planned(tasks: Iterable[Experiment]) -> list[dict[str, Any]]:
    return [
        {
            "collective": str(task.point.collective),
            "nodes": task.point.nodes,
            "ppn": task.point.ppn,
            "nbytes": task.point.nbytes,
            "algorithms": [str(choice) for choice in task.choices],
        }
        for task in tasks
    ]


def _measured(series: Iterable[Measurement]) -> list[dict[str, Any]]:
    return [
        {
            "collective": one.subject,
            "nodes": one.nodes,
            "ppn": one.ppn,
            "nbytes": one.nbytes,
            "algorithm": str(AlgorithmChoice(one.algorithm, one.params, RUNNER_OF_KIND[one.kind])),
            "seconds": float(midmean(one.samples)),
        }
        for one in series
    ]
