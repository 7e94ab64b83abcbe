"""What somebody wants to know about a cluster: which hosts, which communicators, what of them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tuner import algorithms, mpi_libraries
from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.path_classes import CONSECUTIVE, PLACEMENTS, Placed
from tuner.launch import Hosts
from tuner.launch.rank_program import SINGLE
from tuner.probe.single_host import COLLECTIVE_SIZES, communicator_sizes
from tuner.topology import Topology

SEGMENTS = (8 * 1024, 32 * 1024, 128 * 1024)  # bytes
RADICES = (2, 4, 8)
PARTS = ("messages", "shared", "sweep", "collectives", "devices")
USUAL = (Collective.BCAST, Collective.ALLREDUCE)
ALL = "all"
FEWEST = 8  # repetitions: in one launch more of them teach little


@dataclass(frozen=True)
class Shape(Placed):
    """A communicator of `ppn` ranks on each of `nodes` hosts."""

    nodes: int
    ppn: int
    placement: str = CONSECUTIVE

    @property
    def ranks(self) -> int:
        """Of the communicator."""
        return self.nodes * self.ppn

    def __str__(self) -> str:
        return self.shape


@dataclass(frozen=True)
class Request:
    """What somebody wants to know about a cluster.

    shapes      none: from two hosts to all, with one rank on each and with `ppn`
    parts       of `PARTS`
    fewest      repetitions of every arm at least
    radices     of k-nomial trees; rules files of Open MPI know 4 alone
    placements  in which each of them is measured
    schedules   names of algorithms of ours that are measured beside the library's; `all` of them
    thread_level    with which MPI is initialised, as MPI_Init_thread calls it
    topology    of the hosts: which pairs stand for which paths; None: nothing is known of it
    """

    library: str
    hosts: Hosts
    ppn: int
    shapes: tuple[Shape, ...] = ()
    placements: tuple[str, ...] = (CONSECUTIVE,)
    sizes: tuple[int, ...] = COLLECTIVE_SIZES
    collectives: tuple[Collective, ...] = USUAL
    parts: tuple[str, ...] = PARTS
    target: float = 0.03
    fewest: int = FEWEST
    segments: tuple[int, ...] = SEGMENTS
    radices: tuple[int, ...] = RADICES
    operators: str = "commutative"
    thread_level: str = SINGLE
    schedules: tuple[str, ...] = ()
    topology: Topology | None = None

    @property
    def nodes(self) -> int:
        """Hosts."""
        return len(self.hosts.names)


def shape(text: str) -> Shape:
    """`4x2`: two ranks on each of four hosts; raises InputError."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,4})", text.strip())
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise InputError(f"{text!r} is no shape: write HOSTSxRANKS, such as 4x2")
    return Shape(int(match[1]), int(match[2]))


def cluster_name(hosts: Hosts, environ: Mapping[str, str] = os.environ) -> str:
    """What Slurm or LSF calls the cluster, else the letters that all host names begin with."""
    given = environ.get("SLURM_CLUSTER_NAME") or environ.get("LSF_CLUSTER_NAME")
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*hosts.names, strict=False))
    shared = "".join(letters[0] for letters in alike)
    return given or shared.rstrip("0123456789.-_") or hosts.names[0]


def shapes(request: Request) -> tuple[Shape, ...]:
    """Those asked for, or the usual ones by their number of ranks, in every placement."""
    found = request.shapes or _usual(request)
    dealt = (replace(one, placement=kind) for one in found for kind in request.placements)
    return tuple(dict.fromkeys(dealt))


def _usual(request: Request) -> Sequence[Shape]:
    each = sorted({1, request.ppn})
    found = {Shape(n, k) for n in communicator_sizes(request.nodes) for k in each}
    found |= {Shape(1, request.ppn)} if request.ppn > 1 else set()
    return sorted(found, key=lambda one: (one.ranks, one.nodes))


def check_parts(parts: Collection[str]) -> None:
    """Raises InputError for a part that there is not, and for none at all."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise InputError(f"there is no part {[*unknown, ''][0]!r}: choose from {', '.join(PARTS)}")


def check_placements(placements: Collection[str]) -> None:
    """Raises InputError for a placement that there is not, and for none at all."""
    unknown = [kind for kind in placements if kind not in PLACEMENTS]
    if unknown or not placements:
        raise InputError(
            f"there is no placement {[*unknown, ''][0]!r}: choose from {', '.join(PLACEMENTS)}"
        )


def check(request: Request) -> None:
    """Raises InputError for what cannot be measured."""
    if request.nodes < 2 and request.ppn < 2:
        raise InputError("one rank has nobody to talk to: ask for two hosts or --ppn 2")
    if request.ppn < 1 or request.fewest < 1:
        raise InputError("--ppn and --repetitions are at least 1")
    check_parts(request.parts)
    check_placements(request.placements)
    large = [s for s in request.shapes if s.nodes > request.nodes or s.ppn > request.ppn]
    if large:
        raise InputError(
            f"shape {large[0]} does not fit {plural(request.nodes, 'host')} with"
            f" {plural(request.ppn, 'rank')} each"
        )
    odd = [size for size in request.sizes if size < 4 or size % 4]
    if odd or not request.sizes:
        raise InputError(f"sizes are positive multiples of 4 bytes, not {odd or 'none'}")
    _check_collectives(request)
    if request.operators not in ("any", "commutative"):
        raise InputError(f"operators are `any` or `commutative`, not {request.operators!r}")


def _check_collectives(request: Request) -> None:
    """Of the library and of ours."""
    if not request.collectives:
        raise InputError("there is nothing to measure without a collective: name one")
    for collective in request.collectives:
        mpi_libraries.named(request.library).candidates(collective, 2, 1024)
    known = {name for one in request.collectives for name in (*algorithms.names(one), ALL)}
    unknown = [name for name in request.schedules if name not in known]
    if unknown:
        raise InputError(
            f"no collective that is probed has an algorithm {unknown[0]!r}; known:"
            f" {', '.join(sorted(known))}"
        )
    reduces = [one for one in request.collectives if one.reduces and one != Collective.ALLREDUCE]
    if request.operators == "any" and reduces:
        raise InputError(f"the order of operands is checked for allreduce alone, not {reduces[0]}")
