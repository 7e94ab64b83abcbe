"""Tables and records of the scores of selectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from tuner.base.units import plural
from tuner.cli.terminal.output import print_cautions, print_table, print_text
from tuner.select.evaluate import (
    DEFAULT_LABEL,
    TUNER,
    TUNER_GUARDED,
    Score,
    Selections,
    score_selections,
)
from tuner.select.noise_floor import noise_floor

NOISE_FLOOR = "noise floor"
_MIN_NOTABLE_REGRET = 0.005  # smallest difference of mean regrets that is reported


@dataclass(frozen=True)
class ScoredSet:
    """The scores of one set of calls."""

    name: str
    picked: Selections

    @classmethod
    def total(cls, sets: Sequence[ScoredSet]) -> ScoredSet:
        """Return the calls of the sets with the most selectors, all of which they have."""
        names = max((one.picked.keys() for one in sets), key=len, default=())
        whole = [one for one in sets if one.picked.keys() >= {*names}]
        every = {name: [*chain(*(one.picked[name] for one in whole))] for name in names}
        lacking = "; ".join(one.name for one in sets if one not in whole)
        without = f" (without {lacking})" if lacking else ""
        return cls(f"total of {len(whole)} of {plural(len(sets), 'set')}{without}", every)

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Return the scores over all calls, by selector."""
        return score_selections(self.picked)

    @cached_property
    def scores_and_noise(self) -> dict[str, Score]:
        """Return the scores, and last the regret of the truly fastest choices."""
        asked = [case for case, _ in max(self.picked.values(), key=len, default=())]
        noise = {NOISE_FLOOR: Score(noise_floor(asked), math.nan, math.nan)} if asked else {}
        return self.scores | noise

    @cached_property
    def machines(self) -> list[ScoredSet]:
        """Return the calls on each machine with its library; none where there is only one."""
        groups = sorted({case.group for pairs in self.picked.values() for case, _ in pairs})
        return [ScoredSet(group, self._picked_on(group)) for group in groups if len(groups) > 1]

    def _picked_on(self, group: str) -> Selections:
        return {
            name: [pair for pair in pairs if pair[0].group == group]
            for name, pairs in self.picked.items()
        }

    @property
    def keeps_default(self) -> bool:
        """Return whether the selector that has to be sure keeps the default in all calls."""
        sure = self.picked.get(TUNER_GUARDED, ())
        return bool(sure) and all(choice.is_default for _, choice in sure)


def score_records(found: Sequence[ScoredSet]) -> dict[str, Any]:
    """Return the scores of sets, of the machines in them and in total, as JSON records."""
    return {
        "sets": {one.name: _records(one) for one in found},
        "machines": {
            one.name: {machine.name: _records(machine) for machine in one.machines} for one in found
        },
        "total": _records(ScoredSet.total(found)),
    }


def _records(one: ScoredSet) -> list[dict[str, Any]]:
    return [{"selector": key, **score.to_record()} for key, score in one.scores_and_noise.items()]


def print_scores(found: Sequence[ScoredSet], protocol: str) -> None:
    """Print a table for each set, one for each of its machines, and one for the total."""
    for one in found:
        _print_table(one.name, one, protocol)
        for machine in one.machines:
            _print_table(f"{one.name}, {machine.name}", machine, protocol)
    if len(found) > 1:
        total = ScoredSet.total(found)
        _print_table(total.name, total, protocol)
    print_cautions(f"{one.name}: {each}." for one in found for each in _cautions(one))
    if any(DEFAULT_LABEL not in one.picked for one in found):
        print_text(
            "Where the library's default was not measured, or is left out, nothing tells what is"
            " slower than it, nor which part of its regret is saved."
        )


def _print_table(name: str, one: ScoredSet, protocol: str) -> None:
    columns = ("selector", "mean", "95% interval", "p95", "worst", "slower", "headroom", "calls")
    print_table(
        f"{name}: regret, %, {protocol}",
        columns,
        [(key, *_cells(score)) for key, score in one.scores_and_noise.items()],
        right=columns[1:],
        droppable=("p95", "95% interval", "headroom", "worst"),
        wrappable=("selector",),
    )


def _cautions(one: ScoredSet) -> Iterator[str]:
    """Yield where our selectors save nothing, are slower, or have more regret than another."""
    own = one.scores
    ours = own.get(TUNER)
    if ours is None:
        return
    calls = ours.regret.points
    if one.keeps_default and own[DEFAULT_LABEL].regret.mean > _MIN_NOTABLE_REGRET:
        yield f"{TUNER_GUARDED} keeps the default in all calls, so that it saves nothing"
    if ours.slower_fraction > 0:
        share = f"{ours.slower_fraction:.0%} of {plural(calls, 'call')}"
        yield f"{TUNER} chose something slower than the default in {share}"
    for name, score in own.items():
        better = score.regret.mean < ours.regret.mean - _MIN_NOTABLE_REGRET
        if name != TUNER_GUARDED and better and score.regret.points == calls:
            yield (
                f"{name} has less regret than {TUNER}, {score.regret.mean:.1%} against"
                f" {ours.regret.mean:.1%}"
            )


def _cells(score: Score) -> tuple[str, ...]:
    regret = score.regret
    mean, *bounds, p95, worst = (
        f"{100 * value:.1f}" for value in (regret.mean, *regret.interval, regret.p95, regret.worst)
    )
    shares = [
        "" if math.isnan(value) else f"{round(100 * value)}%"
        for value in (score.slower_fraction, score.regret_reduction)
    ]
    return (mean, " to ".join(bounds), p95, worst, *shares, str(regret.points))
