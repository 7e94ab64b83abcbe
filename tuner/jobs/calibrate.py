"""Fit a calibration to measurements."""

from __future__ import annotations

from typing import Any

from tuner import db
from tuner.calibrate import calibrate
from tuner.jobs.inputs import measured
from tuner.jobs.kinds import Spec, Store, Tell


def work(engine: db.Engine, spec: Spec, tell: Tell) -> Store:
    """`spec` names the measurements, and the topology; the result the calibration."""
    tell(0.0, "fitting")
    calibration = calibrate(*measured(engine, spec))

    def store(session: db.Session) -> dict[str, Any]:
        stored = db.store_calibration(session, calibration, spec["measurements"])
        return {"calibration": stored.id}

    return store
