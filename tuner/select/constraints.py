"""What somebody wants of a table besides speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from tuner.core.table import DEFAULT, OPERATORS, AlgorithmConfig
from tuner.mpi_libraries.schedules import schedule_of

PreservesOperandOrder = Callable[[Collective, AlgorithmConfig], bool]
_TEST_RANKS, _TEST_BYTES = (
    (7, 8),
    (4096, 65536),
)  # tried: also an odd number, one segment and several
_ELEMENTS_PER_RANK = 64  # that each rank gives: as many sums would not agree by luck


@dataclass(frozen=True)
class Constraints:
    """Of all choices but the default, which is always allowed.

    commutative_only    no rules for operators that do not commute: they stay with the default
    reproducible        reductions only by algorithms of `is_reproducible`
    forbidden           algorithms by name: `ring`, or of one collective: `allreduce:ring`
    rules               how many a table may have
    """

    commutative_only: bool = False
    reproducible: bool = False
    excluded_algorithms: frozenset[str] = frozenset()
    max_rules: int | None = None

    def __post_init__(self) -> None:
        if any(name.rpartition(":")[2] == DEFAULT for name in self.excluded_algorithms):
            raise InputError(
                f"{DEFAULT} cannot be forbidden: it is what stays where nothing is faster"
            )
        if self.max_rules is not None and self.max_rules < 1:
            raise InputError(f"a table cannot have {self.max_rules} rules: allow 1 at least")

    def operator_classes(self, collective: Collective) -> tuple[str, ...]:
        """Of which there are ladders of rules."""
        if not collective.is_reduction:
            return OPERATORS[:1]
        return OPERATORS[1:] if self.commutative_only else OPERATORS

    def is_allowed(self, library: str, collective: Collective, choice: AlgorithmConfig) -> bool:
        """Whether a table for `library` may ask for it."""
        if choice.is_default:
            return True
        if {choice.algorithm, f"{collective}:{choice.algorithm}"} & self.excluded_algorithms:
            return False
        return not (self.reproducible and collective.is_reduction) or is_reproducible(
            library, collective, choice
        )

    def check_excluded_names(
        self, library: str, choices: Iterable[tuple[str, AlgorithmConfig]]
    ) -> None:
        """Raises InputError for a forbidden algorithm that neither is one of these of a collective
        nor `library` has for one of these collectives: it is misspelt, and the one that was meant
        would be allowed.
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
                f"{shortened_repr(name)} is no algorithm of what is measured, so it cannot be"
                " forbidden;"
                f" these are{where}: {', '.join(sorted(offered))}"
            )

    def record(self) -> dict[str, Any]:
        """For a table's provenance: those that there are."""
        found = {
            "commutative_only": self.commutative_only,
            "reproducible": self.reproducible,
            "forbidden": sorted(self.excluded_algorithms),
            "rules": self.max_rules,
        }
        return {name: value for name, value in found.items() if value}


UNCONSTRAINED = Constraints()


def constraints_from_options(options: Mapping[str, Any]) -> Constraints:
    """Of what somebody may wish, under the names of the options of `tuner tune`: `forbid`,
    `reproducible`, `rules` and `commutative_only`. Raises InputError as `Constraints` does.
    """
    return Constraints(
        options["commutative_only"],
        options["reproducible"],
        frozenset(options["forbid"]),
        options["rules"],
    )


@cache
def is_reproducible(library: str, collective: Collective, choice: AlgorithmConfig) -> bool:
    """Whether on the same ranks every element of a reduction is combined in one order, wherever it
    stands, however long the buffer is, and for every rank that gets it.

    Then its bits are the same in every run and throughout every rule; in a ring, for one, they
    depend on where in the buffer it is. Found out by running the schedule on numbers whose sum
    depends on the order; of algorithms without a schedule nothing is known: they have none.
    """
    if collective not in (Collective.ALLREDUCE, Collective.REDUCE):
        return False
    sums = [
        [_reduction_results(library, collective, choice, p, n) for n in _TEST_BYTES]
        for p in _TEST_RANKS
    ]
    known = [list(chain(*own)) for own in sums if all(own)]
    return bool(known) and all(np.array_equal(element, own[0]) for own in known for element in own)


def _reduction_results(
    library: str, collective: Collective, choice: AlgorithmConfig, p: int, nbytes: int
) -> list[NDArray[np.float32]]:
    """Of every element that some rank has in the end; none without a schedule for so many ranks."""
    try:
        schedule = schedule_of(library, collective, choice, p, nbytes)
    except InputError:
        return []
    if schedule is None:
        return []
    given = np.random.default_rng(1).standard_normal((p, 1, _ELEMENTS_PER_RANK)).astype(np.float32)
    buffers = [np.repeat(one, schedule.n_chunks, axis=0) for one in given]
    found = interpret(schedule, buffers)
    having = found if collective is Collective.ALLREDUCE else found[:1]
    return [element for buffer in having for element in buffer]
