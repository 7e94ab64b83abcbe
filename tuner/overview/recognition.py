"""Recognition of files by their contents, and the overview of each kind."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import required_settings
from tuner.base.units import format_size, format_time, humanize, plural
from tuner.core.collective import Collective
from tuner.formats.file_rules import join_lines
from tuner.formats.registry import Format, recognise_format
from tuner.importers import INSPECTOR, UserMetadata, detect_results
from tuner.importers.inspector_files import is_inspector_file
from tuner.machines import Machine
from tuner.machines.loader import load_machine, machine_from_text, machine_warnings
from tuner.machines.topology_files import (
    FORMAT_PATTERNS,
    OWN_KIND,
    OWN_TOPOLOGY,
    detect_topology_format,
)
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.overview.overview import Command, Overview, command
from tuner.overview.own_files import own_overview
from tuner.overview.results import results_overview
from tuner.topology import GPU, NIC
from tuner.topology.readers.safe_yaml import parse_yaml
from tuner.training.model import Model
from tuner.training.recorded import COMPUTE, HOST
from tuner.training.workload_files import is_workload, load_workload
from tuner.training.workload_files.chakra import SUFFIX
from tuner.training.workload_files.file_contents import GZIP_MAGIC, is_text, read_contents

SQLITE_HEADER = b"SQLite format 3\0"  # section 1.3.1 of https://sqlite.org/fileformat.html
FORMS = (
    "results of OSU, IMB, nccl-tests, ucc_perftest, PICO or NCCL's Inspector, tables (CSV),"
    " topologies, rules files of MPI libraries, NCCL and UCC, traces and workloads of training, and"
    " tuner's own files"
)


def open_file(reference: str, told: UserMetadata, *, is_trusted: bool = True) -> Overview:
    """Return the overview of a file, or of the machine of `preset:NAME`.

    told        what the user says of results whose file does not
    is_trusted  whether a topology may name other files on this computer

    Raises InputError for a file that cannot be read or is in no known form.
    """
    path = Path(reference)
    if reference.startswith(PRESET_PREFIX):
        return machine_overview(path)
    if _is_folder(path) or is_inspector_file(path):
        return results_overview(path, INSPECTOR, told)
    try:
        data = read_contents(path)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    if data.startswith(SQLITE_HEADER):
        return Overview(
            reference,
            "a database of tuner's service",
            commands=[command("serve it:", "tuner", "serve", "--db", f"sqlite:///{path}")],
        )
    data = data.removeprefix(BOM_UTF8)
    with path.open("rb") as file:
        is_packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    if is_packed or not is_text(data):
        return _open_binary(path, is_packed=is_packed)
    return _open_text(path, data.decode("utf-8"), told, is_trusted)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        raise InputError(f"{shortened_repr(str(path))}: expected the name of a file") from None


def _open_binary(path: Path, *, is_packed: bool) -> Overview:
    """Return the overview of a trace, which alone may be binary or compressed."""
    try:
        return trace_overview(path)
    except InputError as reason:
        if SUFFIX in path.suffixes:
            raise
        if is_packed:
            raise InputError(f"{path}: only traces are read compressed: unpack it") from reason
        raise InputError(f"{path}: expected text in UTF-8 or a trace of Chakra") from reason


def _open_text(path: Path, text: str, told: UserMetadata, is_trusted: bool) -> Overview:
    kind = OWN_KIND.match(text)
    if kind is not None and kind[1] != OWN_TOPOLOGY:
        return own_overview(path, kind[1])
    record = _mapping(text)
    if {"traceEvents", "workload_graph"} & record.keys() or {"schema", "nodes"} <= record.keys():
        return trace_overview(path)
    if (form := _format_of_results(text)) is not None:
        return results_overview(path, form, told)
    if record and (found := _settings_overview(path, record)):
        return found
    if _is_topology(text, record):
        return machine_overview(path, "" if is_trusted else text)
    if (rules := _rules_format(text)) is not None:
        return rules_overview(path, rules, text)
    is_other_json = bool(record) and text.lstrip()[:1] == "{"
    if not is_other_json and is_workload(text.encode()):
        return trace_overview(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise InputError(
        f"{path}: in no form that is read ({FORMS}); it begins with {shortened_repr(first)}"
    )


def _mapping(text: str) -> Mapping[str, Any]:
    """Return the mapping that a JSON or YAML text holds; an empty one for all other texts."""
    try:
        record = json.loads(text) if text.lstrip()[:1] in ("{", "[") else parse_yaml(text)
    except (InputError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _settings_overview(path: Path, record: Mapping[str, Any]) -> Overview | None:
    """Return the overview of a study or a training workload; None if it lacks their settings."""
    # These need numba and SciPy, which other files do not.
    from tuner.training.workload_settings import RecordedSettings, SweepSettings, WorkloadSettings
    from tuner.whatif.study_spec import StudySettings

    for settings, kind, verb in (
        (StudySettings, "a study", "study"),
        (SweepSettings, "a sweep of training", "training sweep"),
        (WorkloadSettings, "a training workload", "training run"),
        (RecordedSettings, "a training workload of a recorded iteration", "training run"),
    ):
        if required_settings(settings) <= record.keys():
            run = command("run it:", "tuner", *verb.split(), path)
            return Overview(str(path), kind, ["its settings are checked when it runs"], (), [run])
    return None


def _format_of_results(text: str) -> str | None:
    try:
        form = detect_results(text)
    except InputError:
        return None
    is_json = text.lstrip().startswith("{")
    return None if is_json and form != INSPECTOR and '"results"' not in text else form


def _is_topology(text: str, record: Mapping[str, Any]) -> bool:
    """Return whether a text is a topology, one in YAML by its outermost keys or its first line."""
    try:
        form = detect_topology_format(text)
    except InputError:
        return False
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    head = "\n".join(f"{key}:" for key in record) or next(lines, "")
    return form != "yaml" or FORMAT_PATTERNS["yaml"].search(head) is not None


def _rules_format(text: str) -> Format | None:
    try:
        return recognise_format(text)
    except InputError:
        return None


def rules_overview(path: Path, form: Format, text: str) -> Overview:
    """Return the overview of a rules file of a library; raise InputError for a damaged one."""
    try:
        found = form.read(text.replace("\r\n", "\n"), form.libraries[0])
        cautions = found.all_cautions().items()
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    rules = [rule for rule in found.rules if rule.is_written]
    names = [*dict.fromkeys(rule.collective for rule in rules)]
    asked = next(name for name in (*names, "allreduce") if name in list(Collective))
    words = ["--collective", asked, "--ranks", "RANKS", "--nodes", "NODES", "--size", "SIZE"]
    return Overview(
        str(path),
        f"a rules file ({form.name})",
        [
            f"{plural(len(rules), 'rule')} for {', '.join(names) or 'no collective'}",
            *(f"caution: {join_lines(lines)}: {humanize(each)}" for each, lines in cautions),
        ],
        commands=[command("explain a call:", "tuner", "table", "explain", path, *words)],
        libraries=form.libraries,
    )


def machine_overview(path: Path, text: str = "") -> Overview:
    """Return the overview of a machine, of a topology file or a preset; raises InputError.

    text    text of the file if it must not name other files
    """
    machine = machine_from_text(text) if text else load_machine(str(path))
    return Overview(
        str(path),
        "a machine",
        [*_machine_facts(machine)],
        commands=[
            command("show it:", "tuner", "topology", "show", path),
            command(
                "predict times:",
                "tuner",
                "simulate",
                "--topology",
                path,
                "--collective",
                "allreduce",
                "--sizes",
                "8,1MiB,64MiB",
            ),
            command("compare with results:", "tuner", "open", "RESULTS", path),
        ],
        machine=machine,
    )


def _machine_facts(machine: Machine) -> Iterator[str]:
    """Yield sentences on nodes, cables and costs."""
    topology = machine.topology
    inside = topology.nodes[0].node_topology
    devices = Counter((one.kind, one.product) for one in inside.devices) if inside else Counter()
    parts = [
        f", {count} x {product or kind}"
        for (kind, product), count in devices.items()
        if kind in (GPU, NIC)
    ]
    nodes, cores = plural(len(topology.nodes), "node"), plural(topology.nodes[0].cores, "core")
    yield f"{machine.name}: {nodes} of {cores}{''.join(parts)}"
    rates = sorted({link.capacity / link.count for link in topology.links})
    if rates:
        yield f"cables of {' and '.join(f'{rate / 1e9:.4g} GB/s' for rate in rates)}"
    yield from filter(None, machine_warnings(machine))


def trace_overview(path: Path) -> Overview:
    """Return the overview of a model, or of a recorded iteration of training; raises InputError."""
    found = load_workload(path)
    if isinstance(found, Model):
        elements = sum(layer.elements for layer in found.layers)
        facts = [f"{found.name}: {plural(len(found.layers), 'layer')}, {elements:,} parameters"]
        settings = f"model: {{file: {path}}}"
        return Overview(str(path), "a model", facts, commands=[_run_command(settings)])
    calls = [step for step in found.steps if step.collective]
    computed, hosted = (
        [step.seconds for step in found.steps if step.stream == stream]
        for stream in (COMPUTE, HOST)
    )
    beside = f", {format_time(sum(hosted))} of the host in {plural(len(hosted), 'step')}"
    places = [f"on {plural(found.ranks, 'rank')}"] * bool(found.ranks)
    places += [f"on {found.gpu}"] * bool(found.gpu)
    facts = [
        f"{found.name}: {format_time(sum(computed))} of computing in"
        f" {plural(len(computed), 'step')}{beside * bool(hosted)}, {plural(len(calls), 'call')}"
        + (f", recorded {' '.join(places)}" if places else ""),
        *found.notes,
        *(f"calls left out: {name}" for name in found.unread),
    ]
    moved = Counter[str]()
    for step in calls:
        moved[step.collective] += step.nbytes
    counts = Counter(step.collective for step in calls)
    sent = [
        f"{name}: {plural(counts[name], 'call')} of {format_size(nbytes)}"
        + " together" * (counts[name] > 1)
        for name, nbytes in moved.most_common()
    ]
    return Overview(
        str(path),
        "a recorded iteration of training",
        [*facts, *sent],
        commands=[_run_command(f"recorded: {path}")],
    )


def _run_command(settings: str) -> Command:
    purpose = f"on a machine, where job.yaml has `{settings}`, `topology: MACHINE`, `ranks: N`:"
    return command(purpose, "tuner", "training", "run", "job.yaml")
