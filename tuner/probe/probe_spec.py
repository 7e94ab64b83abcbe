"""The specification of a cluster probe: which hosts, which communicators, what to measure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from tuner import algorithms, mpi_libraries
from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.base.thread_levels import THREAD_SINGLE
from tuner.base.units import plural
from tuner.core.call_profile import ProfiledCall
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, PLACEMENTS, PlacementMixin
from tuner.launch import LOCAL_HOST, Hosts
from tuner.probe.single_host import (
    COLLECTIVE_SIZES,
    DEFAULT_COLLECTIVES,
    DEFAULT_PARTS,
    communicator_sizes,
)
from tuner.topology import Topology

SEGMENT_BYTES = (8 * 1024, 32 * 1024, 128 * 1024)  # bytes
RADICES = (2, 4, 8)
PARTS = ("messages", "shared", "sweep", "collectives", "devices")
ALL_SCHEDULES = "all"
MULTI_HOST_MIN_REPETITIONS = 8  # repetitions; more of them in one launch add little


@dataclass(frozen=True)
class ProbeShape(PlacementMixin):
    """A communicator of `ppn` ranks on each of `nodes` hosts."""

    nodes: int
    ppn: int
    placement: str = BLOCK

    @property
    def ranks(self) -> int:
        return self.nodes * self.ppn

    def __str__(self) -> str:
        return self.shape


@dataclass(frozen=True)
class ProbeSpec:
    """A description of what to measure on a cluster.

    shapes          default: from two hosts to all, with one rank on each and with `ppn`
    placements      placements in which each shape is measured
    sizes           bytes of the collectives' buffers
    parts           of `PARTS`
    ci_half_width   relative half-width of a median's 95 % interval at which a point is done
    min_repetitions minimum repetitions of short calls
    segments        segment sizes in bytes of segmented algorithms
    radices         of k-nomial trees; rules files of Open MPI can only express 4
    operators       `commutative`, or `any` to leave out algorithms that reorder operands
    thread_level    thread level that MPI is initialised with, named as for MPI_Init_thread
    schedules       names of our algorithms to measure beside the library's; `all` for all of them
    topology        of the hosts, to choose pairs that represent paths; None: unknown
    hosts           where ranks are started; LOCAL_HOST: this computer
    ppn             ranks on each host; at most, on this computer
    profile         calls of the application that the table is for; none: all calls count alike
    only_profile    whether rules are for sizes of these calls alone
    name            of the cluster; default: its name in the batch system, else the common prefix of
                    its host names, or the name of this computer
    """

    library: str
    hosts: Hosts
    ppn: int
    shapes: tuple[ProbeShape, ...] = ()
    placements: tuple[str, ...] = (BLOCK,)
    sizes: tuple[int, ...] = COLLECTIVE_SIZES
    collectives: tuple[Collective, ...] = DEFAULT_COLLECTIVES
    parts: tuple[str, ...] = PARTS
    ci_half_width: float = 0.03
    min_repetitions: int = MULTI_HOST_MIN_REPETITIONS
    segments: tuple[int, ...] = SEGMENT_BYTES
    radices: tuple[int, ...] = RADICES
    operators: str = "commutative"
    thread_level: str = THREAD_SINGLE
    schedules: tuple[str, ...] = ()
    topology: Topology | None = None
    profile: tuple[ProfiledCall, ...] = ()
    only_profile: bool = False
    name: str = ""

    @property
    def nodes(self) -> int:
        return len(self.hosts.names) or 1


def spec_of_this_computer(library: str, ranks: int, **settings: Any) -> ProbeSpec:
    """Return the probe of up to `ranks` ranks of this computer, with further `settings`."""
    shapes = tuple(ProbeShape(1, p) for p in communicator_sizes(ranks))
    return ProbeSpec(library, LOCAL_HOST, ranks, shapes, parts=DEFAULT_PARTS, **settings)


def parse_shape(text: str) -> ProbeShape:
    """Return the shape that a text such as `4x2` (two ranks on each of four hosts) describes.

    Raises InputError for other text.
    """
    match = re.fullmatch(r"(\d{1,6})x(\d{1,4})", text.strip())
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise InputError(f"{text!r} is not a shape: write HOSTSxRANKS, such as 4x2")
    return ProbeShape(int(match[1]), int(match[2]))


def default_cluster_name(hosts: Hosts, environ: Mapping[str, str] = os.environ) -> str:
    """Return the cluster's name in Slurm or LSF, else the common prefix of all host names."""
    given = environ.get("SLURM_CLUSTER_NAME") or environ.get("LSF_CLUSTER_NAME")
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*hosts.names, strict=False))
    shared = "".join(letters[0] for letters in alike)
    return given or shared.rstrip("0123456789.-_") or hosts.names[0]


def shapes_to_measure(spec: ProbeSpec) -> tuple[ProbeShape, ...]:
    """Return the requested or the default shapes, in every placement."""
    found = spec.shapes or _default_shapes(spec)
    dealt = (replace(one, placement=kind) for one in found for kind in spec.placements)
    return tuple(dict.fromkeys(dealt))


def _default_shapes(spec: ProbeSpec) -> Sequence[ProbeShape]:
    each = sorted({1, spec.ppn})
    found = {ProbeShape(n, k) for n in communicator_sizes(spec.nodes) for k in each}
    found |= {ProbeShape(1, spec.ppn)} if spec.ppn > 1 else set()
    return sorted(found, key=lambda one: (one.ranks, one.nodes))


def check_parts(parts: Collection[str]) -> None:
    """Raise InputError for an unknown part, and for none at all."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise InputError(unknown_name("part", [*unknown, ""][0], PARTS))


def check_placements(placements: Collection[str]) -> None:
    """Raise InputError for an unknown placement, and for none at all."""
    unknown = [kind for kind in placements if kind not in PLACEMENTS]
    if unknown or not placements:
        raise InputError(unknown_name("placement", [*unknown, ""][0], PLACEMENTS))


def check_sizes(sizes: Collection[int]) -> None:
    """Raise InputError unless there are sizes, all of them positive multiples of 4 bytes."""
    odd = [size for size in sizes if size < 4 or size % 4]
    if odd or not sizes:
        raise InputError(f"sizes are positive multiples of 4 bytes, not {odd or 'none'}")


def check_operators(operators: str) -> None:
    """Raise InputError for an unknown class of operators."""
    if operators not in ("any", "commutative"):
        raise InputError(f"operators are `any` or `commutative`, not {operators!r}")


def check_spec(spec: ProbeSpec) -> None:
    """Raise InputError for a specification that cannot be measured."""
    if spec.nodes < 2 and spec.ppn < 2:
        raise InputError("one rank exchanges no messages: ask for two hosts or --ppn 2")
    if spec.ppn < 1 or spec.min_repetitions < 1:
        raise InputError("--ppn and --repetitions are at least 1")
    check_parts(spec.parts)
    check_placements(spec.placements)
    large = [s for s in spec.shapes if s.nodes > spec.nodes or s.ppn > spec.ppn]
    if large:
        raise InputError(
            f"shape {large[0]} does not fit {plural(spec.nodes, 'host')} with"
            f" {plural(spec.ppn, 'rank')} each"
        )
    check_sizes(spec.sizes)
    _check_collectives(spec)
    check_operators(spec.operators)


def _check_collectives(spec: ProbeSpec) -> None:
    """Raise InputError for collectives, schedules or operators that cannot be measured."""
    if not spec.collectives:
        raise InputError("there is nothing to measure without a collective: name one")
    for collective in spec.collectives:
        mpi_libraries.library_module(spec.library).candidates(collective, 2, 1024)
    known = {
        name
        for one in spec.collectives
        if not one.is_ragged
        for name in (*algorithms.algorithm_names(one), ALL_SCHEDULES)
    }
    unknown = [name for name in spec.schedules if name not in known]
    if unknown:
        raise InputError(unknown_name("algorithm", unknown[0], sorted(known)))
    reduces = [
        one for one in spec.collectives if one.is_reduction and (one.is_rooted or one.has_blocks)
    ]
    if spec.operators == "any" and reduces:
        raise InputError(f"the order of operands is checked for allreduce alone, not {reduces[0]}")
