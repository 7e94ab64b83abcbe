"""The inputs that jobs about a cluster load from the database."""

from __future__ import annotations

from tuner import db
from tuner.core.measurement import Measurements
from tuner.jobs.kinds import JobSpec
from tuner.topology import Topology
from tuner.topology.readers import topology_from_record


def load_inputs(engine: db.Engine, spec: JobSpec) -> tuple[Measurements, Topology | None]:
    """Return the measurements that `spec` names, and the topology of their cluster if it names one.

    Raises NotFoundError.
    """
    with db.read_session(engine) as session:
        measurements = db.load_measurements(session, spec["measurements"])
        named = spec.get("topology")
        record = None if named is None else db.load_topology(session, named).record
    return measurements, None if record is None else topology_from_record(record)
