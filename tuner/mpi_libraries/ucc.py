"""The names of the algorithms in UCC's transport layer `ucp`, as `ucc_info -A` prints them.

A table for UCC uses the same names. Sources: UCC 1.2.0 and 1.8.0.
"""

from __future__ import annotations

from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import did_you_mean
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice

ALGORITHMS = {  # an algorithm's position is its number
    Collective.BCAST: ("knomial", "sag_knomial", "dbt"),
    Collective.REDUCE: ("knomial", "dbt", "srg"),
    Collective.ALLREDUCE: ("knomial", "sra_knomial", "dbt", "sliding_window", "ring"),
    Collective.ALLGATHER: ("knomial", "ring", "neighbor", "bruck", "sparbit", "linear", "batched"),
    Collective.REDUCE_SCATTER: ("ring", "knomial"),
    Collective.ALLTOALL: ("pairwise", "bruck"),
}
ALGORITHMS_OF_1_2 = {  # those that UCC 1.2 already has
    Collective.BCAST: ("knomial", "sag_knomial"),
    Collective.ALLREDUCE: ("knomial", "sra_knomial"),
}
CURRENT_RELEASE = (1, 8)  # the release whose names are all in ALGORITHMS
# UCC counts the bytes of calls in place differently, so rules for these must not split by size.
UNSPLITTABLE_COLLECTIVES = (Collective.REDUCE_SCATTER,)


def algorithm_names(library: str, collective: Collective) -> tuple[str, ...]:
    """Return the algorithms that `ucc 1.8.0` is known to have.

    For a release before 1.8, or without one, these are the algorithms of 1.2.
    """
    version = library.partition(" ")[2].split(".")
    known = tuple(int(part) for part in version[:2] if part.isdigit())
    return (ALGORITHMS if known >= CURRENT_RELEASE else ALGORITHMS_OF_1_2).get(collective, ())


def require_expressible(library: str, collective: Collective, choice: AlgorithmChoice) -> None:
    """Raise InputError for a choice that UCC's file cannot express."""
    names = algorithm_names(library, collective)
    if not names:
        raise InputError(f"{library} rules for {collective} are not supported: drop these rules")
    if choice.runner != LIBRARY or choice.algorithm not in names:
        raise InputError(
            f"{library} has no {collective} algorithm {shortened_repr(choice.algorithm)}"
            f"{did_you_mean(choice.algorithm, names)}: it has {', '.join(names)}"
        )
    if choice.params:
        raise InputError(
            f"{collective} {choice}: a rule of UCC takes no parameters; radices are set by"
            " UCC_TL_UCP_..._RADIX"
        )
