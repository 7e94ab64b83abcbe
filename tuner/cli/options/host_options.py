"""The options of verbs that start ranks on several hosts."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.base.errors import InputError
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import warn
from tuner.core.call_profile import read_call_profile, typical_sizes
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.path_classes import BLOCK
from tuner.launch import (
    LOCAL_HOST,
    Hosts,
    Launcher,
    LauncherTemplate,
    hosts,
    hosts_from_environment,
)
from tuner.launch.template import default_template
from tuner.machines.topology_files import load_topology
from tuner.probe import probe_spec
from tuner.probe.single_host import DEFAULT_COLLECTIVES
from tuner.topology import Topology


def add_measurement_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options of a measurement on hosts."""
    add_host_options(group)
    count_option(group, "--ppn", "ranks per host (default: what the list says, or 1)")
    group.add_argument(
        "--shapes",
        type=_shapes,
        default=(),
        metavar="HOSTSxRANKS,...",
        help="communicators to measure, or without hosts those for which rules are wanted,"
        " such as 2x1,4x1,4x2 (default: with one rank and with --ppn on 2, 3, 4, 6, 8 ... and all"
        " hosts; `tune` on every number of hosts where there are at most 16)",
    )
    group.add_argument(
        "--placements",
        type=_placements,
        default=(BLOCK,),
        metavar="KIND,...",
        help="placements of ranks to measure where several hosts have several ranks each:"
        " consecutive (default), or cyclic (dealt to the hosts one by one); without --hosts,"
        " rules are made for those that were measured",
    )
    file_option(
        group,
        "--topology",
        "topology of the hosts, in any format that `tuner topology` reads: a pair of hosts"
        " for every distance and pairs for every kind of uplink are then measured",
    )
    _add_what_is_measured(group)
    group.add_argument(
        "--name", default="", help="name of the cluster (default: common prefix of its hosts)"
    )


def _add_what_is_measured(group: argparse._ArgumentGroup) -> None:
    file_option(
        group,
        "--profile",
        "calls of an application, as `tuner training run --profile` writes them: their"
        " collectives, sizes and shapes are measured unless these options say otherwise",
    )
    group.add_argument(
        "--collectives",
        type=_collectives,
        default=DEFAULT_COLLECTIVES,
        metavar="NAME,...",
        help="collectives to measure, such as bcast,allreduce,allgather,reduce,gather,scatter"
        " (default: bcast,allreduce)",
    )
    group.add_argument(
        "--tuner-algorithms",
        type=argument_types.name_list,
        default=(),
        metavar="NAME,...",
        help="algorithms of ours to measure beside the library's, as `tuner algorithms` lists them,"
        f" or {probe_spec.ALL_SCHEDULES}",
    )
    count_option(
        group,
        "--repetitions",
        "minimum repetitions of every algorithm"
        f" (default: {probe_spec.MULTI_HOST_MIN_REPETITIONS})",
        default=probe_spec.MULTI_HOST_MIN_REPETITIONS,
    )


def add_host_options(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare the options that say where and how ranks are started."""
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--hosts", type=hosts.parse_hosts, help="hosts, such as node1,node2:4 or n[0-511]"
    )
    file_option(where, "--hostfile", "file with one host per line, as NAME, NAME:4 or NAME slots=4")
    group.add_argument(
        "--launcher",
        type=LauncherTemplate.parse,
        metavar="WORDS",
        help="openmpi, mpich, srun, jsrun, or a command with {n} {ppn} {nodes} {hosts} {slots}"
        " {program} (default: srun or jsrun inside their jobs, else the library's own)",
    )


def _shapes(text: str) -> tuple[probe_spec.ProbeShape, ...]:
    return tuple(probe_spec.parse_shape(part) for part in text.split(","))


def _placements(text: str) -> tuple[str, ...]:
    found = argument_types.name_list(text)
    probe_spec.check_placements(found)
    return found


def _collectives(text: str) -> tuple[Collective, ...]:
    return tuple(argument_types.collective(name) for name in argument_types.name_list(text))


def given_hosts(options: argparse.Namespace) -> Hosts:
    """Return the hosts of the options, or this computer; raise InputError for an empty hostfile."""
    if options.hostfile is not None:
        return hosts.read_hosts(options.hostfile)
    named: Hosts = options.hosts or LOCAL_HOST
    return named


def resolve_hosts(options: argparse.Namespace) -> Hosts:
    """Return the hosts of the options, else those of the job, else this computer."""
    there = given_hosts(options)
    if not there.is_local:
        return there
    found = hosts_from_environment()
    return found if len(found.names) > 1 or options.launcher else LOCAL_HOST


def find_launcher(options: argparse.Namespace, python: Path) -> Launcher:
    """Return the launcher of the options; raise ProbeError if it is not installed."""
    template = options.launcher or default_template(options.library)
    return Launcher.find(options.library, python, template)


def apply_profile(options: argparse.Namespace) -> None:
    """Take collectives, sizes and shapes from a profile where the options leave them open.

    Raises InputError for a profile that cannot be read.
    """
    if options.profile is None:
        return
    calls = read_call_profile(options.profile)
    if not calls:
        raise InputError(f"{options.profile}: the profile has no calls of collectives")
    if options.collectives is DEFAULT_COLLECTIVES:
        options.collectives = tuple(dict.fromkeys(Collective(one.collective) for one in calls))
    if options.sizes is None:
        options.sizes = typical_sizes(calls)
    if not options.shapes:
        shapes = sorted({(one.nodes, one.ppn) for one in calls})
        options.shapes = tuple(probe_spec.ProbeShape(*shape) for shape in shapes)


def build_request(options: argparse.Namespace, there: Hosts) -> probe_spec.ProbeSpec:
    """Return the probe that the options describe; raise InputError for an unreadable topology."""
    given = {"sizes": options.sizes} if options.sizes is not None else {}
    topology = load_topology(options.topology) if options.topology else None
    return probe_spec.ProbeSpec(
        options.library,
        there,
        options.ppn or max(there.slots, 1),
        shapes=options.shapes,
        placements=options.placements,
        parts=options.measure,
        ci_half_width=options.ci_width,
        min_repetitions=options.repetitions,
        topology=topology,
        collectives=options.collectives,
        schedules=options.tuner_algorithms,
        thread_level=options.thread_level,
        **given,
    )


def read_with_topology(path: Path, topology: Path | None) -> tuple[Measurements, Topology | None]:
    """Read measurements, and the topology of their cluster if one is given.

    Warns where the topology has little effect. Raises InputError for files that cannot be read.
    """
    found = load_topology(topology) if topology else None
    measurements = read_measurements(path)
    if found and measurements.cluster.nodes == 1:
        warn(f"{path}: measured on one host: of --topology only the inside of a node is used")
    return measurements, found
