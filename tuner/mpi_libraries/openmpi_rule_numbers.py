"""The numbers that stand for an algorithm and its parameters in Open MPI's rules."""

from __future__ import annotations

from typing import NamedTuple

from tuner.base.errors import InputError
from tuner.base.spelling import did_you_mean
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES, DECIDED_COLLECTIVES
from tuner.mpi_libraries.products import OPENMPI, has_since, release_of

RADIX = 4  # radix of every k-nomial tree: one parameter of the whole program, not of a rule
DEFAULT_CHAINS = 4  # coll_tuned_init_chain_fanout
# Releases from which on, in each series, rules files may limit the requests in flight: the column
# of version-2 files (coll_tuned_dynamic_file.c of v4.1.8 and v5.0.7).
FIRST_WITH_REQUESTS = ((4, 1, 8), (5, 0, 7))


class RuleParameters(NamedTuple):
    """The numbers of a rule; the segment size is in bytes, and 0 stands for no limit."""

    algorithm: int
    chains: int = 0
    segment_bytes: int = 0
    requests: int = 0


def rule_parameters(
    collective: Collective, choice: AlgorithmChoice, library: str = ""
) -> RuleParameters:
    """Return the numbers of a choice in rules.

    library     `openmpi 4.1.4` or what is built on it, whose rules files must be able to express
                it; "" for the newest release

    Raises InputError for an algorithm or parameter that Open MPI does not have.
    """
    known, params = COLLECTIVES.get(collective), choice.params
    if choice.runner != LIBRARY:
        raise InputError(f"{collective} {choice}: Open MPI's rules file cannot express this")
    if known is None:
        raise InputError(f"Open MPI rules for {collective} are not supported: drop these rules")
    if choice.algorithm not in known.algorithms:
        raise InputError(
            f"Open MPI has no {collective} algorithm {choice.algorithm!r}"
            f"{did_you_mean(choice.algorithm, known.algorithms)}: it has"
            f" {', '.join(known.algorithms)}"
        )
    if choice.algorithm in known.wrong_in_place:
        raise InputError(
            f"{collective} {choice.algorithm} gives wrong results for calls in place in Open MPI:"
            " choose another algorithm"
        )
    _require_parameters(collective, choice, known.parameters(choice.algorithm), library)
    chains = params.get("chains", DEFAULT_CHAINS) if choice.algorithm == "chain" else 0
    number = known.algorithms.index(choice.algorithm)
    return RuleParameters(number, chains, params.get("segment", 0), params.get("requests", 0))


def _require_parameters(
    collective: Collective, choice: AlgorithmChoice, known: tuple[str, ...], library: str
) -> None:
    """Raise InputError for parameters that are not known, and values that rules cannot express."""
    for name in choice.params:
        if name not in known:
            raise InputError(
                f"{collective} {choice.algorithm} takes no parameter {name!r} in Open MPI:"
                f" it takes {', '.join(known) or 'none'}"
            )
    if choice.params.get("radix", RADIX) != RADIX:
        raise InputError(
            f"{collective} {choice}: Open MPI has one radix, {RADIX}, for the whole program;"
            " a rule cannot set another"
        )
    if choice.params.get("requests") and not reads_requests(library):
        first = " and ".join(".".join(map(str, release)) for release in FIRST_WITH_REQUESTS)
        raise InputError(
            f"{collective} {choice}: rules files of {library} cannot limit the requests in"
            f" flight; those of Open MPI from {first} on can"
        )


def reads_requests(library: str) -> bool:
    """Return whether rules files of this library may limit the requests in flight."""
    name, release = library.partition(" ")[0], release_of(library)
    return name in ("", OPENMPI) and (not release or has_since(release, FIRST_WITH_REQUESTS))


def choice_of(
    collective: Collective, number: int, chains: int = 0, segment: int = 0, requests: int = 0
) -> AlgorithmChoice:
    """Return the choice that `rule_parameters` turns into these numbers, without unused ones."""
    known = DECIDED_COLLECTIVES[collective]
    name = known.algorithms[number]
    values = {"segment": segment, "chains": chains or 1, "radix": RADIX, "requests": requests}
    return AlgorithmChoice(
        name, {key: values[key] for key in known.parameters(name) if values[key]}
    )


def canonical_choice(collective: Collective, choice: AlgorithmChoice) -> AlgorithmChoice:
    """Return the choice with every relevant parameter; raises as `rule_parameters` does."""
    return choice_of(collective, *rule_parameters(collective, choice))
