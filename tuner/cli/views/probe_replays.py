"""Tables and records of replayed probes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

import numpy as np

from tuner.base.units import plural
from tuner.cli.terminal.output import print_table, print_text
from tuner.select.evaluate import RegretSummary, summarise_regret
from tuner.select.replay import ReplayStage
from tuner.select.value_of_information import MAX_REGRET

_EXPECTED_FACTOR = 3.0  # up to which, with a point more, an expected regret counts as right
_EXPECTED_MARGIN = 0.01


@dataclass(frozen=True)
class ReplayedProbes:
    """The replayed probes of one set of comparable calls.

    has_prior   whether results of other machines were known
    runs        stages of each replay
    """

    name: str
    has_prior: bool
    runs: Sequence[Sequence[ReplayStage]]

    @property
    def stages(self) -> list[tuple[ReplayStage, ...]]:
        """Return the stages of all replays after each share."""
        return list(zip(*self.runs, strict=True))


def probe_records(found: Sequence[ReplayedProbes]) -> dict[str, list[dict[str, Any]]]:
    """Return JSON records by set, one for each share without and with a prior."""
    records: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in found:
        for stages in one.stages:
            summary = _summary(stages)
            records[one.name].append(
                {
                    "share": stages[0].share,
                    "prior": one.has_prior,
                    "points": summary.points,
                    "replays": len(stages),
                    "mean": summary.mean,
                    "interval": summary.interval,
                    "slower": _slower(stages),
                    "expected": _expected(stages),
                }
            )
    return dict(records)


def print_probes(found: Sequence[ReplayedProbes]) -> None:
    """Print a table for each set, the means over all sets, and how often these were expected."""
    columns = ("probes", "mean", "95% interval", "slower", "expected")
    for one in found:
        rows = [
            (
                f"{100 * own[0].share:g}%",
                f"{100 * (summary := _summary(own)).mean:.1f}",
                " to ".join(f"{100 * bound:.1f}" for bound in summary.interval),
                f"{100 * _slower(own):.1f}%",
                f"{100 * _expected(own):.1f}",
            )
            for own in one.stages
        ]
        prior = ", other machines as a prior" if one.has_prior else ""
        print_table(f"{one.name}: regret, %, probes{prior}", columns, rows, right=columns[1:])
    _print_means(found)


def _print_means(found: Sequence[ReplayedProbes]) -> None:
    for has_prior in (False, True):
        own = [one for one in found if one.has_prior == has_prior]
        if len(own) > 1:
            means = [
                f"{100 * np.mean([_summary(stages).mean for stages in same]):.1f} after"
                f" {100 * same[0][0].share:g}%"
                for same in zip(*(one.stages for one in own), strict=True)
            ]
            prior = "with other machines as a prior" if has_prior else "without a prior"
            print_text(f"Mean regret of {len(own)} sets {prior}, %: {', '.join(means)}.")
    later = [stage for one in found for stage in chain(*one.stages[1:])]
    truth = np.array([np.minimum(stage.regrets, MAX_REGRET).mean() for stage in later])
    expected = np.array([stage.expected for stage in later])
    high = expected > _EXPECTED_FACTOR * truth + _EXPECTED_MARGIN
    low, cases = truth > expected, plural(len(later), "case")
    print_text(
        "The expected regret, in which a call counts 200 % at most, was below the true one in"
        f" {low.mean():.0%} of {cases}, and above three times the true one plus a percentage point"
        f" in {high.mean():.0%}."
    )


def _summary(stages: Sequence[ReplayStage]) -> RegretSummary:
    """Return the summary of each call's mean regret over the replays."""
    return summarise_regret(list(map(fmean, zip(*(one.regrets for one in stages), strict=True))))


def _slower(stages: Sequence[ReplayStage]) -> float:
    return float(np.mean([one for stage in stages for one in stage.slower]))


def _expected(stages: Sequence[ReplayStage]) -> float:
    return float(np.mean([stage.expected for stage in stages]))
