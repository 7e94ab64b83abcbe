"""A checked study: its machines, the grid of its points, and the algorithms that each may run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration, calibration_record
from tuner.core.collective import Collective
from tuner.core.table import TuningTable, table_record
from tuner.machines import Machine
from tuner.topology import CUDA, Topology
from tuner.whatif.axes import AXES, MACHINE_AXIS, AxisValue, GridPoint, apply_axes
from tuner.whatif.prices import Price, prices_record
from tuner.whatif.values import gpus_per_node

DOMAIN_AXIS = "nvlink_domain"
OFFERING_AXES = (MACHINE_AXIS, "gpu", DOMAIN_AXIS, "fabric")  # that change what a machine offers
GridKey = tuple[tuple[str, AxisValue], ...]  # axes with their values


@dataclass(frozen=True)
class Study:
    """A checked study, made by `study_from_record`.

    machine         with the calibration where one was given
    topology_entry  the topology as the study's record has it
    axes            axis -> its values, numbers ascending, names as they were written; always with
                    nodes, ppn and memory
    algorithms      candidates by name; all when empty
    without         capabilities of the topology that are not used, from `NETWORK_CAPABILITIES`, and
                    algorithms that are no candidates
    limits          whether to find what limits the best candidates
    prices          price of each part of the machine; see `tuner.whatif.prices`
    machines        those that are compared, by name, `machine` being the first; else empty
    """

    name: str
    machine: Machine
    topology_entry: Any
    axes: Mapping[str, tuple[AxisValue, ...]]
    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[str, ...] = ()
    calibration: Calibration | None = None
    table: TuningTable | None = None
    without: tuple[str, ...] = ()
    limits: bool = True
    prices: Mapping[str, Price] = field(default_factory=dict)
    machines: Mapping[str, Machine] = field(default_factory=dict)

    @property
    def topology(self) -> Topology:
        return self.machine.topology

    @property
    def number_of_points(self) -> int:
        """The number of points: machines x collectives x sizes."""
        axes = math.prod(len(values) for values in self.axes.values())
        return axes * len(self.collectives) * len(self.sizes)

    @cached_property
    def coordinates(self) -> tuple[GridPoint, ...]:
        """The points of the axes, one for each machine of the study, the last axis fastest."""
        return tuple(
            dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())
        )

    @cached_property
    def grid(self) -> tuple[GridPoint, ...]:
        """The same with the nodes and ranks per node of the machine there.

        Where nodes have other numbers of GPUs, so many have the same number of ranks. Raises
        InputError where that is not possible.
        """
        return tuple(map(self.with_shape, self.coordinates))

    def with_shape(self, at: GridPoint) -> GridPoint:
        """Return a point with the nodes and ranks per node of its machine, see `grid`."""
        own, ranks = int(at["ppn"]), int(at["nodes"]) * int(at["ppn"])
        if MACHINE_AXIS in at and self.has_rank_per_gpu:
            own = gpus_per_node(self.machines[str(at[MACHINE_AXIS])].topology) or own
        own = int(at.get(DOMAIN_AXIS, own))
        if ranks % own:
            raise InputError(
                f"{ranks} ranks do not fill nodes of {own} each: vary nodes so that"
                " all machines have as many ranks"
            )
        return {**at, "nodes": ranks // own, "ppn": own}

    @property
    def has_rank_per_gpu(self) -> bool:
        """Return whether nodes have other numbers of GPUs, and `ppn` follows from them."""
        return DOMAIN_AXIS in self.axes or any(
            gpus_per_node(machine.topology) for machine in self.machines.values()
        )

    @property
    def all_machines(self) -> tuple[Machine, ...]:
        """The machines that are compared, or the only one."""
        return tuple(self.machines.values()) or (self.machine,)

    @property
    def title(self) -> str:
        """Names of the machines."""
        return ", ".join(self.machines) or self.topology.name

    def machine_at(self, at: GridPoint) -> Machine:
        """Return the machine at a point of the grid; raise InputError as `apply_axes` does."""
        return apply_axes(self.machines.get(str(at.get(MACHINE_AXIS)), self.machine), at)

    @cached_property
    def digest(self) -> str:
        """A digest of the study's record; equal for two studies exactly when they ask the same."""
        text = json.dumps(study_record(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def algorithm_names(self, collective: Collective, at: GridPoint) -> tuple[str, ...]:
        """Return the candidates of one collective on the machine at one point of the grid."""
        known = self.known_algorithms(collective, at)
        return tuple(name for name in known if name in (self.algorithms or known))

    def known_algorithms(self, collective: Collective, at: GridPoint) -> tuple[str, ...]:
        """Return the candidates of a study that names none."""
        known = algorithms.algorithm_names(collective, self.features(at))
        return tuple(name for name in known if name not in self.without)

    def features(self, at: GridPoint) -> frozenset[str]:
        """Return the capabilities for algorithms that the machine at one point of the grid has."""
        return algorithms.available_capabilities(
            self.topology_features[_offering_values(at)].difference(self.without),
            at["memory"] == CUDA,
            int(at["nodes"]),
            int(at["ppn"]),
        )

    @cached_property
    def topology_features(self) -> dict[GridKey, frozenset[str]]:
        """The capabilities of the machines by `_offering_values`, before any is withdrawn."""
        found: dict[GridKey, frozenset[str]] = {}
        for at in self.grid:
            key = _offering_values(at)
            if key not in found:
                few = {**dict(key), "nodes": min(2, int(at["nodes"]))}
                found[key] = self.machine_at(few).topology.capabilities
        return found

    @cached_property
    def offered(self) -> frozenset[str]:
        """Return what one of the machines offers at least."""
        return frozenset().union(*self.topology_features.values())


def _offering_values(at: GridPoint) -> GridKey:
    """Return axes and values at a point that decide what the machine offers."""
    return tuple((axis, at[axis]) for axis in OFFERING_AXES if axis in at)


def study_record(study: Study) -> dict[str, Any]:
    """Return a self-contained record of the study: what it named is part of the record."""
    record: dict[str, Any] = {
        "name": study.name,
        "topology": study.topology_entry,
        "vary": {
            name: [AXES[name].encode(value) for value in values]
            for name, values in study.axes.items()
            if name != MACHINE_AXIS and not (name == "ppn" and study.has_rank_per_gpu)
        },
        "collectives": [collective.value for collective in study.collectives],
        "sizes": list(study.sizes),
    }
    if study.algorithms:
        record["algorithms"] = list(study.algorithms)
    if study.calibration is not None:
        record["calibration"] = calibration_record(study.calibration)
    if study.table is not None:
        record["table"] = table_record(study.table)
    if study.without:
        record["without"] = list(study.without)
    if not study.limits:
        record["limits"] = False
    if study.prices:
        record["cost"] = prices_record(study.prices)
    return record
