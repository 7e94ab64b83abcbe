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
rank per node, or where every node has GPUs a rank for each of them and their memory, and the newest
NCCL that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import ANY, DISTINCT_NAMES, Flag, Kind, mapping, read_record
from tuner.core.calibration import Calibration, calibration_from_record, read_calibration
from tuner.core.collective import Collective
from tuner.core.named_collectives import COLLECTIVES
from tuner.core.path_classes import BLOCK
from tuner.core.table import RuleKey, TuningTable, read_table, table_from_record
from tuner.machines import Machine
from tuner.machines.loader import load_machine, machine_from_record
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.topology import CONFIGURED_CAPABILITIES
from tuner.topology.readers import topology_to_record
from tuner.topology.readers.safe_yaml import read_yaml
from tuner.whatif.axes import AXES, MACHINE_AXIS, NCCL_AXIS
from tuner.whatif.checked_study import Study
from tuner.whatif.library_default import DEFAULT_PREFIX, default_table
from tuner.whatif.prices import AXIS_OF_PART, parse_prices
from tuner.whatif.study_checks import require_feasible
from tuner.whatif.values import SIZES, parse_axes

COMPARED_AXES = {"nodes", "ppn", "memory", "placement", NCCL_AXIS}  # which any machine has
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
    require_feasible(study)
    return study


def _require_axes_under_vary(record: Any) -> None:
    """Raise InputError for an axis that is a key of the study itself."""
    for key in record if isinstance(record, dict) else ():
        if key in AXES:
            values = record[key] if isinstance(record[key], list) else [record[key]]
            raise InputError(
                f"{key} is an axis and not a key of the study itself: write"
                f" `vary: {{{key}: {shortened_repr(values)}}}`"
            )


def _machines(settings: StudySettings, resolver: ResourceResolver) -> dict[str, Machine]:
    """Return the machines of a study by name; raise InputError where they cannot be compared."""
    entry = settings.topology
    found: dict[str, Machine] = {}
    for one in entry if isinstance(entry, list) else [entry]:
        machine = resolver.machine(one) if isinstance(one, str) else machine_from_record(one)
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
        raise InputError(f"calibration must be a name or a calibration ({reason})") from None


def _table(entry: Any, resolver: ResourceResolver, study: Study) -> TuningTable | None:
    if entry is None:
        return None
    if isinstance(entry, str) and entry.startswith(DEFAULT_PREFIX):
        return default_table(entry.removeprefix(DEFAULT_PREFIX), _keys(study), study.sizes)
    return resolver.table(entry) if isinstance(entry, str) else table_from_record(entry)


def _keys(study: Study) -> list[RuleKey]:
    """Return the calls of a study without their sizes, each once."""
    found = (
        RuleKey(
            collective,
            int(at["nodes"]),
            int(at["ppn"]),
            str(at["memory"]),
            placement=str(at.get("placement", BLOCK)),
        )
        for collective in study.collectives
        for at in study.grid
    )
    return list(dict.fromkeys(found))


def _without(study: Study, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a study is without; `configured` stands for what is offered of that."""
    if CONFIGURED not in names:
        return names
    offered = study.offered.intersection(CONFIGURED_CAPABILITIES)
    return tuple(dict.fromkeys([*(one for one in names if one != CONFIGURED), *sorted(offered)]))
