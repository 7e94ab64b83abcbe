"""The choices of an MPI library itself, as the table that a study compares with the best.

Open MPI: the fixed decisions of its component coll/tuned. Version 5 asks its component han first
on several nodes, unless it is excluded (`--mca coll ^han`). MPICH: the rules in its library, where
its device layer leaves a call to them. Open MPI stages allreduces of buffers in GPU memory through
the host (coll/accelerator); what MPICH does with such buffers is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

from tuner.base.errors import InputError, ProbeError
from tuner.core.measurement import Cluster
from tuner.core.table import NO_EVIDENCE, AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.launch import Launcher, find_interpreter
from tuner.mpi_libraries.products import title_of
from tuner.mpi_libraries.profiles import profile_of
from tuner.validation.libraries import TUNED_LIBRARIES

DEFAULT_PREFIX = "default:"  # begins the name of a library in a study's `table`
DEFAULT_KEY = "library_default"  # in the provenance of such a table

# The choices for calls of so many bytes.
Chooser = Callable[[RuleKey, Sequence[int]], Iterable[AlgorithmChoice | None]]


def default_table(library: str, keys: Iterable[RuleKey], sizes: Sequence[int]) -> TuningTable:
    """Return what a library chooses by itself for calls of `sizes` bytes, as a table.

    The library is the one that ranks on this computer would use. A rule has no evidence, and is for
    the library default where it is not known what that runs. Raises InputError for another library
    than Open MPI and MPICH, and where it is not there.

    sizes   ascending
    """
    if library not in TUNED_LIBRARIES:
        known = " and ".join(f"{DEFAULT_PREFIX}{name}" for name in TUNED_LIBRARIES)
        raise InputError(
            f"{DEFAULT_PREFIX}{library}: known are {known}, which choose by rules that can be read"
        )
    try:
        launcher = _launcher(library)
        version = launcher.installation.library
        choose = partial(TUNED_LIBRARIES[library].default_choices, launcher)
        rules = tuple(rule for key in keys for rule in _rules(key, sizes, choose))
    except ProbeError as reason:
        raise InputError(f"{DEFAULT_PREFIX}{library}: {reason}") from None
    return TuningTable(Cluster("any", 0, 0, "", 0), version, rules, {DEFAULT_KEY: True})


def title_of_default(table: TuningTable) -> str:
    """Return the name of a default for people; "" for any other table."""
    if not table.provenance.get(DEFAULT_KEY):
        return ""
    component = profile_of(table.library).default_component
    return title_of(table.library) + (f" ({component})" if component else "")


def _rules(key: RuleKey, sizes: Sequence[int], choose: Chooser) -> Iterator[Rule]:
    """Yield a rule for each range of sizes with one choice."""
    chosen = zip(sizes, choose(key, sizes), strict=True)
    ranges = [(next(same)[0], choice) for choice, same in groupby(chosen, key=lambda one: one[1])]
    stops = [start for start, _ in ranges[1:]]
    for (start, choice), stop in zip(ranges, [*stops, math.inf], strict=True):
        first = start if start > sizes[0] else 0
        yield Rule(key, first, stop, choice or AlgorithmChoice(), Evidence(NO_EVIDENCE))


def _launcher(library: str) -> Launcher:
    return Launcher.find(library, find_interpreter(library))
