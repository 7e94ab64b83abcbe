"""What requests name by id: topologies, calibrations and tables that the database holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tuner import db
from tuner.base.errors import InputError, shortened_repr
from tuner.core.calibration import Calibration
from tuner.core.table import TuningTable
from tuner.machines import Machine
from tuner.machines.loader import find_preset, load_machine, machine_from_record
from tuner.machines.yaml_machines import PRESET_PREFIX as PRESET
from tuner.topology import Topology

Found = TypeVar("Found")


def complete_record(topology: db.StoredTopology) -> Any:
    """A topology that says everything: a preset as it was uploaded, for it brings its costs, which
    no record of a topology has.
    """
    preset = find_preset(topology.source) if topology.format == "yaml" else None
    return topology.record if preset is None else preset


def resolve_topology(engine: db.Engine, name: str) -> Topology:
    """`preset:NAME`, or a topology by id; raises InputError."""
    with db.read_session(engine) as session:
        return DatabaseResolver(session).machine(name).topology


class DatabaseResolver:
    """What the body of a request names by id; each raises InputError for what is not there."""

    def __init__(self, session: db.Session) -> None:
        self._session = session

    def complete_record(self, name: str) -> Any:
        """A topology by id, as a study holds it."""
        return complete_record(self._load(db.load_topology, name))

    def machine(self, name: str) -> Machine:
        """`preset:NAME`, or a topology by id."""
        return (
            load_machine(name)
            if name.startswith(PRESET)
            else machine_from_record(self.complete_record(name))
        )

    def calibration(self, name: str) -> Calibration:
        """By id."""
        return self._load(db.load_calibration, name)

    def table(self, name: str) -> TuningTable:
        """By version."""
        return self._load(db.load_table, name)

    def _load(self, load: Callable[[db.Session, int], Found], name: str) -> Found:
        if not name.isascii() or not name.isdigit() or len(name) > 9:
            raise InputError(
                f"{shortened_repr(name)} is no id: what is stored here is named by its id"
            )
        try:
            return load(self._session, int(name))
        except db.NotFoundError as reason:  # not what the URL names, but what the body does
            raise InputError(str(reason)) from None
