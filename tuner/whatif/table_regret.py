"""The regret of following a tuning table that was made for another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner import algorithms
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK
from tuner.core.table import DEFAULT, AlgorithmChoice, RuleKey, TuningTable
from tuner.prediction.call_candidates import Candidate, make_candidate
from tuner.whatif.study_result import TableRegret, TimedCandidate


@dataclass(frozen=True)
class TableLookup:
    """A table's choice for one call, and the key of the rules it comes from; None without rules."""

    collective: Collective
    choice: AlgorithmChoice
    key: RuleKey | None

    @property
    def candidate(self) -> Candidate | None:
        """The candidate to simulate for it; None where none of our schedules describes it."""
        if self.choice.algorithm not in algorithms.algorithm_names(
            self.collective, algorithms.REQUIREMENTS
        ):
            return None
        known = algorithms.describe(self.collective, self.choice.algorithm).params
        if not set(self.choice.params) <= set(known):
            return None
        return make_candidate(
            self.collective, self.choice.algorithm, {**known, **self.choice.params}
        )


def look_up_exported(table: TuningTable, call: RuleKey, nbytes: int) -> TableLookup:
    """Look up a call as a library does in the exported file, for operators that commute.

    Rules apply only to the number of ranks that they were made for, all others are left to the
    library default. Rules for cyclic placement apply only to the same shape.
    """
    fitting = [
        key
        for key in table.keys
        if (key.collective, key.memory) == (call.collective, call.memory)
        and key.p == call.p
        and (key.placement == BLOCK or key.shape == call.shape)
    ]
    key = max(fitting, key=lambda key: _closeness(key, call), default=None)
    rule = None if key is None else table.lookup(key, nbytes)
    return TableLookup(call.collective, AlgorithmChoice() if rule is None else rule.choice, key)


def _closeness(key: RuleKey, call: RuleKey) -> tuple[bool, bool, int, bool]:
    same, alike = (key.nodes, key.ppn) == (call.nodes, call.ppn), key.shape == call.shape
    return (alike, same, -abs(key.ppn - call.ppn), key.operators == "commutative")


def compute_table_regret(lookup: TableLookup, timings: Sequence[TimedCandidate]) -> TableRegret:
    """Return the regret of the table's choice, given the times of all simulated candidates."""
    regret, reason = _regret(lookup, timings)
    nodes, ppn = (lookup.key.nodes, lookup.key.ppn) if lookup.key else (0, 0)
    return TableRegret(lookup.choice.algorithm, lookup.choice.params, nodes, ppn, regret, reason)


def _regret(lookup: TableLookup, timings: Sequence[TimedCandidate]) -> tuple[float | None, str]:
    if lookup.key is None:
        return None, "the table has no rules for this call on so many ranks: the library decides"
    if lookup.choice.algorithm == DEFAULT:
        return None, "the library decides, and how is not known"
    if lookup.candidate is None:
        return None, "no schedule describes it"
    own = next((t for t in timings if t.is_same(lookup.candidate)), None)
    if own is None:
        return None, "too many transfers to simulate, or not for so many ranks"
    best = timings[0].seconds
    return (own.seconds / best - 1.0 if best > 0.0 else 0.0), ""
