"""Workloads: a model, how it is trained, and the machine, read from YAML or JSON.

    name: ResNet-50 on Summit
    model: resnet50
    batch: 64
    framework: {name: horovod, fusion_threshold: 64MiB, cycle_time: 5ms}
    topology: preset:summit
    ranks: [1, 6, 48, 192]
    algorithms: best

`model` is a name, a mapping with the numbers of a transformer, `{file: layers.csv}`, or
`{table: TEXT, name: NAME}` with such a table itself. `batch` is the number of samples per rank and
pass. `precision` is fp32 or amp, whose gradients have two bytes.
`rate` is the number of samples per second of one rank alone; without it a published one counts.
`topology`, `calibration` and `memory` are as in a study. `ranks` is a number or a list; `ppn` is
the number of ranks per node, the GPUs of a node if left out. `algorithms` is `default`, `best`, the
file of a tuning table, or a list of names. `defaults` names measurements of an MPI library, which
tell its default algorithms. `passes` is the number of passes that accumulate their gradients, and
`noise` the relative standard deviation of the compute time of a rank. `published` lists results to
compare with, each with `ranks`, `source` and one of `rate`, `efficiency` and `speedup`. With
`recorded`, a file that has the steps of an iteration, there is neither model nor framework (see
`recorded_training`). With `scaling: strong`, `batch` is divided over all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tuner import algorithms
from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import read_record, require_keys
from tuner.base.spelling import did_you_mean
from tuner.base.units import plural
from tuner.core.calibration import read_calibration
from tuner.core.collective import Collective
from tuner.core.table import read_table
from tuner.machines import Machine
from tuner.machines.loader import load_machine, machine_from_record
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.machine import NETWORK_CAPABILITIES
from tuner.topology.readers.safe_yaml import read_yaml
from tuner.training.call_times import AlgorithmPolicy, CallTimes
from tuner.training.compute import AMP, FP32, ComputeRate, find_rate
from tuner.training.frameworks.caffe import GatherAverage
from tuner.training.frameworks.framework import Framework
from tuner.training.model import SECONDS, Model
from tuner.training.models import build_model, model_from_record
from tuner.training.policies import FastestKnown, LibraryDefault, NcclChoice, TableChoice
from tuner.training.published import PublishedResult
from tuner.training.recorded_training import RecordedTraining, place_ranks
from tuner.training.workload_files import load_workload, parse_layer_table
from tuner.training.workload_settings import (
    BEST,
    DEFAULT,
    WEAK,
    PlacedSettings,
    RecordedSettings,
    WorkloadSettings,
)
from tuner.whatif.axes import GridPoint
from tuner.whatif.machine_resources import IMPROVEMENT, LATENCY, with_faster
from tuner.whatif.values import gpus_per_node


@dataclass(frozen=True)
class Workload:
    """A checked workload, made by `workload_from_record`.

    batch       samples per rank and pass; of strong scaling, samples of all ranks
    rate        samples per second of one rank alone, with its source
    ranks       numbers of ranks, ascending
    noise       relative standard deviation of the compute time of a rank
    published   results to compare with
    link_values     latencies and bandwidths of the network that differ from the machine's, by axis
    """

    name: str
    model: Model
    batch: int
    rate: ComputeRate
    framework: Framework
    machine: Machine
    ranks: tuple[int, ...]
    ppn: int
    memory: str
    policy: AlgorithmPolicy
    precision: str = FP32
    passes: int = 1
    noise: float = 0.0
    published: tuple[PublishedResult, ...] = ()
    scaling: str = WEAK
    link_values: GridPoint = field(default_factory=dict)
    _known_places: dict[tuple[object, ...], tuple[Machine, Machine, Placement]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _known_times: dict[tuple[object, ...], tuple[Machine, CallTimes]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of a gradient or parameter as it is exchanged."""
        return 2 if self.precision == AMP else 4

    def rank_batch(self, ranks: int) -> int:
        """Return the samples per rank and pass; raise InputError if a rank has none."""
        if self.scaling == WEAK:
            return self.batch
        replicas = max(1, ranks // self.framework.replica_ranks)
        if self.batch % replicas:
            raise InputError(
                f"scaling: strong: a batch of {self.batch} cannot be divided over"
                f" {plural(ranks, 'rank')}"
            )
        return self.batch // replicas

    def placement(self, ranks: int) -> tuple[Machine, Placement]:
        """Return the machine with the nodes that a number of ranks fill, and the ranks on them."""
        same = (id(self.machine), *self.link_values.items(), self.ppn, ranks)
        if same not in self._known_places:
            placed = place_ranks(self.machine, self.ppn, ranks, self.link_values)
            self._known_places[same] = self.machine, *placed
        _, machine, placement = self._known_places[same]
        return machine, placement

    def call_times(self, ranks: int, faster: str = "") -> CallTimes:
        """Return the times of calls of a number of ranks.

        Workloads that `replace` makes from this one share them while machine, placement and policy
        are the same, and so do numbers of ranks of which some nodes alone are simulated.

        faster      resource of the machine that is IMPROVEMENT times as fast, if any
        """
        same = (
            *(id(self.machine), *self.link_values.items(), self.ppn, ranks),
            *(id(self.policy), self.memory, faster),
        )
        if same not in self._known_times:
            self._known_times[same] = self.machine, self._new_times(ranks, faster)
        return self._known_times[same][1]

    def _new_times(self, ranks: int, faster: str) -> CallTimes:
        machine, placement = self.placement(ranks)
        if faster:
            machine = with_faster(machine, faster)
            placement = Placement(machine.topology, placement.node_of)
        return CallTimes(
            placement,
            machine.calibration,
            self.memory,
            self.policy,
            1 / IMPROVEMENT if faster == LATENCY else 1.0,
            lambda nodes: self.call_times(nodes * placement.shape[1], faster),
        )


Training = Workload | RecordedTraining
Parsed = TypeVar("Parsed")


def read_training(path: Path) -> Training:
    """Read a workload, with a model or recorded; raises InputError that starts with its name."""
    return parse_file(path, training_from_record, "run")


def parse_file(path: Path, parse: Callable[[Any, Path], Parsed], action: str) -> Parsed:
    """Return what `parse` makes of a file's YAML or JSON and its directory.

    action      action of `tuner training` whose help tells what such a file has

    Raises InputError that starts with the file's name.
    """
    try:
        return parse(read_yaml(path), path.parent)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: not text in UTF-8; see `tuner training {action} --help`"
        ) from None


def training_from_record(record: Any, directory: Path) -> Training:
    """Return the workload of parsed YAML or JSON, with a model or recorded; raises InputError."""
    if isinstance(record, dict) and "recorded" in record:
        return recorded_from_record(record, directory)
    return workload_from_record(record, directory)


def read_workload(path: Path) -> Workload:
    """Read a workload with a model; raises InputError that starts with the file's name."""
    found = read_training(path)
    if isinstance(found, RecordedTraining):
        raise InputError(f"{path}: has a recorded iteration, and a model is needed here")
    return found


def recorded_from_record(record: Any, directory: Path) -> RecordedTraining:
    """Return the recorded training of parsed YAML or JSON; raises InputError.

    directory   what the names of files are relative to
    """
    settings = read_record(RecordedSettings, record, "the workload")
    recorded = load_workload(directory / settings.recorded)
    if isinstance(recorded, Model):
        raise InputError(
            f"recorded: {settings.recorded} holds the layers of a model: give it as"
            " `model: {file: ...}` with a framework"
        )
    machine = _machine(settings, directory)
    ppn, memory = _places(settings, machine)
    return RecordedTraining(
        settings.name or f"{recorded.name} on {machine.name}",
        recorded.with_groups(settings.groups or {}),
        settings.batch,
        machine,
        settings.ranks,
        ppn,
        memory,
        _policy(settings, directory),
    )


def workload_from_record(record: Any, directory: Path) -> Workload:
    """Return the workload of parsed YAML or JSON; raises InputError.

    directory   what the names of files are relative to
    """
    settings = _with_host_memory(read_record(WorkloadSettings, record, "the workload"))
    machine = _machine(settings, directory)
    model = _model(settings.model, directory)
    ppn, memory = _places(settings, machine)
    return Workload(
        settings.name or f"{model.name} on {machine.name}",
        model,
        settings.batch,
        _rate(settings, model, machine),
        settings.framework,
        machine,
        settings.ranks,
        ppn,
        memory,
        _policy(settings, directory),
        settings.precision,
        settings.passes,
        settings.noise,
        settings.published,
        settings.scaling,
    )


def _machine(settings: PlacedSettings, directory: Path) -> Machine:
    entry = settings.topology
    machine = (
        load_machine(entry, directory) if isinstance(entry, str) else machine_from_record(entry)
    )
    if settings.calibration is None:
        return machine
    return machine.with_calibration(read_calibration(directory / settings.calibration))


def _model(entry: Any, directory: Path) -> Model:
    if isinstance(entry, str):
        return build_model(entry)
    if isinstance(entry, dict) and "table" in entry:
        return _model_of_table(entry)
    if not isinstance(entry, dict) or "file" not in entry:
        return model_from_record(entry)
    require_keys("model", entry, {"file"}, {"file"})
    found = load_workload(directory / str(entry["file"]))
    if not isinstance(found, Model):
        raise InputError(
            f"model: {entry['file']} holds the steps of an iteration and no layers: give it as"
            " `recorded` and without a framework"
        )
    return found


def _model_of_table(entry: Mapping[str, Any]) -> Model:
    require_keys("model", entry, {"table", "name"}, {"table"})
    try:
        return parse_layer_table(
            str(entry["table"]).splitlines() or [""], str(entry.get("name", "layers"))
        )
    except InputError as reason:
        raise InputError(f"model: table: {reason}") from None


def _rate(settings: WorkloadSettings, model: Model, machine: Machine) -> ComputeRate:
    if settings.rate is not None:
        return ComputeRate(settings.rate, "the workload", "given")
    if model.unit == SECONDS:
        alone = 1 / (model.forward + model.backward)
        return ComputeRate(alone, f"times of {model.name}", "given", has_update=False)
    product = machine.spec.product if machine.spec else ""
    return find_rate(model, product, settings.precision, build_model)


def _with_host_memory(settings: WorkloadSettings) -> WorkloadSettings:
    """Return the settings with host memory if all exchanges of their framework go through it."""
    if not isinstance(settings.framework, GatherAverage):
        return settings
    if settings.memory == CUDA:
        raise InputError(
            "memory: shm-learn-dist exchanges everything through host memory: leave memory out"
        )
    return replace(settings, memory=HOST)


def _places(settings: PlacedSettings, machine: Machine) -> tuple[int, str]:
    """Return the number of ranks of a node, and the memory of the buffers.

    Raises InputError for ranks that the machine has no nodes or no GPUs for.
    """
    gpus, nodes = gpus_per_node(machine.topology), len(machine.topology.nodes)
    ranks, ppn = settings.ranks, settings.ppn or gpus or 1
    memory = settings.memory or (CUDA if gpus else HOST)
    if memory == CUDA and gpus and ppn > gpus:
        raise InputError(
            f"ppn: {ppn} ranks on a node of {machine.name}, which has {plural(gpus, 'GPU')}"
        )
    needed = -(-ranks[-1] // ppn)
    if needed > nodes:
        raise InputError(
            f"{ranks[-1]} ranks need {needed} nodes of {plural(ppn, 'rank')}, and {machine.name}"
            f" has {nodes}: name a larger machine, such as preset:NAME:{needed}"
        )
    return ppn, memory


def _known_algorithm(name: Any) -> str:
    offered = algorithms.available_capabilities(NETWORK_CAPABILITIES, True, 2, 2)
    known = {
        one for collective in Collective for one in algorithms.algorithm_names(collective, offered)
    }
    if name not in known:
        raise InputError(
            f"algorithms: unknown algorithm {shortened_repr(name)}"
            f"{did_you_mean(str(name), known)}; see `tuner algorithms`"
        )
    return str(name)


def _policy(settings: PlacedSettings, directory: Path) -> AlgorithmPolicy:
    entry = settings.algorithms
    default: AlgorithmPolicy = NcclChoice()
    if settings.defaults is not None:
        default = LibraryDefault.from_measurements(directory / settings.defaults)
    if entry == DEFAULT:
        return default
    if entry == BEST:
        return FastestKnown()
    if isinstance(entry, list):
        return FastestKnown(tuple(map(_known_algorithm, entry)))
    if isinstance(entry, str):
        return TableChoice(read_table(directory / entry), default)
    raise InputError(
        f"algorithms is {DEFAULT}, {BEST}, the file of a tuning table or a list of names, not"
        f" {shortened_repr(entry)}"
    )
