"""What a study asks, from YAML or JSON:

    name: twice the network
    topology: {name: flat64, nodes: 64, latency: 2us, bandwidth: 12.5GB/s}
    vary:
      nodes: [2, 4, 8, 16, 32, 64]
      bandwidth: [12.5GB/s, 25GB/s]
    collectives: [bcast, allreduce]
    sizes: [1KiB, 64KiB, 1MiB]

The topology is in its short form, a `topology_record`, or named: a file beside the study's, or
what the service calls it. So are, optionally, `calibration` (costs measured on the nodes; the
topology says the others) and `table` (whose choices are kept on the new machine). `algorithms`
restricts the candidates. An axis that is left out stays as the topology has it: all nodes, one
rank per node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from tuner import algorithms
from tuner.collective import Collective
from tuner.cost import (
    Calibration,
    calibration_from_record,
    calibration_record,
    read_calibration,
)
from tuner.errors import InputError, quoted
from tuner.sim import simulate
from tuner.sim.study.axes import AXES, MOST_NODES, MOST_RANKS, Place, varied
from tuner.sim.traffic import LARGEST
from tuner.table import TuningTable, parse_table, read_table, table_record
from tuner.topologies import (
    given_calibration,
    load_topology,
    topology_from_record,
    topology_record,
)
from tuner.topologies.safe_yaml import MOST_CHARACTERS, parse_yaml
from tuner.topologies.short import require_keys, topology_from
from tuner.topology import Placement, Topology
from tuner.units import parse_size

MOST_POINTS = 10_000
NEEDED = {"name", "topology", "collectives", "sizes"}
KNOWN = NEEDED | {"vary", "algorithms", "calibration", "table"}


class References(Protocol):
    """How a name in a study becomes what it stands for; each raises InputError when it cannot."""

    def topology(self, name: str) -> Topology:
        """The topology of that name."""

    def calibration(self, name: str) -> Calibration:
        """The calibration of that name."""

    def table(self, name: str) -> TuningTable:
        """The tuning table of that name."""


@dataclass(frozen=True)
class Files:
    """References as names of files, relative to the study's."""

    beside: Path

    def topology(self, name: str) -> Topology:
        """From a topology file of any format."""
        return load_topology(self.beside / name)

    def calibration(self, name: str) -> Calibration:
        """From a file of `tuner calibrate`."""
        return read_calibration(self.beside / name)

    def table(self, name: str) -> TuningTable:
        """From a file of `tuner tune`."""
        return read_table(self.beside / name)


@dataclass(frozen=True)
class Study:
    """Made by `study_from`, which checks it.

    axes            axis -> its values, ascending; always with nodes and ppn
    algorithms      candidates by name; all when empty
    """

    name: str
    topology: Topology
    axes: Mapping[str, tuple[float, ...]]
    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[str, ...] = ()
    calibration: Calibration | None = None
    table: TuningTable | None = None

    @property
    def costs(self) -> Calibration:
        """What was measured where it was measured, and what the topology says elsewhere."""
        if self.calibration is None:
            return given_calibration(self.topology)
        return replace(self.calibration, given=True)

    @property
    def number_of_points(self) -> int:
        """Machines x collectives x sizes."""
        axes = math.prod(len(values) for values in self.axes.values())
        return axes * len(self.collectives) * len(self.sizes)

    def places(self) -> Iterator[Place]:
        """Every machine of the study, the last axis fastest."""
        for values in product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def names(self, collective: Collective) -> tuple[str, ...]:
        """The candidates of one collective."""
        known = algorithms.names(collective)
        return tuple(name for name in known if not self.algorithms or name in self.algorithms)


def read_study(path: Path) -> Study:
    """From a YAML or JSON file. Raises InputError that names file, place and remedy."""
    try:
        with path.open(encoding="utf-8") as file:
            return study_from(parse_yaml(file.read(MOST_CHARACTERS + 1)), Files(path.parent))
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8; see `tuner whatif --help`") from None


def study_from(spec: Any, references: References) -> Study:
    """A study from parsed YAML or JSON; raises InputError, also when it has too many points."""
    require_keys("the study", spec, KNOWN, NEEDED)
    if not isinstance(spec["name"], str) or not spec["name"]:
        raise InputError(f"name must be a name, not {quoted(spec['name'])}")
    topology = _topology(spec["topology"], references)
    study = Study(
        spec["name"], topology, _axes(spec.get("vary", {}), topology),
        _collectives(spec["collectives"]), _sizes(spec["sizes"]),
        _listed("algorithms", spec["algorithms"]) if "algorithms" in spec else (),
        _calibration(spec.get("calibration"), references), _table(spec.get("table"), references),
    )  # fmt: skip
    _require_candidates(study)
    _require_bounds(study)
    _require_costs(study)
    return study


def study_record(study: Study) -> dict[str, Any]:
    """The same study complete in itself: whatever it named is part of it."""
    record: dict[str, Any] = {
        "name": study.name, "topology": topology_record(study.topology),
        "vary": {name: [_written(name, value) for value in values]
                 for name, values in study.axes.items()},
        "collectives": [collective.value for collective in study.collectives],
        "sizes": list(study.sizes),
    }  # fmt: skip
    if study.algorithms:
        record["algorithms"] = list(study.algorithms)
    if study.calibration is not None:
        record["calibration"] = calibration_record(study.calibration)
    if study.table is not None:
        record["table"] = table_record(study.table)
    return record


def _written(axis: str, value: float) -> int | str:
    """A value as a study file writes it, without loss."""
    unit = {"latency": "s", "bandwidth": "B/s"}.get(axis.rpartition("_")[2])
    return int(value) if unit is None else f"{value!r}{unit}"


def _topology(entry: Any, references: References) -> Topology:
    if isinstance(entry, str):
        return references.topology(entry)
    if isinstance(entry, dict) and "kind" in entry:
        return topology_from_record(entry)
    return topology_from(entry)


def _calibration(entry: Any, references: References) -> Calibration | None:
    if entry is None:
        return None
    if isinstance(entry, str):
        return references.calibration(entry)
    try:
        return calibration_from_record(entry)
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(f"calibration: neither a name nor a calibration ({reason})") from None


def _table(entry: Any, references: References) -> TuningTable | None:
    if entry is None:
        return None
    return references.table(entry) if isinstance(entry, str) else parse_table(json.dumps(entry))


def _axes(vary: Any, topology: Topology) -> dict[str, tuple[float, ...]]:
    require_keys("vary", vary, set(AXES), set())
    given = {"nodes": [len(topology.nodes)], "ppn": [1], **vary}
    return {name: _values(name, given[name]) for name in AXES if name in given}


def _values(name: str, entry: Any) -> tuple[float, ...]:
    if not isinstance(entry, list) or not entry:
        raise InputError(f"vary: {name} must be a list of values, not {quoted(entry)}")
    try:
        return tuple(sorted({AXES[name].parse(value) for value in entry}))
    except InputError as reason:
        raise InputError(f"vary: {name}: {reason}") from None


def _listed(what: str, entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, list) or not entry or not all(isinstance(e, str) for e in entry):
        raise InputError(f"{what} must be a list of names, not {quoted(entry)}")
    return tuple(dict.fromkeys(entry))


def _collectives(entry: Any) -> tuple[Collective, ...]:
    names = _listed("collectives", entry)
    unknown = [name for name in names if name not in list(Collective)]
    if unknown:
        raise InputError(
            f"there is no collective {quoted(unknown[0])}; known: {', '.join(Collective)}"
        )
    return tuple(Collective(name) for name in names)


def _sizes(entry: Any) -> tuple[int, ...]:
    if not isinstance(entry, list) or not entry:
        raise InputError(f"sizes must be a list such as [1KiB, 1MiB], not {quoted(entry)}")
    sizes = sorted({parse_size(value) for value in entry})
    if sizes[-1] > LARGEST:
        raise InputError(f"a message has 0 to {LARGEST} bytes, not {sizes[-1]}")
    return tuple(sizes)


def _require_candidates(study: Study) -> None:
    for collective in study.collectives:
        if not study.names(collective):
            raise InputError(
                f"none of the algorithms is one of {collective}; it has:"
                f" {', '.join(algorithms.names(collective))}"
            )
    known = {name for collective in study.collectives for name in study.names(collective)}
    for name in study.algorithms:
        if name not in known:
            raise InputError(f"no collective of the study has an algorithm {quoted(name)}")


def _require_bounds(study: Study) -> None:
    if study.number_of_points > MOST_POINTS:
        raise InputError(
            f"the study has {study.number_of_points} points, more than {MOST_POINTS}: give fewer"
            " values, collectives or sizes"
        )
    nodes = int(study.axes["nodes"][-1])
    if nodes > MOST_NODES:
        raise InputError(f"the study has machines of {nodes} nodes, more than {MOST_NODES}")
    ranks = nodes * int(study.axes["ppn"][-1])
    if ranks > MOST_RANKS:
        raise InputError(f"the study has machines of {ranks} ranks, more than {MOST_RANKS}")


def _require_costs(study: Study) -> None:
    """Every axis finds its links, and messages inside a node have a price where there are any."""
    largest = {name: values[-1] for name, values in study.axes.items()}
    varied(study.topology, largest)
    node = varied(study.topology, {"nodes": 1})
    several = [int(ppn) for ppn in study.axes["ppn"] if ppn > 1]
    for ppn in several[:1] + several[-1:]:  # the others have the path class of one of these
        pair = Placement.consecutive(node, ppn, 2)
        simulate(algorithms.build(Collective.BCAST, "linear", 2), pair, study.costs, 1)
