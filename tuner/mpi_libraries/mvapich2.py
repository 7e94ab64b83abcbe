"""The algorithms of MVAPICH2 for each collective, by the number that its variables take.

Names: `bcast_tuning.c` and `allreduce_tuning.c` of MVAPICH2 2.x; the numbers that need multicast by
the adapter are left out. A two-level algorithm runs between the leaders of the nodes, and within a
node through shared memory.
"""

from __future__ import annotations

from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import did_you_mean
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice

ALGORITHMS = {
    Collective.BCAST: {
        "binomial": 1,
        "two_level_binomial": 2,
        "scatter_allgather": 3,
        "two_level_scatter_allgather": 4,
        "scatter_allgather_ring": 5,
        "two_level_scatter_allgather_ring": 6,
        "two_level_scatter_allgather_ring_shared": 7,
        "two_level_knomial": 8,
        "two_level_pipeline": 9,
    },
    Collective.ALLREDUCE: {"recursive_doubling": 1, "rabenseifner": 2},
}
# Algorithms that were never tested with non-commutative operators.
UNTESTED_OPERAND_ORDER = {Collective.ALLREDUCE: ("rabenseifner",)}


def number_of(collective: Collective, choice: AlgorithmChoice) -> int:
    """Return the number of a choice; raises InputError for one that MVAPICH2 does not have."""
    known = ALGORITHMS.get(collective)
    if known is None:
        raise InputError(f"MVAPICH2 rules for {collective} are not supported: drop these rules")
    if choice.runner != LIBRARY or choice.algorithm not in known:
        raise InputError(
            f"MVAPICH2 has no {collective} algorithm {shortened_repr(choice.algorithm)}"
            f"{did_you_mean(choice.algorithm, known)}: it has {', '.join(known)}"
        )
    if choice.params:
        raise InputError(f"{collective} {choice}: a rule of MVAPICH2 takes no parameters")
    return known[choice.algorithm]


def choice_of(collective: Collective, number: int) -> AlgorithmChoice:
    """Return the choice that `number_of` turns into this number."""
    return AlgorithmChoice(next(name for name, n in ALGORITHMS[collective].items() if n == number))


def preserves_operand_order(collective: Collective, choice: AlgorithmChoice) -> bool:
    """Return whether non-commutative operators are known to keep their result under `choice`."""
    return choice.algorithm not in UNTESTED_OPERAND_ORDER.get(collective, ())
