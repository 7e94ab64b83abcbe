"""Make programs on NCCL or RCCL follow a table, or say what NCCL expects of its algorithms."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.units import format_size, format_time, plural
from tuner.cli.commands import nccl_backends
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import (
    add_subcommand,
    print_cautions,
    print_command,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.core.collective import Collective
from tuner.core.table import TuningTable, parse_table, read_table
from tuner.formats.nccl.plugin import Installed, install, installation_summary, usage_command
from tuner.formats.registry import FORMATS
from tuner.machines.loader import load_machine, machine_warnings
from tuner.machines.model_accuracy import NCCL, SizedCall
from tuner.mpi_libraries import nccl
from tuner.runtime import service_client
from tuner.runtime.table_source import resolve_request
from tuner.topology import GPU, Placement
from tuner.topology.readers.gpu_products import with_gpu
from tuner.workflows.native_files import omitted_rules_note

# First NCCL that loads the plugin; it does not check what the plugin returns.
FIRST_PLUGIN_VERSION = (2, 21)
# Algorithms that the plugin therefore returns to it.
FIRST_VERSION_ALGORITHMS = ("ring_ll", "ring_simple", "tree_ll", "tree_simple")
EXAMPLES = """examples:
  tuner nccl install table.json --out ~/tuner-nccl
  tuner nccl install --service http://head:8765 --library "nccl 2.30.7" --out ~/tuner-nccl
  tuner nccl estimate --topology preset:dgx-h100:4 --sizes 8,64KiB,1MiB,64MiB,1GiB
  tuner nccl estimate --topology preset:dgx-h100:4 --sizes 1GiB --collnet --all
  tuner nccl estimate --topology preset:dgx-h100:4 --collective alltoall --sizes 8,1MiB,1GiB
  tuner nccl estimate --topology preset:summit:64 --version 2.4.8 --sizes 16MiB,128MiB --json
  tuner nccl estimate --topology preset:dgx-b200:1 --version 2.29.7 --sizes 4MiB,16MiB --all
  tuner nccl estimate --topology preset:dgx-h100:2 --version 2.20.3 --sizes 8,1MiB,256MiB
  tuner nccl estimate --topology preset:mi300x:2 --sizes 8,64KiB,1MiB,64MiB

`install` compiles a tuner plugin, which PyTorch, JAX and TensorFlow load with NCCL: see
docs/how-to/nccl.md. The folder must be one that all nodes of a job see, or be copied to the same
path on each. Calls without a rule stay NCCL's own. On AMD's GPUs RCCL stands for NCCL.

`expected` is NCCL's own expectation, from the constants in its source, by which it chooses;
`predicted` corrects that for what published results show, from version 2.18 on: an algorithm in a
protocol takes the same time in all of these, but for all-to-alls in LL. The results were of 2.27
and later. GB/s are bytes of the buffer in the predicted time, or else in the expected one. An
all-to-all is made of sends and receives, of which NCCL expects nothing: it has a predicted time
alone."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    installing = add_subcommand(
        actions,
        "install",
        "compile the tuner plugin and write the rules of a table beside it",
        EXAMPLES,
        run_install,
    )
    installing.add_argument("table", type=Path, nargs="?", help="tuning table for nccl or rccl")
    file_option(installing, "--out", "directory to install to", required=True, metavar="FOLDER")
    installing.add_argument(
        "--service", metavar="URL", help="take the table that this service publishes"
    )
    installing.add_argument(
        "--library",
        default="",
        metavar="NAME",
        help="library whose table to fetch (with --service), such as 'nccl 2.30.7'",
    )
    installing.add_argument(
        "--cluster",
        metavar="NAME",
        help="cluster whose table to fetch (with --service), where several have one for the"
        " library",
    )
    _declare_estimate(
        add_subcommand(
            actions,
            "estimate",
            "say what NCCL expects of its algorithms, and which it would take",
            EXAMPLES,
            run_estimate,
        )
    )
    nccl_backends.arguments(
        add_subcommand(
            actions,
            "backends",
            "say how far inference engines use their own all-reduce before NCCL",
            nccl_backends.EXAMPLES,
            nccl_backends.run_backends,
        )
    )


def _declare_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology", required=True, metavar="FILE", help="topology file, or preset:NAME[:NODES]"
    )
    count_option(parser, "--ppn", "GPUs per node (default: all)")
    count_option(parser, "--ranks", "ranks (default: all nodes)")
    parser.add_argument(
        "--collective",
        type=argument_types.collective,
        default=Collective.ALLREDUCE,
        help="collective (default: allreduce)",
    )
    parser.add_argument(
        "--sizes", type=argument_types.size_list, required=True, help="sizes, such as 1KiB,1MiB"
    )
    parser.add_argument(
        "--version",
        type=_known_version,
        choices=nccl.VERSIONS,
        default=nccl.CURRENT_VERSION,
        help="release of NCCL; others count as the newest of these that is not newer"
        f" (default: {nccl.CURRENT_VERSION})",
    )
    parser.add_argument(
        "--collnet", action="store_true", help="let the network's switches reduce (SHARP)"
    )
    parser.add_argument(
        "--gpu", metavar="PRODUCT", help="GPU of the nodes, such as GH200, where no file says it"
    )
    parser.add_argument("--all", action="store_true", help="list every algorithm and protocol")


def run_install(options: argparse.Namespace) -> None:
    """Install the plugin and print how programs load it."""
    table = _table(options.table, options.service, options.library, options.cluster)
    FORMATS["nccl"].require_library(table)
    held = table.held_by_files()
    installed = install(held, options.out)
    cautions = list(_cautions(held, installed))
    record = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(installed).items()
    }
    record |= {
        "usage": usage_command(installed),
        "left_to_library": sum(rule.choice.is_default for rule in held.rules),
        "cyclic_left_out": len(table.rules) - len(held.rules),
        "cautions": cautions,
    }

    def show() -> None:
        print_text(f"{installation_summary(installed)}{omitted_rules_note(table)}")
        print_cautions(cautions)
        print_command("use it, on every node:", usage_command(installed))
        print_text(f"(with NCCL_DEBUG=INFO each rank logs the rules' digest, {installed.digest})")

    print_result(options.json, record, show)


def _known_version(text: str) -> str:
    """Return the version of those known whose choice is that of a version, or `text` if none is."""
    return nccl.known_release(text) or text


def _cautions(table: TuningTable, installed: Installed) -> Iterator[str]:
    """Yield sentences on rules that NCCL of the table's version will not follow as they are."""
    name, _, words = table.library.partition(" ")
    version = tuple(int(word) for word in words.split(".")[:2] if word.isdigit())
    rules = [rule for rule in table.rules if not rule.choice.is_default]
    if not installed.n_rules:
        yield "no rule names an algorithm: NCCL decides everything"
    if name == "nccl" and version < FIRST_PLUGIN_VERSION:
        first = _dotted(FIRST_PLUGIN_VERSION)
        yield f"{table.library} does not load this plugin: NCCL {first} is the first"
    elif name == "nccl" and version == FIRST_PLUGIN_VERSION:
        few = sorted({rule.choice.algorithm for rule in rules} - {*FIRST_VERSION_ALGORITHMS})
        if few:
            yield (
                f"rules for {', '.join(few)} are left to NCCL {_dotted(FIRST_PLUGIN_VERSION)},"
                f" which is told {', '.join(FIRST_VERSION_ALGORITHMS)} alone"
            )
    unlimited = sum(
        "channels" in rule.choice.params
        and (
            rule.choice.algorithm.startswith("collnet")
            or (rule.choice.algorithm == "nvls_simple" and rule.key.nodes > 1)
        )
        for rule in rules
    )
    if unlimited:
        yield (
            f"the channels of {plural(unlimited, 'rule')} are not set: NCCL does not limit them for"
            " CollNet, and for NVLS on several nodes"
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _table(
    path: Path | None, service: str | None, library: str, cluster: str | None
) -> TuningTable:
    """Return the table of the file or the service; raise InputError."""
    if (path is None) == (service is None):
        raise InputError("give either a table or --service")
    if path is not None:
        if library or cluster:
            raise InputError("--library and --cluster belong to --service: leave them out")
        return read_table(path)
    if not library:
        raise InputError("--service needs --library, such as --library 'nccl 2.30.7'")
    fetched = service_client.fetch_table(resolve_request(library, service=service, cluster=cluster))
    warn(fetched.note)
    return parse_table(fetched.text)


def run_estimate(options: argparse.Namespace) -> None:
    """Print the algorithm that NCCL is expected to choose per size, or all with their costs."""
    machine = load_machine(options.topology)
    if options.gpu:
        machine = replace(machine, topology=with_gpu(machine.topology, options.gpu))
    topology = machine.topology
    warn(*machine_warnings(machine, has_latency=True))
    interior = topology.nodes[0].node_topology
    gpus = len(interior.device_indices(GPU)) if interior else 0
    if not gpus:
        raise InputError(f"topology {topology.name} has no GPUs in its nodes: choose another one")
    ppn = gpus if options.ppn is None else options.ppn
    placement = Placement.block(topology, ppn, options.ranks)
    collective, version = options.collective, options.version
    predictor = nccl.NcclPredictor(placement, options.collnet, version=version)
    records = [
        record
        for nbytes in options.sizes
        for record in _records(predictor, collective, nbytes)
        if options.all or options.json or record["chosen"]
    ]

    def show() -> None:
        is_current = version == nccl.CURRENT_VERSION
        library = predictor.formulas.title if is_current else f"NCCL {version}"
        made = _made_of(predictor, collective)
        title = f"{library}, {collective} of {placement.p} GPUs on {topology.name}: {made}"
        _print(title, records, all_listed=options.all)
        if version in nccl.RELEASES:
            nodes = predictor.system.nodes
            calls = [SizedCall(collective, nodes, nbytes) for nbytes in options.sizes]
            cautions = nccl.version_cautions(version, predictor.system.compute_capability)
            print_text(" ".join([machine.accuracy_sentence({NCCL: calls}), *cautions]))

    print_result(options.json, records, show)


def _made_of(predictor: nccl.NcclPredictor, collective: Collective) -> str:
    """Return what a title says of the channels; NCCL opens others for sends and receives."""
    if collective in nccl.POINT_TO_POINT:
        return "sends and receives"
    rings = predictor.system.ring
    return f"{rings.channels} rings of {rings.bw_inter / 1e9:g} GB/s"


def _records(
    predictor: nccl.NcclPredictor, collective: Collective, nbytes: int
) -> Iterator[dict[str, Any]]:
    """Yield what NCCL expects, and what is predicted from 2.18 on."""
    expected = predictor.expected_seconds(collective, nbytes)
    chosen = predictor.chosen_algo_proto(collective, nbytes)
    predicted = dict[nccl.AlgoProto, float]()
    if predictor.version in nccl.RELEASES:
        predicted = predictor.predicted_seconds(collective, nbytes)
    times = expected or predicted
    for way in sorted(times, key=times.__getitem__):
        yield {
            "collective": collective.value,
            "nbytes": nbytes,
            "algorithm": way.algorithm,
            "protocol": way.protocol,
            "seconds": expected.get(way),
            "predicted_seconds": predicted.get(way),
            "chosen": way == chosen,
        }


def _print(title: str, records: list[dict[str, Any]], *, all_listed: bool) -> None:
    print_table(
        title,
        ("size", "algorithm", "protocol", "expected", "predicted", "GB/s", ""),
        (
            (
                format_size(record["nbytes"]),
                record["algorithm"],
                record["protocol"],
                _time(record["seconds"]),
                _time(record["predicted_seconds"]),
                f"{_rate(record) / 1e9:.1f}",
                "chosen" if record["chosen"] and all_listed else "",
            )
            for record in records
        ),
        right=("size", "expected", "predicted", "GB/s"),
    )


def _time(seconds: float | None) -> str:
    """Return a time; empty where NCCL expects none, and for a version without predictions."""
    return "" if seconds is None else format_time(seconds)


def _rate(record: dict[str, Any]) -> float:
    """Return bytes of the buffer per second."""
    seconds = record["predicted_seconds"] or record["seconds"]
    return float(record["nbytes"] / seconds)
