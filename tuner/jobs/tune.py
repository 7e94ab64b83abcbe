"""The job that makes a tuning table from measurements and optionally publishes it."""

from __future__ import annotations

from typing import Any

from tuner import db
from tuner.base.processes import available_cores
from tuner.base.units import plural
from tuner.calibrate import calibrate
from tuner.core.table import TuningTable
from tuner.jobs.inputs import load_inputs
from tuner.jobs.kinds import JobReport, JobSpec, StoreResult, counting_callback
from tuner.select.build_table import make_table
from tuner.select.constraints import UNCONSTRAINED, Constraints, constraints_from_options


def _constraints(spec: JobSpec) -> Constraints:
    """Return the constraints of a job, which need not have any."""
    options = spec.get("constraints")
    return UNCONSTRAINED if options is None else constraints_from_options(options)


def describe_table(table: TuningTable) -> str:
    """Return a sentence on how many rules a table has, and how many change something."""
    departing = sum(not rule.choice.is_default for rule in table.rules)
    return f"a table of {plural(len(table.rules), 'rule')}, {departing} depart from the default"


def work(engine: db.Engine, spec: JobSpec, report: JobReport) -> StoreResult:
    """Make a table from the measurements that `spec` names.

    `spec` has the keys of `load_inputs`, optionally `constraints` (the options of the constraints),
    `publish` and, for a table to be published, `by` (who publishes it). The result of the job is
    the id of the calibration, the version of the table and whether it was published.
    """
    report.progress(0.0, "fitting")
    measurements, topology = load_inputs(engine, spec)
    calibration = calibrate(measurements, topology)
    _, table = make_table(
        measurements,
        calibration,
        counting_callback(report.progress, "simulating"),
        topology,
        constraints=_constraints(spec),
        cores=available_cores(),
    )

    report.log(describe_table(table), None)

    def store(session: db.Session) -> dict[str, Any]:
        source = spec["measurements"]
        fitted = db.store_calibration(session, calibration, source).id
        version = db.store_table(session, table, source, fitted).id
        if spec["publish"]:
            db.publish(session, version, by=spec["by"])
        return {"calibration": fitted, "table": version, "published": spec["publish"]}

    return store
