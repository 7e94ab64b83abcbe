"""The collectives of Open MPI's `coll/tuned` component: its algorithms, by number and release.

Numbers: `ompi_info --param coll tuned --level 9` of Open MPI 5.0. Operand order: measured, see
tests/mpi/test_noncommutative.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.core.collective import Collective
from tuner.core.table import DEFAULT
from tuner.mpi_libraries.products import release_of


@dataclass(frozen=True)
class OpenMpiCollective:
    """A collective as `coll/tuned` has it.

    number              its number in rules files
    algorithms          names by number; 0 is the library default
    library_names       the library's own names of algorithms that have others here
    segmented           algorithms that take a segment size
    throttled           algorithms that take the most requests in flight
    commutative_only    algorithms for commutative operators only. All but `rabenseifner` change the
                        order of operands; `rabenseifner` hands non-commutative operators to
                        `linear`, which takes at least twice as long as the default
                        (coll_base_allreduce.c, coll_base_reduce.c; measured on four emulated hosts)
    wrong_in_place      algorithms that give every rank wrong data with MPI_IN_PLACE: measured with
                        5.0.11 on 2 to 8 ranks
    is_blind_in_place   whether calls in place are taken for calls of 0 bytes: measured with 5.0.11
    has_segments        whether the library has variables for its segments and chains
    is_in_han           whether `coll/han` of version 5.0 has it
    is_staged           whether device buffers are copied to the host
    """

    number: int
    algorithms: tuple[str, ...]
    library_names: Mapping[str, str] = field(default_factory=dict)
    segmented: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    commutative_only: tuple[str, ...] = ()
    wrong_in_place: tuple[str, ...] = ()
    is_blind_in_place: bool = False
    has_segments: bool = True
    is_in_han: bool = True
    is_staged: bool = False

    def parameters(self, algorithm: str) -> tuple[str, ...]:
        """Return the names of the parameters that an algorithm takes."""
        return (
            (("segment",) if algorithm in self.segmented else ())
            + (("requests",) if algorithm in self.throttled else ())
            + (("chains",) if algorithm == "chain" else ())
            + (("radix",) if algorithm == "knomial" else ())
        )


def _numbered(names: str) -> tuple[str, ...]:
    """Return the default, number 0, and the algorithms from number 1 on."""
    return (DEFAULT, *names.split())


COLLECTIVES = {
    Collective.ALLGATHER: OpenMpiCollective(
        0,
        _numbered("linear bruck recursive_doubling ring neighbor_exchange two_proc sparbit"),
        wrong_in_place=("sparbit",),
        is_blind_in_place=True,
    ),
    Collective.ALLREDUCE: OpenMpiCollective(
        2,
        _numbered("linear nonoverlapping recursive_doubling ring segmented_ring rabenseifner"),
        segmented=("segmented_ring",),
        commutative_only=("ring", "segmented_ring", "rabenseifner"),
        is_staged=True,
    ),
    Collective.ALLTOALL: OpenMpiCollective(
        3,
        _numbered("linear pairwise bruck spread_out two_proc"),
        library_names={"bruck": "modified_bruck", "spread_out": "linear_sync"},
        throttled=("spread_out",),
        is_blind_in_place=True,
        is_in_han=False,
    ),
    Collective.ALLTOALLV: OpenMpiCollective(
        4,
        _numbered("linear pairwise"),
        library_names={"linear": "basic_linear"},
        has_segments=False,
        is_in_han=False,
    ),
    Collective.BARRIER: OpenMpiCollective(
        6,
        _numbered("linear double_ring recursive_doubling dissemination two_proc binomial"),
        library_names={"dissemination": "bruck", "binomial": "tree"},
        has_segments=False,
    ),
    Collective.BCAST: OpenMpiCollective(
        7,
        _numbered(
            "linear chain pipeline split_binary binary binomial knomial scatter_allgather"
            " scatter_allgather_ring"
        ),
        segmented=("chain", "pipeline", "split_binary", "binary", "binomial", "knomial"),
    ),
    Collective.GATHER: OpenMpiCollective(
        9, _numbered("linear binomial linear_sync"), segmented=("linear_sync",)
    ),
    Collective.REDUCE: OpenMpiCollective(
        11,
        _numbered("linear chain pipeline binary binomial in_order_binary rabenseifner"),
        segmented=("chain", "pipeline", "binary", "binomial", "in_order_binary"),
        commutative_only=("chain", "pipeline", "binary", "binomial", "rabenseifner"),
        is_staged=True,
    ),
    Collective.SCATTER: OpenMpiCollective(15, _numbered("linear binomial linear_nonblocking")),
}
# Tables hold MPI_Reduce_scatter_block; of MPI_Reduce_scatter, which benchmarks time, only what
# coll/tuned decides by itself is known.
DECIDED_COLLECTIVES = {
    **COLLECTIVES,
    Collective.REDUCE_SCATTER: OpenMpiCollective(
        12, _numbered("nonoverlapping recursive_halving ring butterfly")
    ),
}
COLLECTIVE_OF = {known.number: collective for collective, known in COLLECTIVES.items()}
# Collectives that are only known by name here, by their number in rules files.
OTHER_COLLECTIVES = {
    1: "allgatherv",
    8: "exscan",
    12: "reduce_scatter",
    13: "reduce_scatter_block",
    14: "scan",
}
# Largest algorithm number of each collective number from these releases on
# (coll_tuned_<collective>_decision.c of v4.0.0, v4.1.0, v5.0.0 and of branch v6.0.x).
MAX_ALGORITHM_NUMBERS = {
    (4, 0): {0: 6, 1: 5, 2: 6, 3: 5, 4: 2, 6: 6, 7: 9, 8: 2, 9: 3, 11: 7, 12: 4, 13: 4, 14: 2}
    | {15: 2},
    (4, 1): {15: 3},
    (5, 0): {0: 7, 1: 6},
    (6, 0): {0: 8, 2: 7, 11: 8},
}
NEWEST_CLASSIC = (5, 0)  # the last series whose own form of rules files is not JSON
# Names of algorithms that 6.0 added or renamed, with their numbers.
NEW_NAMES = {
    Collective.ALLGATHER: {"bruck-k-fanout": 2, "direct-messaging": 8},
    Collective.ALLREDUCE: {"allgather_reduce": 7},
    Collective.REDUCE: {"knomial": 8},
}
# Releases from which on coll/tuned has its present decisions (coll_tuned_decision_fixed.c), and
# from which on coll/han comes before it on several nodes.
FIRST_OF_DECISIONS = (4, 1)
FIRST_WITH_HAN = (5,)


def max_algorithm_numbers(library: str) -> Mapping[int, int]:
    """Return the largest algorithm number of each collective number in a release.

    library     `openmpi 4.1.4`; without a release the last that reads no JSON, and one before 4.0
                is taken for 4.0
    """
    release, found = release_of(library) or NEWEST_CLASSIC, dict[int, int]()
    for first, numbers in MAX_ALGORITHM_NUMBERS.items():
        if first == (4, 0) or release >= first:
            found |= numbers
    return found
