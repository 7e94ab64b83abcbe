"""Predict how long algorithms take on a topology."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.algorithms import build, names
from tuner.cli import parsing
from tuner.cli.output import add_json, emit, print_table
from tuner.cost import Calibration, read_calibration
from tuner.sim import simulate
from tuner.topologies import given_calibration, load_topology
from tuner.topology import Placement
from tuner.units import format_size, format_time

EXAMPLES = """examples:
  tuner simulate --topology flat64.yaml --collective allreduce --algorithm ring --sizes 1KiB,1MiB
  tuner simulate --topology flat64.yaml --collective bcast --algorithm chain \\
      --param segment=64KiB --param chains=4 --sizes 16MiB --json
  tuner simulate --topology flat64.yaml --collective bcast --sizes 1KiB,64KiB,4MiB   (all of them)

The shortest topology file, one switch with 64 nodes:
  name: flat64
  nodes: 64
  latency: 2us
  bandwidth: 12.5GB/s"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topology", type=Path, required=True, metavar="FILE",
        help="YAML, or one computer as `lstopo --of xml` describes it",
    )  # fmt: skip
    parser.add_argument("--collective", type=parsing.collective, required=True)
    parser.add_argument("--algorithm", type=parsing.names, help="comma list (default: all)")
    parser.add_argument("--sizes", type=parsing.sizes, required=True, help="such as 1KiB,1MiB")
    parser.add_argument("--ppn", type=int, default=1, help="ranks per node (default: 1)")
    parser.add_argument("--p", type=int, help="ranks (default: all that fit)")
    parser.add_argument("--root", type=int, default=0, help="root rank (default: 0)")
    parser.add_argument("--itemsize", type=int, default=1, help="bytes of one element (default: 1)")
    parser.add_argument(
        "--param", type=parsing.parameter, action="append", default=[], metavar="NAME=VALUE",
        help="parameter of the algorithm, may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=("fast", "events"), default="fast",
        help="fast: numpy and numba; events: the SimPy reference (default: fast)",
    )  # fmt: skip
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE",
        help="measured costs instead of the latencies and bandwidths in the topology file",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print one prediction per algorithm and size."""
    topology = load_topology(options.topology)
    calibration = (
        read_calibration(options.calibration)
        if options.calibration
        else given_calibration(topology)
    )
    placement = Placement.consecutive(topology, options.ppn, options.p)
    records = list(_predictions(options, placement, calibration))
    emit(options, records, lambda: _print(topology.name, records))


def _predictions(
    options: argparse.Namespace, placement: Placement, calibration: Calibration
) -> Iterator[dict[str, Any]]:
    for algorithm in options.algorithm or names(options.collective):
        for nbytes in options.sizes:
            schedule = build(
                options.collective, algorithm, placement.p, root=options.root, nbytes=nbytes,
                params=dict(options.param),
            )  # fmt: skip
            seconds = simulate(
                schedule, placement, calibration, nbytes, options.itemsize, options.engine
            )
            yield {
                "collective": options.collective.value, "algorithm": algorithm,
                "params": dict(schedule.params), "p": placement.p, "nbytes": nbytes,
                "seconds": seconds,
            }  # fmt: skip


def _print(topology: str, records: list[dict[str, Any]]) -> None:
    print_table(
        f"{records[0]['collective']} of {records[0]['p']} ranks on {topology}",
        ("algorithm", "parameters", "size", "time"),
        (
            (
                record["algorithm"],
                _params(record["params"]),
                format_size(record["nbytes"]),
                format_time(record["seconds"]),
            )
            for record in records
        ),
        right=("size", "time"),
    )


def _params(params: Mapping[str, int]) -> str:
    """`segment=64KiB, chains=4`; an unsegmented algorithm has no segment size to tell."""
    return ", ".join(
        f"{name}={format_size(value) if name == 'segment' else value}"
        for name, value in params.items()
        if (name, value) != ("segment", 0)
    )
