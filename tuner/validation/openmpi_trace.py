"""Evaluate what a preloaded tracer (openmpi_trace.c) sees of calls in Open MPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.base import c_compiler
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES, DECIDED_COLLECTIVES
from tuner.mpi_libraries.openmpi_rule_numbers import choice_of
from tuner.validation.validation import CallOutcome

SOURCE = Path(__file__).with_name("openmpi_trace.c")
# Those of tables that the tracer interposes.
TRACED_COLLECTIVES = tuple(one for one in COLLECTIVES if not one.is_ragged)
_COLLECTIVE_OF = {known.number: one for one, known in DECIDED_COLLECTIVES.items()}


def build_tracer(directory: Path) -> Path | None:
    """Return the compiled library to preload; None without a working C compiler."""
    return c_compiler.compile_shared_library(SOURCE, directory)


def executed_algorithm(collective: Collective, outcome: CallOutcome) -> AlgorithmChoice | None:
    """Return the algorithm that a call ended in.

    None where it was not exactly one call of `coll/tuned` on its own communicator.
    """
    own = [call for call in outcome.traced_calls if call[0]]
    if len(own) != 1 or own[0][1] != DECIDED_COLLECTIVES[collective].number:
        return None
    return _entered_algorithm(own[0])


def why_unknown(outcome: CallOutcome) -> str:
    """Return why `executed_algorithm` is None."""
    if any(call[0] for call in outcome.traced_calls):
        return "more than one call of coll/tuned answered the call"
    return "another component than coll/tuned answered the call"


def _entered_algorithm(call: Sequence[int]) -> AlgorithmChoice:
    """Return the algorithm that was entered last, with its parameters."""
    _, number, asked, faninout, segment, ran, shape = call
    collective = _COLLECTIVE_OF[number]
    if ran not in (asked, -1):
        return choice_of(collective, ran)
    choice = choice_of(collective, asked, faninout, segment, max(0, shape))
    if "radix" in choice.params and shape != -1:
        return replace(choice, params={**choice.params, "radix": shape})
    return choice


def nested_calls(outcome: CallOutcome) -> set[str]:
    """Return what ran on other communicators: parts of a call that `han` divided."""
    return {
        f"{_COLLECTIVE_OF[call[1]]} {_entered_algorithm(call)}"
        for call in outcome.traced_calls
        if not call[0]
    }
