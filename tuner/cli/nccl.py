"""Say what NCCL expects of its algorithms on a machine, and which one it would choose."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tuner.cli import parsing
from tuner.cli.output import add_json, emit, print_table
from tuner.collective import Collective
from tuner.errors import InputError
from tuner.libraries import nccl
from tuner.topologies.machines import load_machine
from tuner.topology import GPU, Placement
from tuner.units import format_size, format_time

EXAMPLES = """examples:
  tuner nccl --topology preset:dgx-h100:4 --sizes 8,64KiB,1MiB,64MiB,1GiB
  tuner nccl --topology preset:dgx-h100:4 --sizes 1GiB --collnet --all
  tuner nccl --topology preset:summit:64 --version 2.4.8 --sizes 16MiB,128MiB --json

Times are NCCL's own estimates from the constants in its source (docs/nccl.md), not measured."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topology", required=True, metavar="FILE", help="a file, or preset:NAME[:NODES]"
    )
    parser.add_argument("--ppn", type=parsing.positive, help="GPUs per node (default: all)")
    parser.add_argument("--p", type=parsing.positive, help="ranks (default: all nodes)")
    parser.add_argument(
        "--collective", type=parsing.collective, default=Collective.ALLREDUCE,
        help="default: allreduce",
    )  # fmt: skip
    parser.add_argument("--sizes", type=parsing.sizes, required=True, help="such as 1KiB,1MiB")
    parser.add_argument(
        "--version", choices=nccl.VERSIONS, default=nccl.CURRENT,
        help=f"release of NCCL (default: {nccl.CURRENT})",
    )  # fmt: skip
    parser.add_argument(
        "--collnet", action="store_true", help="let the network's switches reduce (SHARP)"
    )
    parser.add_argument("--all", action="store_true", help="list every algorithm and protocol")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the choice per size, or everything it was chosen from."""
    topology = load_machine(options.topology).topology
    interior = topology.nodes[0].interior
    gpus = len(interior.numbers(GPU)) if interior else 0
    if not gpus:
        raise InputError(f"topology {topology.name} has no GPUs in its nodes: choose another one")
    ppn = gpus if options.ppn is None else options.ppn
    placement = Placement.consecutive(topology, ppn, options.p)
    fleet = nccl.fleet_of(placement, options.collnet)
    records = list(_records(options, fleet))
    emit(options, records, lambda: _print(options, fleet, topology.name, records))


def _records(options: argparse.Namespace, fleet: nccl.Fleet) -> Iterator[dict[str, Any]]:
    for nbytes in options.sizes:
        times = nccl.times(fleet, options.collective, nbytes, options.version)
        chosen = nccl.incumbent(fleet, options.collective, nbytes, options.version)
        for way in sorted(times, key=times.__getitem__):
            if options.all or options.json or way == chosen:
                yield {
                    "collective": options.collective.value, "nbytes": nbytes,
                    "algorithm": way.algorithm, "protocol": way.protocol,
                    "seconds": times[way], "chosen": way == chosen,
                }  # fmt: skip


def _print(
    options: argparse.Namespace, fleet: nccl.Fleet, name: str, records: list[dict[str, Any]]
) -> None:
    print_table(
        f"NCCL {options.version}, {options.collective} of {fleet.p} GPUs on {name}:"
        f" {fleet.ring.channels} rings of {fleet.ring.inter / 1e9:g} GB/s",
        ("size", "algorithm", "protocol", "expected", "GB/s", ""),
        (
            (
                format_size(record["nbytes"]), record["algorithm"], record["protocol"],
                format_time(record["seconds"]),
                f"{record['nbytes'] / record['seconds'] / 1e9:.1f}",
                "chosen" if record["chosen"] and options.all else "",
            )
            for record in records
        ),
        right=("size", "expected", "GB/s"),
    )  # fmt: skip
