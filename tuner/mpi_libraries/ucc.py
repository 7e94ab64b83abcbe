"""What UCC's transport layer `ucp` calls each algorithm: the names that `ucc_info -A` prints.

A table of UCC names them as UCC does. Sources: UCC 1.2.0 and 1.8.0.
"""

from __future__ import annotations

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmConfig

ALGORITHMS = {  # an algorithm's position is its number
    Collective.BCAST: ("knomial", "sag_knomial", "dbt"),
    Collective.REDUCE: ("knomial", "dbt", "srg"),
    Collective.ALLREDUCE: ("knomial", "sra_knomial", "dbt", "sliding_window", "ring"),
    Collective.ALLGATHER: ("knomial", "ring", "neighbor", "bruck", "sparbit", "linear", "batched"),
    Collective.REDUCE_SCATTER: ("ring", "knomial"),
}
ALGORITHMS_OF_1_2 = {  # what UCC 1.2 has already
    Collective.BCAST: ("knomial", "sag_knomial"),
    Collective.ALLREDUCE: ("knomial", "sra_knomial"),
}
CURRENT_RELEASE = (1, 8)  # the release whose names are all in ALGORITHMS
# What is compared with the sizes of rules differs between calls in place and others.
UNSPLITTABLE_COLLECTIVES = (Collective.REDUCE_SCATTER,)


def algorithm_names(library: str, collective: Collective) -> tuple[str, ...]:
    """What `ucc 1.8.0` has certainly; of a release before 1.8 and of none, what 1.2 has."""
    version = library.partition(" ")[2].split(".")
    known = tuple(int(part) for part in version[:2] if part.isdigit())
    return (ALGORITHMS if known >= CURRENT_RELEASE else ALGORITHMS_OF_1_2).get(collective, ())


def require_expressible(library: str, collective: Collective, choice: AlgorithmConfig) -> None:
    """Raises InputError for a choice that UCC's file cannot say."""
    names = algorithm_names(library, collective)
    if not names:
        raise InputError(f"{library} rules for {collective} are not supported: drop these rules")
    if choice.via != LIBRARY or choice.algorithm not in names:
        raise InputError(
            f"{library} has no {collective} algorithm {shortened_repr(choice.algorithm)}:"
            f" it has {', '.join(names)}"
        )
    if choice.params:
        raise InputError(
            f"{collective} {choice}: a rule of UCC takes no parameters; radices are set by"
            " UCC_TL_UCP_..._RADIX"
        )
