"""What a preloaded watcher sees of calls in Open MPI (openmpi_trace.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.base import c_compiler
from tuner.core.collective import Collective
from tuner.core.table import Choice
from tuner.mpi_libraries.openmpi import COLLECTIVE_IDS, choice_of
from tuner.validation.validation import Answer

SOURCE = Path(__file__).with_name("openmpi_trace.c")
WATCHED = (Collective.BCAST, Collective.ALLREDUCE)  # what the watcher stands before


def build_watcher(directory: Path) -> Path | None:
    """The compiled library to preload; None without a working C compiler."""
    return c_compiler.build(SOURCE, directory)


def seen(collective: Collective, answer: Answer) -> Choice | None:
    """The algorithm that a call ended in; None where it was not one call of `coll/tuned` on its own
    communicator.
    """
    own = [call for call in answer.executed if call[0]]
    if len(own) != 1 or own[0][1] != COLLECTIVE_IDS[collective]:
        return None
    return _entered(own[0])


def unseen(answer: Answer) -> str:
    """Why there is no algorithm that a call ended in."""
    if any(call[0] for call in answer.executed):
        return "more than one call of coll/tuned answered the call"
    return "another component than coll/tuned answered the call"


def _entered(call: Sequence[int]) -> Choice:
    """The algorithm that was entered last, with the parameters that it got."""
    _, number, asked, faninout, segment, ran, shape = call
    collective = next(c for c, known in COLLECTIVE_IDS.items() if known == number)
    if ran not in (asked, -1):
        return choice_of(collective, ran, 0, 0)
    choice = choice_of(collective, asked, faninout, segment)
    if "radix" in choice.params and shape != -1:
        return replace(choice, params={**choice.params, "radix": shape})
    return choice


def inside(answer: Answer) -> set[str]:
    """What ran on other communicators: parts of a call that `han` divided."""
    names = {number: name for name, number in COLLECTIVE_IDS.items()}
    return {f"{names[call[1]]} {_entered(call)}" for call in answer.executed if not call[0]}
