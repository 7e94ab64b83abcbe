"""Emulate a cluster on this computer: a topology file in, hosts with a real network out.

Network namespaces are the hosts, a switch of our own carries their frames at exactly the rates and
latencies of the topology's links. Needs Linux and root.
"""

from __future__ import annotations

import argparse
import signal
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from tuner.base.signals import DEFERRED_INTERRUPT
from tuner.base.units import format_time, parse_duration
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import add_subcommand, print_result, print_table, print_text, warn
from tuner.cli.terminal.parser import Parser
from tuner.emulation import (
    ClusterStatus,
    EmulatedCluster,
    cluster_id_for,
    emulated_network,
    launch,
    take_down,
)
from tuner.machines.topology_files import load_topology

EXAMPLES = """examples:
  tuner emulate up docs/examples/flat8.yaml
  tuner emulate status docs/examples/flat8.yaml
  tuner emulate run docs/examples/flat8.yaml -- mpirun -n 8 python docs/examples/program.py
  tuner emulate run docs/examples/racks.yaml --ppn 2 -- mpiexec -n 16 ./program
  tuner emulate run docs/examples/racks.yaml -- bash
  tuner emulate down docs/examples/flat8.yaml

`run` brings the cluster up if it is not, runs COMMAND on its first host, where a bare mpirun or
mpiexec reaches all hosts, and takes down what it brought up. Each file has a cluster of its own;
--id makes another one."""

DASHES_HINT = "write the command after --: tuner emulate run FILE -- mpirun -n 8 ./program"


class _EmulateParser(Parser):
    """A parser whose error for a missing command says where it begins."""

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}: {DASHES_HINT}" if message.endswith("COMMAND") else message)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    kind: type[argparse.ArgumentParser] = _EmulateParser
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=kind)
    _action(actions, "up", "make hosts and network", run_up)
    _action(actions, "status", "show the hosts and what each link has carried", run_status)
    _action(actions, "down", "end what runs on the hosts, and remove them", run_down)
    run = _action(actions, "run", "run a command on the first host", run_command)
    count_option(
        run,
        "--ppn",
        "ranks that mpirun starts on each host before the next (default: 1)",
        default=1,
        metavar="N",
    )
    run.add_argument(
        "--timeout",
        type=parse_duration,
        default="3600s",
        metavar="TIME",
        help="end the command and all it started after this long (default: 3600s)",
    )
    run.add_argument(
        "command", nargs="+", metavar="COMMAND", help="program and arguments, after --"
    )
    run.set_defaults(unknown=DASHES_HINT)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: object,
) -> argparse.ArgumentParser:
    action = add_subcommand(actions, name, summary, EXAMPLES, run)
    file_option(action, "topology", "topology to emulate; see docs/how-to/describe-a-machine.md")
    action.add_argument(
        "--id", metavar="tlNAME", help="prefix of the names of the cluster's namespaces"
    )
    return action


def run_up(options: argparse.Namespace) -> None:
    """Bring the cluster up, and print whether it was up already."""
    cluster = _cluster(options.topology, options.id)
    made = _up(cluster)
    record = {"id": cluster.cluster_id, "made": made, "hosts": list(cluster.network.hosts)}
    print_result(
        options.json,
        record,
        lambda: print_text(f"{_describe_cluster(cluster)} {'is up' if made else 'was up already'}"),
    )


def run_down(options: argparse.Namespace) -> None:
    """Take the cluster down, whatever its file says by now, and print whether it was up."""
    prefix = options.id or cluster_id_for(options.topology)
    removed = take_down(prefix)
    record = {"id": prefix, "removed": removed}
    print_result(
        options.json,
        record,
        lambda: print_text(f"cluster {prefix} {'is down' if removed else 'was not up'}"),
    )


def run_status(options: argparse.Namespace) -> None:
    """Print one line per link."""
    cluster = _cluster(options.topology, options.id)
    status = cluster.status()
    record = {"id": cluster.cluster_id, "hosts": list(cluster.network.hosts), **asdict(status)}
    print_result(options.json, record, lambda: _print_status(cluster, status))


def run_command(options: argparse.Namespace) -> int:
    """Run a command on the first host, and return its exit status."""
    cluster = _cluster(options.topology, options.id)
    signal.signal(signal.SIGHUP, DEFERRED_INTERRUPT.handler)  # as Ctrl-C: nothing may stay behind
    made = _up(cluster)
    try:
        return launch.run(cluster, options.command, ppn=options.ppn, timeout=options.timeout)
    finally:
        if made:
            cluster.down()


def _cluster(file: Path, given: str | None) -> EmulatedCluster:
    """Return the cluster of a topology file, with the given prefix or the file's own."""
    return EmulatedCluster(given or cluster_id_for(file), emulated_network(load_topology(file)))


def _up(cluster: EmulatedCluster) -> bool:
    made = cluster.up()
    for warning in cluster.network.warnings if made else ():
        warn(warning)
    return made


def _describe_cluster(cluster: EmulatedCluster) -> str:
    hosts = len(cluster.network.hosts)
    return f"cluster {cluster.cluster_id} ({cluster.network.name}, {hosts} hosts)"


def _print_status(cluster: EmulatedCluster, status: ClusterStatus) -> None:
    counters = status.counters
    if counters is None:
        part = "is partly there: take it down, or up again" if status.is_partial else "is not up"
        print_text(f"{_describe_cluster(cluster)} {part}")
        return
    rows = (
        [
            link.source,
            link.target,
            f"{8e-6 * wire.capacity:g}Mbit/s",
            format_time(wire.latency),
            f"{link.nbytes:,}",
            f"{link.frames:,}",
            format_time(link.max_queue_time),
        ]
        for link, wire in zip(counters.links, cluster.network.links, strict=True)
    )
    columns = ("from", "to", "rate", "latency", "bytes", "frames", "longest wait")
    print_table(f"{_describe_cluster(cluster)} is up", columns, rows, right=columns[2:])
    print_text(
        f"{counters.frames:,} frames, {counters.dropped_frames} lost; late by at most"
        f" {format_time(counters.lateness_quantile(0.5))} (half of them),"
        f" {format_time(counters.lateness_quantile(0.99))}"
        f" (99 %), {format_time(counters.max_lateness)} (all)"
    )
    if not counters.real_time:
        print_text("the switch has no real-time priority, which makes its times less exact")
