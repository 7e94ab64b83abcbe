"""Finding out what Open MPI's default runs, shape by shape, without moving data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.launch.rank_program import rank_program
from tuner.mpi_libraries.default_algorithms import Call, Decisions
from tuner.validation.openmpi_trace import WATCHED, build_watcher, seen
from tuner.validation.validation import Answer, Starter

PROGRAM = rank_program("tuner.rank_programs.default_algorithms")
PATIENCE = 60.0  # seconds of a launch that takes a few


def find(
    starter: Starter, calls: Sequence[Call], most: int, directory: Path
) -> tuple[Decisions, ...]:
    """The default's decisions up to `most` bytes; no starts where they cannot be seen.

    directory   where watcher and calls go; all hosts see it

    Raises InputError without a C compiler, ProbeError when the ranks fail.
    """
    watcher = build_watcher(directory)
    if watcher is None:
        raise InputError("a C compiler is needed to watch what the library runs: install cc")
    asked = [call for call in calls if call[0] in WATCHED]
    path, found = directory / "decisions.json", dict[Call, list[tuple[int, list[int]]]]()
    records = [
        {
            "collective": str(collective),
            "nodes": nodes,
            "ppn": ppn,
            "placement": placement,
            "most": most,
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
            timeout=PATIENCE,
        )
    return tuple(_decisions(call, most, found.get(call, [])) for call in calls)


def _decisions(call: Call, most: int, steps: Sequence[tuple[int, list[int]]]) -> Decisions:
    collective, nodes, ppn, placement = call
    choices = tuple(seen(collective, Answer(0, (tuple(numbers),))) for _, numbers in steps)
    starts = tuple(start for start, _ in steps)
    return Decisions(collective, nodes, ppn, most, starts, choices, placement)
