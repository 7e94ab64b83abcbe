"""The part of a table's rule that its algorithm can run."""

from __future__ import annotations

import math

import pytest

from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, Evidence, Rule, RuleKey
from tuner.mpi_libraries.followed_rules import COUNT_LIMIT_BYTES, split_at_limits

DEFAULT = AlgorithmChoice()
SEGMENT = {"segment": 1024}
CHAIN = AlgorithmChoice("chain", SEGMENT)
RING = AlgorithmChoice("segmented_ring", SEGMENT)
OURS = AlgorithmChoice("pipeline", SEGMENT, SCHEDULE)
BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE


@pytest.mark.parametrize(
    ("library", "collective", "choice", "start", "stop", "expected"),
    [
        ("openmpi 5.0.11", BCAST, DEFAULT, 0, math.inf, {0: DEFAULT}),
        (
            "openmpi 5.0.11",
            BCAST,
            CHAIN,
            0,
            math.inf,
            {0: DEFAULT, 1: CHAIN, COUNT_LIMIT_BYTES: DEFAULT},
        ),
        ("openmpi 5.0.11", BCAST, CHAIN, 0, 1, {0: DEFAULT}),
        ("openmpi 5.0.11", BCAST, CHAIN, 1, 4096, {1: CHAIN}),
        ("openmpi 5.0.11", BCAST, CHAIN, 1 << 40, math.inf, {1 << 40: DEFAULT}),
        ("openmpi 5.0.11", BCAST, AlgorithmChoice("binomial"), 0, 64, {0: "binomial"}),
        ("openmpi 5.0.11", ALLREDUCE, RING, 0, math.inf, {0: DEFAULT, 1: RING}),
        ("mpich 5.0.2", BCAST, AlgorithmChoice("pipelined_tree", SEGMENT), 0, 64, {0: "pipelined"}),
        ("openmpi 5.0.11", BCAST, OURS, 0, math.inf, {0: OURS, COUNT_LIMIT_BYTES: DEFAULT}),
    ],
)
def test_the_library_has_the_calls_that_an_algorithm_cannot_take(
    library: str,
    collective: Collective,
    choice: AlgorithmChoice,
    start: int,
    stop: float,
    expected: dict[int, AlgorithmChoice | str],
) -> None:
    rule = Rule(RuleKey(collective, 1, 3), start, stop, choice, Evidence("measured"))
    parts = split_at_limits(rule, library)
    found = {part.start_bytes: part.choice for part in parts}
    assert found == {n: choice if isinstance(own, str) else own for n, own in expected.items()}
    assert [part.stop_bytes for part in parts] == [*list(found)[1:], stop]
