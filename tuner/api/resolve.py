"""Resolution of the topologies, calibrations and tables that requests name by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tuner import db
from tuner.base.errors import InputError, shortened_repr
from tuner.core.calibration import Calibration
from tuner.core.table import TuningTable
from tuner.machines import Machine
from tuner.machines.loader import find_own_record, load_machine, machine_from_record
from tuner.machines.yaml_machines import PRESET_PREFIX as PRESET
from tuner.topology import Topology

Found = TypeVar("Found")


def complete_record(topology: db.TopologyFile) -> Any:
    """Return the record of a topology with its costs.

    For YAML that is the uploaded text's, because the record of a topology has no costs and does not
    tell latencies of zero from those that nobody has stated.
    """
    own = find_own_record(topology.source) if topology.format == "yaml" else None
    return topology.record if own is None else own


def resolve_topology(engine: db.Engine, name: str) -> Topology:
    """Return the topology `preset:NAME` or that of an id; raise InputError if there is none."""
    with db.read_session(engine) as session:
        return DatabaseResolver(session).machine(name).topology


class DatabaseResolver:
    """A resolver of ids in request bodies; each method raises InputError for an unknown id."""

    def __init__(self, session: db.Session) -> None:
        self._session = session

    def complete_record(self, name: str) -> Any:
        """Return the complete record of the topology of an id, for a study."""
        return complete_record(self._load(db.load_topology, name))

    def machine(self, name: str) -> Machine:
        """Return the machine `preset:NAME` or that of the topology of an id."""
        return (
            load_machine(name)
            if name.startswith(PRESET)
            else machine_from_record(self.complete_record(name))
        )

    def calibration(self, name: str) -> Calibration:
        return self._load(db.load_calibration, name)

    def table(self, name: str) -> TuningTable:
        return self._load(db.load_table, name)

    def _load(self, load: Callable[[db.Session, int], Found], name: str) -> Found:
        if not name.isascii() or not name.isdigit() or len(name) > 9:
            raise InputError(
                f"{shortened_repr(name)} is not an id: what is stored here is named by its id"
            )
        try:
            return load(self._session, int(name))
        except db.NotFoundError as reason:  # not 404, as the id is not in the URL
            raise InputError(str(reason)) from None


def with_topology_record(spec: Any, references: DatabaseResolver) -> Any:
    """Return a study with the record of a topology that it names by id.

    `study_record` would leave out the costs of a preset.
    """
    topology = spec.get("topology") if isinstance(spec, dict) else None
    if not isinstance(topology, str) or topology.startswith(PRESET):
        return spec
    return {**spec, "topology": references.complete_record(topology)}


def with_stored_topology(engine: db.Engine, spec: dict[str, Any]) -> Any:
    """Return a study or workload with the record of its topology instead of an id."""
    if spec["topology"].startswith(PRESET):
        return spec
    with db.read_session(engine) as session:
        return with_topology_record(spec, DatabaseResolver(session))
