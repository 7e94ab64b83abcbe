"""Find out what Open MPI's default runs, shape by shape, without moving data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.launch.rank_program import rank_arguments
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, PlacedCollective
from tuner.validation.openmpi_trace import TRACED_COLLECTIVES, build_tracer, executed_algorithm
from tuner.validation.validation import CallOutcome, RankStarter

PROGRAM = rank_arguments("tuner.rank_programs.default_algorithms")
TIMEOUT_S = 180.0  # for a launch that takes a few seconds on an idle computer


def find_default_algorithms(
    starter: RankStarter, calls: Sequence[PlacedCollective], max_bytes: int, directory: Path
) -> tuple[DefaultAlgorithms, ...]:
    """Return the default's decisions up to `max_bytes` bytes; no starts where they cannot be seen.

    directory   for the tracer and the list of calls; all hosts see it

    Raises InputError without a C compiler, ProbeError when the ranks fail.
    """
    watcher = build_tracer(directory)
    if watcher is None:
        raise InputError("a C compiler is needed to watch what the library runs: install cc")
    asked = [call for call in calls if call[0] in TRACED_COLLECTIVES]
    path = directory / "decisions.json"
    found = dict[PlacedCollective, list[tuple[int, list[int]]]]()
    records = [
        {
            "collective": str(collective),
            "nodes": nodes,
            "ppn": ppn,
            "placement": placement,
            "max_bytes": max_bytes,
        }
        for collective, nodes, ppn, placement in asked
    ]
    write_atomically(path, json.dumps(records))

    def note(line: str) -> None:
        if line.startswith('{"call"'):
            record = json.loads(line)
            found[asked[record["call"]]] = record["steps"]

    if asked:
        starter.run(
            max(nodes * ppn for _, nodes, ppn, _ in asked),
            [*PROGRAM, str(path)],
            environment={"LD_PRELOAD": str(watcher)},
            on_line=note,
            timeout=TIMEOUT_S,
        )
    return tuple(_default_algorithms(call, max_bytes, found.get(call, [])) for call in calls)


def _default_algorithms(
    call: PlacedCollective, max_bytes: int, steps: Sequence[tuple[int, list[int]]]
) -> DefaultAlgorithms:
    collective, nodes, ppn, placement = call
    choices = tuple(
        executed_algorithm(collective, CallOutcome(0, (tuple(numbers),))) for _, numbers in steps
    )
    starts = tuple(start for start, _ in steps)
    return DefaultAlgorithms(collective, nodes, ppn, max_bytes, starts, choices, placement)
