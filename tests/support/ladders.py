"""Tables written in a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable

CLUSTER = Cluster("test", 1, 2, "some cpu", 1 << 30)
Rungs = Sequence[tuple[int, AlgorithmChoice]]  # from so many bytes on, this choice


def table_of(
    ladders: Mapping[Any, Rungs], probed: tuple[int, ...] = (), library: str = "openmpi 5.0.11"
) -> TuningTable:
    """A one-node table from (collective, p[, operators]) -> rungs; the first one without data."""
    rules = []
    for (collective, p, *rest), rungs in ladders.items():
        key = RuleKey(collective, 1, p, operators=rest[0] if rest else "any")
        rungs = rungs if Collective(collective).has_data else rungs[:1]
        bounds: list[float] = [*(lo for lo, _ in rungs), math.inf]
        for (lo, hi), (_, choice) in zip(pairwise(bounds), rungs, strict=True):
            sizes = tuple(n for n in probed if lo <= n < hi)
            rules.append(Rule(key, int(lo), hi, choice, Evidence("measured", sizes)))
    return TuningTable(CLUSTER, library, tuple(rules))


def staircase(
    choices: Sequence[AlgorithmChoice], start: int, width: int
) -> list[tuple[int, AlgorithmChoice]]:
    """Each choice on its own few bytes from `start` on, the default below and above."""
    rungs = [(start + width * i, choice) for i, choice in enumerate(choices)]
    return [(0, AlgorithmChoice()), *rungs, (start + width * len(choices), AlgorithmChoice())]


def spread(nodes: int, ppn: int, ladders: dict[Collective, Rungs], library: str) -> TuningTable:
    """Return a table for `ppn` ranks on each of some nodes."""
    made = table_of(
        {(name, nodes * ppn): rungs for name, rungs in ladders.items()}, (64, 65536), library
    )
    rules = (replace(r, key=replace(r.key, nodes=nodes, ppn=ppn)) for r in made.rules)
    return TuningTable(made.cluster, library, tuple(rules))
