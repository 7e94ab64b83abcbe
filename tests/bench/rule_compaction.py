"""How many rules compaction leaves, and what they lose.

    python -m tests.bench.rule_compaction FILE...

FILE is of `tuner probe run`, or results that `tuner import-results` reads. Every call (collective,
nodes, ppn, run) with the default measured and several sizes is a ladder. `sizes` would be the rules
without any compaction, `n_unmerged_rules` those of neighbouring sizes with the same winner
together, `rules` what is left, less those for the default beyond the probed sizes. `added` is the
mean regret that it adds to the winners' own, as measured; `all` what winners take longer than the
best algorithm, whatever the evidence. Series of results that have one sample count as if it was
certain.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tuner.cli.terminal.output import print_table
from tuner.core.measurement import read_measurements
from tuner.core.table import AlgorithmChoice
from tuner.importers import AUTO, UserMetadata, read_results
from tuner.select.cases import EvaluationCase, cases_from_measurements, cases_from_readings
from tuner.select.dataset import Observation, no_simulation
from tuner.select.rule_merging import SizePartition, optimal_partitions, smallest_within_loss
from tuner.select.significance import DEFAULT_CHOICE, Comparison, compare_with_default

COLUMNS = ("set", "ladders", "sizes", "naive", "rules", "of sizes", "added", "all")
SURE = 12  # samples that a result of one sample is repeated to
Ladder = list[Comparison]


def cases_of(path: Path) -> list[EvaluationCase]:
    """Of a file of either kind."""
    if path.suffix == ".ndjson":
        return cases_from_measurements(read_measurements(path), no_simulation)
    return cases_from_readings(read_results(path, AUTO, UserMetadata()))


def certain(row: Observation) -> Observation:
    """With samples that a rule could rest on."""
    few = max(map(len, row.samples.values())) < SURE
    return replace(row, samples={0: (row.seconds,) * SURE}) if few else row


def ladders(cases: Sequence[EvaluationCase]) -> Iterator[tuple[str, Ladder]]:
    """With the set that each belongs to."""
    found: dict[tuple[object, ...], Ladder] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.point):
        if DEFAULT_CHOICE in case.observations:
            q = case.point
            key = (f"{case.group} {q.collective}", q.nodes, q.ppn, q.memory)
            found[key].append(
                compare_with_default(q, [certain(row) for row in case.observations.values()])
            )
    yield from ((str(key[0]), ladder) for key, ladder in found.items() if len(ladder) > 2)


def winner(contest: Comparison) -> AlgorithmChoice:
    """What a rule for this size alone would say."""
    return max(
        sorted(contest.winners, key=str), key=contest.gains.__getitem__, default=DEFAULT_CHOICE
    )


def naive(ladder: Ladder) -> int:
    """Rules without compaction, of neighbours that agree."""
    return sum(1 for _ in groupby(winner(contest) for contest in ladder))


def added(plan: SizePartition) -> float:
    """Sum over the sizes, of medians."""
    total = 0.0
    for group in plan.groups:
        choice = min(group.choices, key=str)
        for contest in group.comparisons:
            total += contest.seconds[choice] / contest.seconds[winner(contest)] - 1
    return total


def beyond(ladder: Ladder) -> float:
    """Sum over the sizes of what the winners take longer than the best, proved or not."""
    return sum(c.seconds[winner(c)] / min(c.seconds.values()) - 1 for c in ladder)


def main(*files: str) -> None:
    """Print a line for each set, and one for all."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 6)
    for file in files:
        for name, ladder in ladders(cases_of(Path(file))):
            plan = smallest_within_loss(optimal_partitions(ladder, lambda _: True))
            one = (1, plan.n_sizes, naive(ladder), len(plan.groups), added(plan), beyond(ladder))
            for key in (f"{Path(file).stem}: {name}", "all"):
                sums[key] = [a + b for a, b in zip(sums[key], one, strict=True)]
    rows = [
        (
            name,
            *(f"{n:.0f}" for n in (count, sizes, own, rules)),
            f"{rules / sizes:.0%}",
            f"{more / sizes:.2%}",
            f"{rest / sizes:.2%}",
        )
        for name, (count, sizes, own, rules, more, rest) in sums.items()
    ]
    print_table("compaction", COLUMNS, rows, right=COLUMNS[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
