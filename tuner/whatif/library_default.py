"""The choices of an MPI library itself, as the table that a study compares with the best.

Open MPI: the fixed decisions of its component coll/tuned. Version 5 asks its component han first
on several nodes, unless it is excluded (`--mca coll ^han`). MPICH: the rules in its library, where
its device layer leaves a call to them. Open MPI stages allreduces of buffers in GPU memory through
the host (coll/accelerator); what MPICH does with such buffers is not known.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from tuner import algorithms
from tuner.base.errors import InputError, ProbeError
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.table import (
    NO_EVIDENCE,
    SCHEDULE,
    AlgorithmConfig,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
)
from tuner.formats import mpich
from tuner.formats.mpich.default_algorithms import find_default_algorithms
from tuner.launch import Launcher
from tuner.launch.interpreters import find_interpreter
from tuner.mpi_libraries import library_module
from tuner.mpi_libraries.mpich import ALGORITHMS
from tuner.mpi_libraries.openmpi import STAGED_COLLECTIVES
from tuner.mpi_libraries.products import MPICH, OPENMPI, base_of, title_of
from tuner.topology import CUDA
from tuner.validation.openmpi_fixed_decisions import FixedDecision, find_fixed_decisions

DEFAULT_PREFIX = "default:"  # begins the name of a library in a study's `table`
DEFAULT_KEY = "library_default"  # in the provenance of such a table
STAGED_COPIES = 2  # of Open MPI: the send and the receive buffer go to the host

# The choices for calls of so many bytes.
Chooser = Callable[[RuleKey, Sequence[int]], Iterable[AlgorithmConfig | None]]


def default_table(library: str, keys: Iterable[RuleKey], sizes: Sequence[int]) -> TuningTable:
    """Return what a library chooses by itself for calls of `sizes` bytes, as a table.

    The library is the one that ranks on this computer would use. A rule has no evidence, and is for
    the library default where it is not known what that runs. Raises InputError for another library
    than Open MPI and MPICH, and where it is not there.

    sizes   ascending
    """
    if library not in _CHOOSERS:
        raise InputError(
            f"{DEFAULT_PREFIX}{library}: known are {DEFAULT_PREFIX}{OPENMPI} and"
            f" {DEFAULT_PREFIX}{MPICH}, which choose by rules that can be read"
        )
    try:
        version, choose = _CHOOSERS[library]()
    except ProbeError as reason:
        raise InputError(f"{DEFAULT_PREFIX}{library}: {reason}") from None
    rules = tuple(rule for key in keys for rule in _rules(key, sizes, choose))
    return TuningTable(Cluster("any", 0, 0, "", 0), version, rules, {DEFAULT_KEY: True})


def title_of_default(table: TuningTable) -> str:
    """Return the name of a default for people; "" for any other table."""
    if not table.provenance.get(DEFAULT_KEY):
        return ""
    component = " (coll/tuned)" if base_of(table.library) == OPENMPI else ""
    return f"{title_of(table.library)}{component}"


def _rules(key: RuleKey, sizes: Sequence[int], choose: Chooser) -> Iterator[Rule]:
    """Yield a rule for each range of sizes with one choice."""
    chosen = zip(sizes, choose(key, sizes), strict=True)
    ranges = [(next(same)[0], choice) for choice, same in groupby(chosen, key=lambda one: one[1])]
    stops = [start for start, _ in ranges[1:]]
    for (start, choice), stop in zip(ranges, [*stops, math.inf], strict=True):
        first = start if start > sizes[0] else 0
        yield Rule(key, first, stop, choice or AlgorithmConfig(), Evidence(NO_EVIDENCE))


def _openmpi() -> tuple[str, Chooser]:
    launcher = _launcher(OPENMPI)
    known = _fixed_decisions(launcher)

    def choose(key: RuleKey, sizes: Sequence[int]) -> Iterator[AlgorithmConfig | None]:
        stages = key.memory == CUDA and key.collective in STAGED_COLLECTIVES
        for nbytes in sizes:
            choice = _fixed_choice(known, key.collective, key.p, nbytes)
            yield _staged(key.collective, choice) if choice and stages else choice

    return launcher.installation.library, choose


def _fixed_choice(
    known: Iterable[FixedDecision], collective: Collective, p: int, nbytes: int
) -> AlgorithmConfig | None:
    """Return what coll/tuned runs; None for a collective that is not known."""
    fitting = [one for one in known if one.collective is collective and one.min_ranks <= p]
    if not fitting:
        return None
    found = max(fitting, key=lambda one: one.min_ranks)
    choice = found.choices[max(0, bisect_right(found.thresholds, nbytes) - 1)]
    module = library_module(OPENMPI)
    return choice and module.effective_algorithm(collective, choice, p, nbytes)


def _staged(collective: Collective, choice: AlgorithmConfig) -> AlgorithmConfig | None:
    """Return the choice with copies through the host; None if no schedule describes it."""
    name = f"{choice.algorithm}_staged"
    if name not in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        return None
    return AlgorithmConfig(name, {"copies": STAGED_COPIES}, SCHEDULE)


def _mpich() -> tuple[str, Chooser]:
    launcher = _launcher(MPICH)
    trees = _generic_trees(launcher.libmpi())

    def choose(key: RuleKey, sizes: Sequence[int]) -> Iterator[AlgorithmConfig | None]:
        call = (key.collective, key.nodes, key.ppn, key.placement)
        known = key.collective in ALGORITHMS and key.memory != CUDA
        found = find_default_algorithms(trees, [call], max(sizes)) if known else ()
        return (found[0].config_at(nbytes) if found else None for nbytes in sizes)

    return launcher.installation.library, choose


def _launcher(library: str) -> Launcher:
    return Launcher.find(library, find_interpreter(library))


_fixed_decisions = lru_cache(find_fixed_decisions)
_generic_trees = lru_cache(mpich.read_generic_trees)
_CHOOSERS: dict[str, Callable[[], tuple[str, Chooser]]] = {OPENMPI: _openmpi, MPICH: _mpich}
