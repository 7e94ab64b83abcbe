"""Find out what coll/tuned of Open MPI runs by default on any number of ranks, with one rank."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, RuleKey
from tuner.launch.rank_program import rank_arguments
from tuner.mpi_libraries.openmpi import effective_algorithm
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES, DECIDED_COLLECTIVES
from tuner.topology import CUDA
from tuner.validation.openmpi_trace import build_tracer, executed_algorithm
from tuner.validation.validation import CallOutcome, RankStarter

PROGRAM = rank_arguments("tuner.rank_programs.fixed_decisions")
MAX_RANKS = 1 << 20
MAX_BYTES = 1 << 32
TIMEOUT_S = 180.0  # for a launch that takes a few seconds on an idle computer
STAGED_COPIES = 2  # the send and the receive buffer go to the host


@dataclass(frozen=True)
class FixedDecision:
    """What coll/tuned runs by default from a number of ranks on.

    thresholds  bytes from which on the choice at the same position of `choices` is used; of one
                block where ranks exchange blocks (`Collective.moves_blocks`)
    """

    collective: Collective
    min_ranks: int
    thresholds: tuple[int, ...]
    choices: tuple[AlgorithmChoice | None, ...]


def find_fixed_decisions(starter: RankStarter) -> tuple[FixedDecision, ...]:
    """Return the decisions of the fixed decision functions, by collective and number of ranks.

    They hold up to MAX_RANKS ranks and MAX_BYTES bytes, for commutative operators. Raises
    InputError without a C compiler, ProbeError when the rank fails.
    """
    found = list[FixedDecision]()
    asked = [one for one in DECIDED_COLLECTIVES if not one.is_ragged]
    request = {"collectives": asked, "max_ranks": MAX_RANKS, "max_bytes": MAX_BYTES}

    def note(line: str) -> None:
        if line.startswith('{"collective"'):
            found.append(_decision(**json.loads(line)))

    with tempfile.TemporaryDirectory() as directory:
        tracer = build_tracer(Path(directory))
        if tracer is None:
            raise InputError("a C compiler is needed to ask Open MPI for its decisions: install cc")
        starter.run(
            1,
            [*PROGRAM, json.dumps(request)],
            environment={"LD_PRELOAD": str(tracer)},
            on_line=note,
            timeout=TIMEOUT_S,
        )
    return tuple(found)


def _decision(collective: str, ranks: int, steps: Sequence[tuple[int, list[int]]]) -> FixedDecision:
    one = Collective(collective)
    choices = tuple(
        executed_algorithm(one, CallOutcome(0, (tuple(numbers),))) for _, numbers in steps
    )
    return FixedDecision(one, ranks, tuple(start for start, _ in steps), choices)


known_decisions = lru_cache(find_fixed_decisions)


def fixed_choices(
    decisions: Iterable[FixedDecision], key: RuleKey, sizes: Sequence[int]
) -> Iterator[AlgorithmChoice | None]:
    """Yield what coll/tuned runs in calls of `sizes` bytes; None where that is unknown.

    Reductions of buffers in GPU memory are staged through the host (coll/accelerator).
    """
    known = COLLECTIVES.get(key.collective)
    stages = key.memory == CUDA and known is not None and known.is_staged
    fitting = [
        one for one in decisions if one.collective is key.collective and one.min_ranks <= key.p
    ]
    found = max(fitting, key=lambda one: one.min_ranks, default=None)
    blocks = max(key.collective.blocks(key.p)) if key.collective.moves_blocks else 1
    for nbytes in sizes:
        block = nbytes // blocks
        asked = found.choices[max(0, bisect_right(found.thresholds, block) - 1)] if found else None
        choice = asked and effective_algorithm(key.collective, asked, key.p, nbytes)
        yield _staged(key.collective, choice) if choice and stages else choice


def _staged(collective: Collective, choice: AlgorithmChoice) -> AlgorithmChoice | None:
    """Return the choice with copies through the host; None if no schedule describes it."""
    name = f"{choice.algorithm}_staged"
    if name not in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        return None
    return AlgorithmChoice(name, {"copies": STAGED_COPIES}, SCHEDULE)
