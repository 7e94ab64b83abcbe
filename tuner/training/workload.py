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
from tuner.base.file_settings import parse_int, parse_positive_float, require_keys
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
from tuner.training.compute import AMP, FP32, PRECISIONS, ComputeRate, find_rate
from tuner.training.frameworks import framework_from_record
from tuner.training.frameworks.caffe import GatherAverage
from tuner.training.frameworks.framework import Framework
from tuner.training.model import SECONDS, Model
from tuner.training.models import build_model, model_from_record
from tuner.training.policies import FastestKnown, LibraryDefault, NcclChoice, TableChoice
from tuner.training.published import PublishedResult, parse_published, parse_share
from tuner.training.recorded_training import RecordedTraining, place_ranks, with_groups
from tuner.training.workload_files import load_workload, parse_layer_table
from tuner.whatif.axes import GridPoint
from tuner.whatif.machine_resources import IMPROVEMENT, LATENCY, with_faster
from tuner.whatif.values import gpus_per_node

MAX_BATCH = 1 << 20
MAX_PASSES = 1 << 12
MAX_RANKS = 1 << 17
REQUIRED_KEYS = {"model", "batch", "framework", "topology", "ranks"}
ALLOWED_KEYS = REQUIRED_KEYS | {
    "name",
    "precision",
    "rate",
    "calibration",
    "memory",
    "ppn",
    "algorithms",
    "defaults",
    "passes",
    "noise",
    "published",
    "scaling",
}
RECORDED_REQUIRED_KEYS = {"recorded", "topology", "ranks"}
RECORDED_ALLOWED_KEYS = RECORDED_REQUIRED_KEYS | {
    "name",
    "batch",
    "groups",
    "calibration",
    "memory",
    "ppn",
    "algorithms",
    "defaults",
}
DEFAULT, BEST = "default", "best"
WEAK, STRONG = "weak", "strong"


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
    require_keys("the workload", record, RECORDED_ALLOWED_KEYS, RECORDED_REQUIRED_KEYS)
    recorded = load_workload(directory / str(record["recorded"]))
    if isinstance(recorded, Model):
        raise InputError(
            f"recorded: {record['recorded']} holds the layers of a model: give it as"
            " `model: {file: ...}` with a framework"
        )
    machine = _machine(record, directory)
    ranks, ppn, memory = _places(record, machine)
    return RecordedTraining(
        str(record.get("name", f"{recorded.name} on {machine.name}")),
        with_groups(recorded, record.get("groups", {})),
        parse_positive_float("batch", record["batch"]) if "batch" in record else 0.0,
        machine,
        ranks,
        ppn,
        memory,
        _policy(record, directory),
    )


def workload_from_record(record: Any, directory: Path) -> Workload:
    """Return the workload of parsed YAML or JSON; raises InputError.

    directory   what the names of files are relative to
    """
    require_keys("the workload", record, ALLOWED_KEYS, REQUIRED_KEYS)
    machine = _machine(record, directory)
    model = _model(record["model"], directory)
    framework = framework_from_record(record["framework"])
    ranks, ppn, memory = _places(_with_host_memory(record, framework), machine)
    batch = parse_int("batch", record["batch"], MAX_BATCH)
    precision = _one_of("precision", record.get("precision", FP32), PRECISIONS)
    return Workload(
        str(record.get("name", f"{model.name} on {machine.name}")),
        model,
        batch,
        _rate(record.get("rate"), model, machine, precision),
        framework,
        machine,
        ranks,
        ppn,
        memory,
        _policy(record, directory),
        precision,
        parse_int("passes", record.get("passes", 1), MAX_PASSES),
        parse_share("noise", record.get("noise", 0)),
        parse_published(record.get("published", [])),
        _one_of("scaling", record.get("scaling", WEAK), (WEAK, STRONG)),
    )


def _machine(record: Mapping[str, Any], directory: Path) -> Machine:
    entry = record["topology"]
    machine = (
        load_machine(entry, directory) if isinstance(entry, str) else machine_from_record(entry)
    )
    if "calibration" not in record:
        return machine
    return replace(machine, calibration=read_calibration(_file(record, "calibration", directory)))


def _file(record: Mapping[str, Any], key: str, directory: Path) -> Path:
    """Return the file that a key names; raise InputError for what is no name."""
    named = record[key]
    if not isinstance(named, str):
        raise InputError(f"{key} is the name of a file, not {shortened_repr(named)}")
    return directory / named


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


def _rate(entry: Any, model: Model, machine: Machine, precision: str) -> ComputeRate:
    if entry is not None:
        return ComputeRate(parse_positive_float("rate", entry), "the workload", "given")
    if model.unit == SECONDS:
        alone = 1 / (model.forward + model.backward)
        return ComputeRate(alone, f"times of {model.name}", "given", has_update=False)
    product = machine.spec.product if machine.spec else ""
    return find_rate(model, product, precision, build_model)


def _with_host_memory(record: Mapping[str, Any], framework: Framework) -> Mapping[str, Any]:
    """Return the record with host memory if all exchanges of its framework go through it."""
    if not isinstance(framework, GatherAverage):
        return record
    if record.get("memory", HOST) != HOST:
        raise InputError(
            "memory: shm-learn-dist exchanges everything through host memory: leave memory out"
        )
    return {**record, "memory": HOST}


def _places(record: Mapping[str, Any], machine: Machine) -> tuple[tuple[int, ...], int, str]:
    """Return the numbers of ranks, those of a node, and the memory of the buffers.

    Raises InputError for ranks that the machine has no nodes or no GPUs for.
    """
    gpus, nodes = gpus_per_node(machine.topology), len(machine.topology.nodes)
    ranks = parse_ranks(record["ranks"])
    ppn = parse_int("ppn", record.get("ppn", gpus or 1), MAX_RANKS)
    memory = _one_of("memory", record.get("memory", CUDA if gpus else HOST), (HOST, CUDA))
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
    return ranks, ppn, memory


def parse_ranks(entry: Any) -> tuple[int, ...]:
    """Return numbers of ranks, ascending; raise InputError for anything else or none."""
    listed = entry if isinstance(entry, list) else [entry]
    if not listed:
        raise InputError("ranks must be a number of ranks or a list of them")
    return tuple(sorted({parse_int("ranks", one, MAX_RANKS) for one in listed}))


def _one_of(what: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InputError(f"{what} is one of {', '.join(known)}, not {shortened_repr(value)}")
    return str(value)


def _known_algorithm(name: Any) -> str:
    offered = algorithms.available_capabilities(NETWORK_CAPABILITIES, True, 2, 2)
    known = {
        one for collective in Collective for one in algorithms.algorithm_names(collective, offered)
    }
    if name not in known:
        raise InputError(
            f"algorithms: there is no algorithm {shortened_repr(name)}"
            f"{did_you_mean(str(name), known)}; see `tuner algorithms`"
        )
    return str(name)


def _policy(record: Mapping[str, Any], directory: Path) -> AlgorithmPolicy:
    entry = record.get("algorithms", DEFAULT)
    default: AlgorithmPolicy = NcclChoice()
    if "defaults" in record:
        default = LibraryDefault.from_measurements(_file(record, "defaults", directory))
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
