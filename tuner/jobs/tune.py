"""Make a table of measurements, and publish it if that was asked for."""

from __future__ import annotations

from typing import Any

from tuner import db
from tuner.calibrate import calibrate
from tuner.jobs.inputs import measured
from tuner.jobs.kinds import Spec, Store, Tell, counted
from tuner.select.build_table import make_table
from tuner.select.constraints import ANYTHING, constraints_from
from tuner.sim.process_pool import usable


def work(engine: db.Engine, spec: Spec, tell: Tell) -> Store:
    """`spec` names the measurements, the topology, the `wishes` if there are any, `publish` and
    `by` whom; the result calibration and table."""
    tell(0.0, "fitting")
    measurements, topology = measured(engine, spec)
    calibration = calibrate(measurements, topology)
    wishes = spec.get("wishes")  # jobs of earlier versions have none
    constraints = ANYTHING if wishes is None else constraints_from(wishes)
    _, table = make_table(
        measurements,
        calibration,
        counted(tell, "simulating"),
        topology,
        constraints=constraints,
        cores=usable(),
    )

    def store(session: db.Session) -> dict[str, Any]:
        source = spec["measurements"]
        fitted = db.store_calibration(session, calibration, source).id
        version = db.store_table(session, table, source, fitted).id
        if spec["publish"]:
            db.publish(session, version, by=spec["by"])
        return {"calibration": fitted, "table": version, "published": spec["publish"]}

    return store
