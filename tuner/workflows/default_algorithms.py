"""What the library's default runs on a cluster, found out once and then read from its file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, ProbeError, UnendedError
from tuner.formats import mpich
from tuner.formats.mpich import default_algorithms as mpich_decisions
from tuner.launch import CompletedRun, Launcher, Spread
from tuner.launch.interpreters import libmpi
from tuner.mpi_libraries.default_algorithms import Call, Decisions, decisions_of
from tuner.probe.batches import provenance_of
from tuner.probe.probe_spec import Request, shapes
from tuner.validation import openmpi_default_algorithms as openmpi_decisions
from tuner.workflows.validation import place_for

NEAR = 1.2  # a switch within that factor of a size that is a candidate needs no size of its own
UNKNOWN = "nothing is known of what the library's default runs between sizes: "


def known_decisions(
    out: Path,
    request: Request,
    launcher: Launcher,
    on_note: Callable[[str], None],
    seconds: float = math.inf,
) -> tuple[Decisions, ...]:
    """For all shapes and sizes of `request`: what `out` keeps of them, else what can be found out.

    on_note     told why nothing is known of the default's
    seconds     that ranks may take to tell

    Raises InputError for a file that is damaged.
    """
    calls = [
        (one, each.nodes, each.ppn, each.placement)
        for one in request.collectives
        for each in shapes(request)
    ]
    most = max(request.sizes)
    kept = decisions_of(provenance_of(out), request.library, str(out))
    if request.library == "openmpi" and _cover(kept, calls, most):  # asking takes a launch
        return kept
    try:
        return _FIND[request.library](request, launcher, calls, most, seconds)
    except UnendedError:
        on_note(f"{UNKNOWN}no time was left to find out")
        return ()
    except (InputError, ProbeError) as reason:
        on_note(f"{UNKNOWN}{reason}")
        return ()


@dataclass(frozen=True)
class _LimitedSpread(Spread):
    """Starts ranks and ends them after `seconds`."""

    seconds: float = math.inf

    def run(
        self, ranks: int, arguments: Sequence[str], *, timeout: float | None = None, **known: Any
    ) -> CompletedRun:
        """As `Spread.run`."""
        least = min(self.seconds, math.inf if timeout is None else timeout)
        return super().run(ranks, arguments, timeout=None if least == math.inf else least, **known)


def _asked(
    request: Request, launcher: Launcher, calls: Sequence[Call], most: int, seconds: float
) -> tuple[Decisions, ...]:
    """Of Open MPI: its ranks tell."""
    starter = _LimitedSpread(launcher, request.hosts, request.ppn, seconds)
    with place_for(starter) as place:
        return openmpi_decisions.find(starter, calls, most, Path(place))


def _read(
    request: Request, launcher: Launcher, calls: Sequence[Call], most: int, _seconds: float
) -> tuple[Decisions, ...]:
    """Of MPICH: its library holds its rules."""
    trees = mpich.own_trees(libmpi(request.library, launcher.python))
    return mpich_decisions.find(trees, calls, most)


_FIND = {"openmpi": _asked, "mpich": _read}


def _cover(kept: Iterable[Decisions], calls: Iterable[Call], most: int) -> bool:
    reached = {each.call: each.most for each in kept}
    return all(reached.get(call, -1) >= most for call in calls)


def switches(known: Iterable[Decisions], call: Call, sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes within these at which the default starts to run something else, far from them."""
    found = sorted(sizes)
    for start in sorted(start for each in known if each.call == call for start in each.starts):
        near = any(max(start, size) <= NEAR * min(start, size) for size in found)
        if found[0] < start < found[-1] and not near:
            found.append(start)
            found.sort()
    return tuple(found)
