"""Constraints on a table besides speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner import mpi_libraries
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.table import DEFAULT, OPERATORS, AlgorithmChoice
from tuner.mpi_libraries.schedules import schedule_of

_TEST_RANKS = (7, 8)  # an odd and an even number
_TEST_BYTES = (4096, 65536)  # one segment, and several
_ELEMENTS_PER_RANK = 64  # per rank and chunk, so that sums do not agree by chance


@dataclass(frozen=True)
class Constraints:
    """Constraints on all choices except the default, which is always allowed.

    commutative_only    no rules for operators that do not commute: they use the default
    reproducible        reductions only by algorithms that `is_reproducible` accepts
    excluded_algorithms algorithms by name: `ring`, or of one collective: `allreduce:ring`
    max_rules           largest number of rules of a table
    """

    commutative_only: bool = False
    reproducible: bool = False
    excluded_algorithms: frozenset[str] = frozenset()
    max_rules: int | None = None

    def __post_init__(self) -> None:
        if any(name.rpartition(":")[2] == DEFAULT for name in self.excluded_algorithms):
            raise InputError(
                f"{DEFAULT} cannot be excluded: it is what stays where nothing is faster"
            )
        if self.max_rules is not None and self.max_rules < 1:
            raise InputError(f"a table cannot have {self.max_rules} rules: allow 1 at least")

    def operator_classes(self, collective: Collective) -> tuple[str, ...]:
        """Return the classes of operators that have rule lists for this collective."""
        if not collective.is_reduction:
            return OPERATORS[:1]
        return OPERATORS[1:] if self.commutative_only else OPERATORS

    def is_allowed(self, library: str, collective: Collective, choice: AlgorithmChoice) -> bool:
        """Return whether a table for `library` may use this choice."""
        if choice.is_default:
            return True
        if {choice.algorithm, f"{collective}:{choice.algorithm}"} & self.excluded_algorithms:
            return False
        return not (self.reproducible and collective.is_reduction) or is_reproducible(
            library, collective, choice
        )

    def check_excluded_names(
        self, library: str, choices: Iterable[tuple[str, AlgorithmChoice]]
    ) -> None:
        """Raise InputError for an excluded algorithm that is unknown.

        An algorithm is known if it is one of `choices` or one that `library` has for one of their
        collectives. Otherwise it is misspelt, and the intended algorithm would be allowed.
        """
        measured = {(collective, choice.algorithm) for collective, choice in choices}
        own = mpi_libraries.library_module(library).ALGORITHMS
        collectives = {collective for collective, _ in measured}
        pairs = measured | {(one, name) for one in collectives for name in own.get(one, ())}
        known = {name for _, name in pairs} | {f"{one}:{name}" for one, name in pairs}
        for name in sorted(self.excluded_algorithms - known):
            of = name.rpartition(":")[0]
            where = f" of {of}" if of in collectives else ""
            offered = {other for one, other in pairs if one == of or not where} - {DEFAULT}
            raise InputError(
                f"{shortened_repr(name)} is not an algorithm of what is measured, so it cannot be"
                f" excluded; these are{where}: {', '.join(sorted(offered))}"
            )

    def record(self) -> dict[str, Any]:
        """Return the constraints that are set, for a table's provenance."""
        found = {
            "commutative_only": self.commutative_only,
            "reproducible": self.reproducible,
            "forbidden": sorted(self.excluded_algorithms),
            "rules": self.max_rules,
        }
        return {name: value for name, value in found.items() if value}


UNCONSTRAINED = Constraints()


def constraints_from_options(options: Mapping[str, Any]) -> Constraints:
    """Return the constraints of the options of `tuner tune`.

    options     with `excluded_algorithms`, `reproducible`, `max_rules` and `commutative_only`

    Raises InputError as `Constraints` does.
    """
    return Constraints(
        options["commutative_only"],
        options["reproducible"],
        frozenset(options["excluded_algorithms"]),
        options["max_rules"],
    )


@cache
def is_reproducible(library: str, collective: Collective, choice: AlgorithmChoice) -> bool:
    """Return whether a reduction combines every element in the same order.

    The order must be the same on the same ranks for every position in the buffer, for every length
    of the buffer and on every rank that gets the result. Then the bits of the result are the same
    in every run and throughout every rule; in a ring, for example, they depend on the position in
    the buffer.

    This is tested by running the schedule on numbers whose sum depends on the order; algorithms
    without a schedule count as not reproducible.
    """
    if collective.has_blocks or not collective.is_reduction:
        return False
    sums = [
        [_reduction_results(library, collective, choice, p, n) for n in _TEST_BYTES]
        for p in _TEST_RANKS
    ]
    known = [list(chain(*own)) for own in sums if all(own)]
    return bool(known) and all(np.array_equal(element, own[0]) for own in known for element in own)


def _reduction_results(
    library: str, collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int
) -> list[NDArray[np.float32]]:
    """Return the result of every element on every rank that gets it.

    The list is empty if the algorithm has no schedule for this number of ranks.
    """
    try:
        schedule = schedule_of(library, collective, choice, p, nbytes)
    except InputError:
        return []
    if schedule is None:
        return []
    given = np.random.default_rng(1).standard_normal((p, 1, _ELEMENTS_PER_RANK)).astype(np.float32)
    buffers = [np.repeat(one, schedule.n_chunks, axis=0) for one in given]
    found = interpret(schedule, buffers)
    having = found if collective.takes(at_root=False) else found[:1]
    return [element for buffer in having for element in buffer]
