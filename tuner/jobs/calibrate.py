"""The job that fits a calibration to measurements."""

from __future__ import annotations

from typing import Any

from tuner import db
from tuner.calibrate import calibrate
from tuner.jobs.inputs import load_inputs
from tuner.jobs.kinds import JobReport, JobSpec, StoreResult


def work(engine: db.Engine, spec: JobSpec, report: JobReport) -> StoreResult:
    """Fit a calibration to the measurements and the topology that `spec` names.

    The result of the job is the id of the calibration.
    """
    report.progress(0.0, "fitting")
    calibration = calibrate(*load_inputs(engine, spec))

    def store(session: db.Session) -> dict[str, Any]:
        stored = db.store_calibration(session, calibration, spec["measurements"])
        return {"calibration": stored.id}

    return store
