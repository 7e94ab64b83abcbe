"""Find out which algorithms the library's default runs on a cluster, or read them from its file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, LaunchTimeoutError, ProbeError
from tuner.launch import CompletedRun, Launcher, MultiHostLauncher
from tuner.mpi_libraries.default_algorithms import (
    DefaultAlgorithms,
    PlacedCollective,
    default_algorithms_from_provenance,
)
from tuner.probe.batches import read_provenance
from tuner.probe.probe_spec import ProbeSpec, shapes_to_measure
from tuner.validation.libraries import TUNED_LIBRARIES

NEARBY_SIZE_RATIO = 1.2  # a switch within this factor of a candidate size gets no size of its own
DISCOVERY_FAILED = "nothing is known of what the library's default runs between sizes: "


def discover_defaults(
    out: Path,
    request: ProbeSpec,
    launcher: Launcher,
    on_note: Callable[[str], None],
    timeout_s: float = math.inf,
) -> tuple[DefaultAlgorithms, ...]:
    """Return the default's algorithms for all shapes and sizes of `request`.

    They are read from `out` where it has them, and otherwise found out. The result is empty if
    that fails.

    on_note     called with the reason why nothing is known
    timeout_s   seconds that the ranks may take

    Raises InputError for a damaged file.
    """
    calls = [
        (one, each.nodes, each.ppn, each.placement)
        for one in request.collectives
        for each in shapes_to_measure(request)
    ]
    most = max(request.sizes)
    kept = default_algorithms_from_provenance(read_provenance(out), request.library, str(out))
    if _covers_calls(kept, calls, most):
        return kept
    starter = _TimeLimitedLauncher(launcher, request.hosts, request.ppn, timeout_s)
    try:
        return TUNED_LIBRARIES[request.library].find_defaults(starter, calls, most)
    except LaunchTimeoutError:
        on_note(f"{DISCOVERY_FAILED}no time was left to find out")
        return ()
    except (InputError, ProbeError) as reason:
        on_note(f"{DISCOVERY_FAILED}{reason}")
        return ()


@dataclass(frozen=True)
class _TimeLimitedLauncher(MultiHostLauncher):
    """A launcher that ends its ranks after `timeout_s` seconds."""

    timeout_s: float = math.inf

    def run(
        self, ranks: int, arguments: Sequence[str], *, timeout: float | None = None, **known: Any
    ) -> CompletedRun:
        """Start ranks as `MultiHostLauncher.run` does, with the shorter of both timeouts."""
        least = min(self.timeout_s, math.inf if timeout is None else timeout)
        return super().run(ranks, arguments, timeout=None if least == math.inf else least, **known)


def _covers_calls(
    kept: Iterable[DefaultAlgorithms], calls: Iterable[PlacedCollective], most: int
) -> bool:
    reached = {each.placed_collective: each.max_bytes for each in kept}
    return all(reached.get(call, -1) >= most for call in calls)


def with_default_thresholds(
    known: Iterable[DefaultAlgorithms], call: PlacedCollective, sizes: Iterable[int]
) -> tuple[int, ...]:
    """Return the sizes and the thresholds between them at which the default switches.

    Thresholds within a factor of `NEARBY_SIZE_RATIO` of another size are left out.
    """
    found = sorted(sizes)
    for start in sorted(
        start for each in known if each.placed_collective == call for start in each.thresholds
    ):
        near = any(max(start, size) <= NEARBY_SIZE_RATIO * min(start, size) for size in found)
        if found[0] < start < found[-1] and not near:
            found.append(start)
            found.sort()
    return tuple(found)
