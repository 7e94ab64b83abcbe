"""The options of verbs that start ranks: library, interpreter, hosts and what is measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from tuner.base.errors import InputError
from tuner.base.thread_levels import THREAD_LEVELS, THREAD_SINGLE
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import warn
from tuner.core.call_profile import ProfiledCall, read_call_profile, typical_sizes
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.path_classes import BLOCK
from tuner.launch import (
    LOCAL_HOST,
    Hosts,
    Launcher,
    LauncherTemplate,
    find_interpreter,
    hosts,
    hosts_from_environment,
    inspect_interpreter,
)
from tuner.launch.template import default_template
from tuner.machines.topology_files import load_topology
from tuner.mpi_libraries import LIBRARY_MODULES, library_module
from tuner.mpi_libraries.products import base_of, title_of
from tuner.probe import probe_spec
from tuner.probe.probe_spec import ProbeShape, ProbeSpec
from tuner.probe.single_host import COLLECTIVE_SIZES, DEFAULT_COLLECTIVES, SingleHostSpec
from tuner.topology import Topology


def add_library_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose a library and its interpreter."""
    parser.add_argument(
        "--library",
        choices=tuple(LIBRARY_MODULES),
        help="MPI library (default: that of --profile, else the one that --python has)",
    )
    file_option(
        parser,
        "--python",
        "interpreter of the environment that holds this library (default: this one, or with"
        " --library mpich .venv-mpich/bin/python where it exists)",
        metavar="PYTHON",
    )


def add_thread_level_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says how MPI is initialised."""
    parser.add_argument(
        "--thread-level",
        choices=THREAD_LEVELS,
        default=THREAD_SINGLE,
        metavar="LEVEL",
        help="thread level at which the programs initialise MPI: single (default), which MPI_Init"
        " gives, funneled, serialized, or multiple, which mpi4py asks for",
    )


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
        "calls of an application, as `tuner record --out` and `tuner training run --profile` write"
        " them: their collectives, sizes and shapes are measured, and `tune` leaves all other"
        " sizes to the library's default, unless --collectives, --sizes or --shapes is given",
    )
    group.add_argument(
        "--collectives",
        type=_collectives,
        default=DEFAULT_COLLECTIVES,
        metavar="NAME,...",
        help="collectives to measure, such as bcast,allreduce,allgather,alltoall,barrier"
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
        "minimum repetitions of every algorithm, or as many as take 50 ms and three at least"
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


def _shapes(text: str) -> tuple[ProbeShape, ...]:
    return tuple(probe_spec.parse_shape(part) for part in text.split(","))


def _placements(text: str) -> tuple[str, ...]:
    found = argument_types.name_list(text)
    probe_spec.check_placements(found)
    return found


def _collectives(text: str) -> tuple[Collective, ...]:
    return tuple(argument_types.collective(name) for name in argument_types.name_list(text))


def library_of(options: argparse.Namespace) -> str:
    """Return the library of the options or of their profile, else what their interpreter has.

    Raises ProbeError for an interpreter without MPI, and InputError for a profile that cannot be
    read, or that is of another library than the options or of one that is not tuned.
    """
    recorded = read_call_profile(options.profile).library if options.profile else ""
    if recorded:
        library_module(recorded)
    known = base_of(recorded)
    if recorded and options.library not in (None, known):
        raise InputError(
            f"{options.profile} was recorded with {title_of(recorded)}: leave --library"
            f" {options.library} out, or record the program with that library"
        )
    asked: str = options.library or known
    return asked or inspect_interpreter(find_interpreter("", options.python)).base


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


def probe_spec_of(options: argparse.Namespace, there: Hosts) -> ProbeSpec:
    """Return the probe of hosts that the options describe.

    Raises ProbeError for an interpreter without MPI, and InputError for a profile or a topology
    that cannot be read.
    """
    library, calls = library_of(options), calls_to_measure(options)
    return ProbeSpec(
        library,
        there,
        options.ppn or max(there.slots, 1),
        calls.shapes,
        options.placements,
        calls.sizes,
        calls.collectives,
        options.measure,
        options.ci_width,
        options.repetitions,
        topology=load_topology(options.topology) if options.topology else None,
        schedules=options.tuner_algorithms,
        thread_level=options.thread_level,
        profile=calls.profile,
        only_profile=calls.only_profile,
        name=options.name,
    )


def single_host_spec_of(options: argparse.Namespace) -> SingleHostSpec:
    """Return the probe of this computer that the options describe; raise as `probe_spec_of`."""
    calls = calls_to_measure(options)
    return SingleHostSpec(
        library_of(options),
        options.ranks,
        calls.sizes,
        options.ci_width,
        options.launches,
        parts=options.measure,
        thread_level=options.thread_level,
        collectives=calls.collectives,
    )


def find_launcher(options: argparse.Namespace, library: str) -> Launcher:
    """Return the launcher of the options; raise ProbeError if it is not installed."""
    python = find_interpreter(library, options.python)
    return Launcher.find(library, python, options.launcher or default_template(library))


class CallsToMeasure(NamedTuple):
    """The calls to be measured; without shapes those of the probe.

    profile         calls of the application that they stand for, if any
    only_profile    whether the options leave all to the profile
    """

    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    shapes: tuple[ProbeShape, ...]
    profile: tuple[ProfiledCall, ...] = ()
    only_profile: bool = False


def calls_to_measure(options: argparse.Namespace) -> CallsToMeasure:
    """Return the calls of the options, and of their profile where they leave them open.

    Calls of a profile on one rank, such as on MPI_COMM_SELF, are left out: they send nothing.

    Raises InputError for a profile that cannot be read.
    """
    sizes = options.sizes or COLLECTIVE_SIZES
    given = CallsToMeasure(options.collectives, sizes, options.shapes)
    if options.profile is None:
        return given
    recorded = read_call_profile(options.profile).calls
    calls = tuple(one for one in recorded if (one.nodes, one.ppn) != (1, 1))
    if not calls:
        raise InputError(
            f"{options.profile}: expected a profile with calls of collectives on two or more ranks"
        )
    is_open = given.collectives is DEFAULT_COLLECTIVES
    named = tuple(dict.fromkeys(Collective(one.collective) for one in calls))
    shapes = sorted({(one.nodes, one.ppn) for one in calls})
    return CallsToMeasure(
        named if is_open else given.collectives,
        options.sizes or typical_sizes(calls),
        given.shapes or tuple(ProbeShape(*shape) for shape in shapes),
        calls,
        is_open and not (options.sizes or given.shapes),
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
