"""Which hosts are measured, and what of them: options of the verbs that start ranks on several."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli import argument_types
from tuner.cli.output import warn
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.path_classes import CONSECUTIVE
from tuner.launch import LOCAL, Hosts, Launcher, Template, from_environment, hosts
from tuner.launch.template import usual_template
from tuner.machines.topology_files import load_topology
from tuner.probe import probe_spec
from tuner.topology import Topology


def arguments(group: argparse._ArgumentGroup) -> None:
    """Declare the options."""
    place(group)
    group.add_argument(
        "--ppn",
        type=argument_types.positive,
        help="ranks per host (default: what the list says, or 1)",
    )
    group.add_argument(
        "--shapes",
        type=_shapes,
        default=(),
        metavar="HOSTSxRANKS,...",
        help="communicators to measure, or without hosts those for which rules are wanted,"
        " such as 2x1,4x1,4x2 (default: 2, 3, 4, 6, 8 ... hosts with one rank and with --ppn)",
    )
    group.add_argument(
        "--placements",
        type=_placements,
        default=(CONSECUTIVE,),
        metavar="KIND,...",
        help="of ranks on hosts, in which communicators with several on each of several hosts are"
        " measured: consecutive (default), or cyclic, dealt to the hosts one by one; without hosts"
        " a table has rules for those that were measured",
    )
    group.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="of the hosts, in any format that `tuner topo` reads: a pair of hosts for every"
        " distance and pairs for every kind of uplink are then measured",
    )
    group.add_argument(
        "--collectives",
        type=_collectives,
        default=(Collective.BCAST, Collective.ALLREDUCE),
        metavar="NAME,...",
        help="to measure, such as bcast,allreduce,allgather,reduce,gather,scatter (default:"
        " bcast,allreduce)",
    )
    group.add_argument(
        "--schedules",
        type=argument_types.names,
        default=(),
        metavar="NAME,...",
        help="algorithms of ours to measure beside the library's, as `tuner algorithms` lists them,"
        f" or {probe_spec.ALL}",
    )
    group.add_argument(
        "--repetitions",
        type=argument_types.positive,
        default=probe_spec.FEWEST,
        help=f"of every algorithm at least (default: {probe_spec.FEWEST})",
    )
    group.add_argument("--name", default="", help="of the cluster (default: what its hosts share)")


def place(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare where ranks are started, and how."""
    where = group.add_mutually_exclusive_group()
    where.add_argument("--hosts", type=hosts.listed, help="such as node1,node2:4 or n[0-511]")
    where.add_argument(
        "--hostfile",
        type=Path,
        metavar="FILE",
        help="one host a line, as NAME, NAME:4 or NAME slots=4",
    )
    group.add_argument(
        "--launch",
        type=Template.parse,
        metavar="WORDS",
        help="openmpi, mpich, srun, jsrun, or a command with {n} {ppn} {nodes} {hosts} {slots}"
        " {program} (default: srun or jsrun inside their jobs, else the library's own)",
    )


def _shapes(text: str) -> tuple[probe_spec.Shape, ...]:
    return tuple(probe_spec.shape(part) for part in text.split(","))


def _placements(text: str) -> tuple[str, ...]:
    found = argument_types.names(text)
    probe_spec.check_placements(found)
    return found


def _collectives(text: str) -> tuple[Collective, ...]:
    return tuple(argument_types.collective(name) for name in argument_types.names(text))


def given(options: argparse.Namespace) -> Hosts:
    """Those named; without any, this computer. Raises InputError for a file that lists none."""
    if options.hostfile is not None:
        return hosts.read(options.hostfile)
    named: Hosts = options.hosts or LOCAL
    return named


def hosts_of(options: argparse.Namespace) -> Hosts:
    """Those given, else those of the job; without any, this computer."""
    there = given(options)
    if not there.local:
        return there
    found = from_environment()
    return found if len(found.names) > 1 or options.launch else LOCAL


def launcher_of(options: argparse.Namespace, python: Path) -> Launcher:
    """What starts ranks on them; raises ProbeError if it is not there."""
    template = options.launch or usual_template(options.library)
    return Launcher.find(options.library, python, template)


def request_of(options: argparse.Namespace, there: Hosts) -> probe_spec.Request:
    """Raises InputError for a topology that cannot be read."""
    given = {"sizes": options.sizes} if options.sizes is not None else {}
    topology = load_topology(options.topology) if options.topology else None
    return probe_spec.Request(
        options.library,
        there,
        options.ppn or max(there.slots, 1),
        shapes=options.shapes,
        placements=options.placements,
        parts=options.parts,
        target=options.target,
        fewest=options.repetitions,
        topology=topology,
        collectives=options.collectives,
        schedules=options.schedules,
        thread_level=options.thread_level,
        **given,
    )


def read_measured(path: Path, topology: Path | None) -> tuple[Measurements, Topology | None]:
    """Measurements, and the topology of their cluster if one is given; says where that changes
    little. Raises InputError for what cannot be read.
    """
    found = load_topology(topology) if topology else None
    measurements = read_measurements(path)
    if found and measurements.cluster.nodes == 1:
        warn(f"{path}: measured on one host: of --topology only the inside of a node is used")
    return measurements, found
