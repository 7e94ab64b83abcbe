"""The specification of a study, read from YAML or JSON.

    name: twice the network
    topology: {name: flat64, nodes: 64, latency: 2us, bandwidth: 12.5GB/s}
    vary:
      nodes: [2, 4, 8, 16, 32, 64]
      bandwidth: [12.5GB/s, 25GB/s]
    collectives: [bcast, allreduce]
    sizes: [1KiB, 64KiB, 1MiB]

The topology is in one of its short forms, a `topology_to_record`, or a name: `preset:NAME`, a file
beside the study's, or what the service calls it; in a list of several, machines with as many ranks
as the first one has on `nodes` nodes are compared. A preset includes its costs; for others
`calibration` names measured costs, and the topology says the rest. `table` names a tuning table
whose regret on the new machine is computed; `default:openmpi` and `default:mpich` stand for the
choices of these libraries. `algorithms` restricts the candidates. `without`
withdraws what the topology offers, as if nobody had configured it: some of `multicast`,
`switch_reduction` and `nvswitch_reduction`, or `configured` for those of the first two that are
offered; algorithms that it names are no candidates. `limits: false` does not find out what limits
the best algorithms, which takes two more simulations of each for every resource of the machine.
`cost` has prices of nodes, GPUs, NICs, switches and cables, for the speed that each machine gives
for its price. An axis that is left out has the machine's own value: all nodes, host memory and one
rank per node, or where every node has GPUs a rank for each of them and their memory.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Protocol

from tuner import algorithms
from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import ANY, DISTINCT_NAMES, Flag, Kind, mapping, read_record
from tuner.core.calibration import (
    Calibration,
    calibration_from_record,
    calibration_record,
    read_calibration,
)
from tuner.core.collective import Collective
from tuner.core.named_collectives import COLLECTIVES
from tuner.core.path_classes import BLOCK
from tuner.core.table import RuleKey, TuningTable, read_table, table_from_record, table_record
from tuner.machines import Machine
from tuner.machines.loader import load_machine, machine_from_record
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.sim import simulate
from tuner.topology import CONFIGURED_CAPABILITIES, CUDA, Topology
from tuner.topology.readers import topology_to_record
from tuner.topology.readers.safe_yaml import read_yaml
from tuner.whatif.axes import (
    AXES,
    MACHINE_AXIS,
    MAX_STUDY_NODES,
    MAX_STUDY_RANKS,
    UPLINK_AXES,
    AxisValue,
    GridPoint,
    apply_axes,
    place_ranks,
)
from tuner.whatif.library_default import DEFAULT_PREFIX, default_table
from tuner.whatif.prices import AXIS_OF_PART, Price, parse_prices, prices_record
from tuner.whatif.values import SIZES, gpus_per_node, parse_axes

MAX_STUDY_POINTS = 100_000
DOMAIN_AXIS = "nvlink_domain"
OFFERING_AXES = (MACHINE_AXIS, "gpu", DOMAIN_AXIS, "fabric")  # that change what a machine offers
COMPARED_AXES = {"nodes", "ppn", "memory", "placement"}  # which any machine has
GridKey = tuple[tuple[str, AxisValue], ...]  # axes with their values
CONFIGURED = "configured"  # in `without`: whatever administrators have to configure


def _read_name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be a name, not {shortened_repr(value)}")
    return value


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """The settings of a study, as its file has them; None: left out."""

    name: Annotated[str, Kind("name", _read_name)]
    topology: Annotated[Any, ANY]
    collectives: Annotated[tuple[Collective, ...], COLLECTIVES]
    sizes: Annotated[tuple[int, ...], SIZES]
    vary: Annotated[dict[str, Any] | None, mapping(AXES)] = None
    algorithms: Annotated[tuple[str, ...], DISTINCT_NAMES] = ()
    calibration: Annotated[Any, ANY] = None
    table: Annotated[Any, ANY] = None
    without: Annotated[tuple[str, ...], DISTINCT_NAMES] = ()
    limits: Flag = True
    cost: Annotated[dict[str, Any] | None, mapping(AXIS_OF_PART)] = None


class ResourceResolver(Protocol):
    """A resolver of the names in a study; each method raises InputError for an unknown name."""

    def machine(self, name: str) -> Machine: ...

    def calibration(self, name: str) -> Calibration: ...

    def table(self, name: str) -> TuningTable: ...


@dataclass(frozen=True)
class FileResolver:
    """A resolver of names as files, relative to the directory of the study's file."""

    directory: Path

    def machine(self, name: str) -> Machine:
        """Return the machine of a topology file of any format, or of a preset."""
        return load_machine(name, self.directory)

    def calibration(self, name: str) -> Calibration:
        """Return the calibration from a file of `tuner calibrate`."""
        return read_calibration(self.directory / name)

    def table(self, name: str) -> TuningTable:
        """Return the tuning table from a file of `tuner tune`."""
        return read_table(self.directory / name)


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


def read_study(path: Path) -> Study:
    """Read a study from a YAML or JSON file; raises InputError that starts with the file's name."""
    try:
        return study_from_record(read_yaml(path), FileResolver(path.parent))
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8; see `tuner study --help`") from None


def study_from_record(record: Any, resolver: ResourceResolver) -> Study:
    """Return the study of parsed YAML or JSON; raises InputError, also for too many points."""
    _require_axes_under_vary(record)
    settings = read_record(StudySettings, record, "the study")
    machines = _machines(settings, resolver)
    machine = next(iter(machines.values()))
    measured = _calibration(settings.calibration, resolver)
    if measured is not None:
        machine = replace(machine, calibration=replace(measured, nominal=True))
    axes = parse_axes(settings.vary or {}, machine)
    if isinstance(settings.topology, list):
        axes = {MACHINE_AXIS: tuple(machines), **axes}
    study = Study(
        settings.name,
        machine,
        _topology_entry(settings.topology, tuple(machines.values())),
        axes,
        settings.collectives,
        settings.sizes,
        settings.algorithms,
        measured,
        limits=settings.limits,
        prices=parse_prices(settings.cost or {}, axes, machine),
        machines=machines if isinstance(settings.topology, list) else {},
    )
    if study.has_rank_per_gpu and "ppn" in (settings.vary or {}):
        raise InputError(
            "vary: ppn is the number of GPUs where they differ (nvlink_domain, or several machines"
            " with GPUs): take it out"
        )
    study = replace(study, without=_without(study, settings.without))
    study = replace(study, table=_table(settings.table, resolver, study))
    _require_bounds(study)
    _require_costs(study)
    _require_offered(study)
    _require_candidates(study)
    return study


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


def _require_axes_under_vary(record: Any) -> None:
    """Raise InputError for an axis that is a key of the study itself."""
    for key in record if isinstance(record, dict) else ():
        if key in AXES:
            values = record[key] if isinstance(record[key], list) else [record[key]]
            raise InputError(
                f"{key} is an axis and not a key of the study itself: write"
                f" `vary: {{{key}: {shortened_repr(values)}}}`"
            )


def _machine(entry: Any, resolver: ResourceResolver) -> Machine:
    if isinstance(entry, str):
        return resolver.machine(entry)
    return machine_from_record(entry)


def _machines(settings: StudySettings, resolver: ResourceResolver) -> dict[str, Machine]:
    """Return the machines of a study by name; raise InputError where they cannot be compared."""
    entry = settings.topology
    found: dict[str, Machine] = {}
    for one in entry if isinstance(entry, list) else [entry]:
        machine = _machine(one, resolver)
        if machine.name in found:
            raise InputError(
                f"topology: several machines are called {machine.name}: give each file a `name` of"
                " its own"
            )
        found[machine.name] = machine
    if isinstance(entry, list):
        _require_comparable(settings, len(found))
    return found


def _require_comparable(settings: StudySettings, machines: int) -> None:
    if machines < 2:
        raise InputError("topology: a list compares two machines or more; write one without a list")
    if settings.calibration is not None or not COMPARED_AXES.issuperset(settings.vary or {}):
        raise InputError(
            f"with several machines {', '.join(sorted(COMPARED_AXES))} can vary, and each has its"
            " own costs: write other changes into a file for each machine"
        )


def _topology_entry(entry: Any, machines: tuple[Machine, ...]) -> Any:
    """Return the topology as written if that is self-contained, else its record with its costs."""
    if isinstance(entry, list):
        pairs = zip(entry, machines, strict=True)
        return [_topology_entry(one, (machine,)) for one, machine in pairs]
    (machine,) = machines
    if machine.record is not None:
        return machine.record
    whole = isinstance(entry, dict) or entry.startswith(PRESET_PREFIX)
    return entry if whole else topology_to_record(machine.topology)


def _calibration(entry: Any, resolver: ResourceResolver) -> Calibration | None:
    if entry is None:
        return None
    if isinstance(entry, str):
        return resolver.calibration(entry)
    try:
        return calibration_from_record(entry)
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(f"calibration: neither a name nor a calibration ({reason})") from None


def _table(entry: Any, resolver: ResourceResolver, study: Study) -> TuningTable | None:
    if entry is None:
        return None
    if isinstance(entry, str) and entry.startswith(DEFAULT_PREFIX):
        return default_table(entry.removeprefix(DEFAULT_PREFIX), _keys(study), study.sizes)
    return resolver.table(entry) if isinstance(entry, str) else table_from_record(entry)


def _keys(study: Study) -> list[RuleKey]:
    """Return the calls of a study without their sizes."""
    return [
        RuleKey(
            collective,
            int(at["nodes"]),
            int(at["ppn"]),
            str(at["memory"]),
            placement=str(at.get("placement", BLOCK)),
        )
        for collective in study.collectives
        for at in study.grid
    ]


def _without(study: Study, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a study is without; `configured` stands for what is offered of that."""
    if CONFIGURED not in names:
        return names
    offered = study.offered.intersection(CONFIGURED_CAPABILITIES)
    return tuple(dict.fromkeys([*(one for one in names if one != CONFIGURED), *sorted(offered)]))


def _require_candidates(study: Study) -> None:
    known: set[str] = set()
    for collective in study.collectives:
        own = {name for at in study.grid for name in study.algorithm_names(collective, at)}
        if not own:
            _require_features(study, collective)
            every = replace(study, algorithms=())
            here = dict.fromkeys(
                n for at in study.grid for n in every.algorithm_names(collective, at)
            )
            raise InputError(
                f"none of the algorithms is one of {collective}; it has: {', '.join(here)}"
            )
        known |= own
    for name in study.algorithms:
        if name not in known:
            for collective in study.collectives:
                _require_features(replace(study, algorithms=(name,)), collective)
            raise InputError(f"no collective of the study has an algorithm {shortened_repr(name)}")


def _require_features(study: Study, collective: Collective) -> None:
    """Raise InputError for a named algorithm of the collective whose requirements are not met."""
    every = set(algorithms.algorithm_names(collective, algorithms.REQUIREMENTS))
    for name in study.algorithms:
        if name in every:
            _require_not_withdrawn(study, collective, name)
            algorithms.check_requirements(
                collective, name, study.features(study.grid[0]), study.topology.name
            )


def _require_not_withdrawn(study: Study, collective: Collective, name: str) -> None:
    for need in algorithms.describe(collective, name).requires:
        if need in study.without:
            raise InputError(
                f"{collective} {name} needs {algorithms.REQUIREMENTS[need]}, and the study is"
                f" without {need}: take it out of `without`, or {name} out of `algorithms`"
            )


def _require_offered(study: Study) -> None:
    """Raise InputError for what a study is without although it has no such thing."""
    known = {
        name
        for one in study.collectives
        for name in algorithms.algorithm_names(one, algorithms.REQUIREMENTS)
    }
    for name in study.without:
        if name not in study.offered | known:
            raise InputError(
                f"without: {study.topology.name} does not offer {shortened_repr(name)}, which is no"
                f" algorithm either; it offers: {', '.join(sorted(study.offered)) or 'nothing'}"
            )


def _require_bounds(study: Study) -> None:
    if study.number_of_points > MAX_STUDY_POINTS:
        raise InputError(
            f"the study has {study.number_of_points} points, more than {MAX_STUDY_POINTS}:"
            " give fewer values, collectives or sizes"
        )
    nodes = max(int(at["nodes"]) for at in study.grid)
    if nodes > MAX_STUDY_NODES:
        raise InputError(f"the study has machines of {nodes} nodes, more than {MAX_STUDY_NODES}")
    ranks = max(int(at["nodes"]) * int(at["ppn"]) for at in study.grid)
    if ranks > MAX_STUDY_RANKS:
        raise InputError(f"the study has machines of {ranks} ranks, more than {MAX_STUDY_RANKS}")


def _require_costs(study: Study) -> None:
    """Raise InputError unless every axis can be varied and every message has a cost.

    This is tried on two nodes: the outermost values of each axis with the first ones of the others.
    """
    first = {name: values[0] for name, values in study.axes.items()}
    nodes = study.axes["nodes"]
    for name in study.axes.get(MACHINE_AXIS, ("",)):
        study.machine_at({**first, MACHINE_AXIS: name, "nodes": nodes[-1]})
    tried = list[GridPoint]()
    for name, values in study.axes.items():
        for value in values if isinstance(values[0], str) else {values[0], values[-1]}:
            at = {**first, name: value, "nodes": min(2, nodes[-1])}
            at = {axis: at[axis] for axis in at if axis not in UPLINK_AXES}  # two may lack them
            if at not in tried:
                tried.append(at)
                _require_cost(study.machine_at(at), at)


def _require_cost(changed: Machine, at: GridPoint) -> None:
    """Raise InputError unless a message has a cost on a machine with these axes."""
    ranks = place_ranks(changed, at)
    made = algorithms.build(Collective.BCAST, "linear", ranks.p)
    simulate(made, ranks, changed.calibration, 1, memory=str(at["memory"]))
