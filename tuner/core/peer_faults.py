"""The outcome of a call of which one rank dies, stops for a time or is late, as a table states it.

`error`     the job ends with a status other than 0
`success`   every rank finishes the call
`hang`      neither happens in time
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tuner.base.units import plural
from tuner.core.table import Rule, TuningTable

DIES = "dies"
FAULTS = (DIES, "stops", "is late")
ERROR = "error"
HANG = "hang"
SUCCESS = "success"
PEER_FAULTS = "peer_faults"  # where a table's provenance has them


@dataclass(frozen=True)
class PeerFaults:
    """The outcomes of a rule's call of `nbytes`, by fault: with the table and without."""

    rule: Rule
    nbytes: int
    outcomes: tuple[str, ...]
    default: tuple[str, ...]

    @property
    def is_as_default(self) -> bool:
        return self.outcomes == self.default

    @property
    def when_dead(self) -> str:
        """The outcome where a rank dies."""
        return self.outcomes[FAULTS.index(DIES)]

    def as_record(self) -> dict[str, Any]:
        """Return the record of a table's provenance."""
        return {
            **_call_of(self.rule),
            "nbytes": self.nbytes,
            "outcomes": dict(zip(FAULTS, self.outcomes, strict=True)),
            "default": dict(zip(FAULTS, self.default, strict=True)),
        }


def _call_of(rule: Rule) -> dict[str, Any]:
    """Return what the outcomes are for: a choice of a collective on nodes of so many ranks."""
    key = rule.key
    return {
        "collective": str(key.collective),
        "nodes": key.nodes,
        "ppn": key.ppn,
        "operators": key.operators,
        "choice": str(rule.choice),
    }


def describe_peer_faults(table: TuningTable) -> str:
    """Return what a table states about its rules when a rank dies, "" for nothing."""
    stated = table.provenance.get(PEER_FAULTS, {"rules": [], "at": ""})
    records = stated["rules"]
    rules = [_call_of(rule) for rule in table.rules if not rule.choice.is_default]
    outcomes = Counter(
        one["outcomes"][DIES]
        for one in records
        if any(rule.items() <= one.items() for rule in rules)
    )
    if not outcomes:
        return ""
    told = ", ".join(f"{outcome} in {number}" for outcome, number in outcomes.most_common())
    known = sum(any(rule.items() <= one.items() for one in records) for rule in rules)
    return f"when a rank dies: {told} of {plural(known, 'rule')} ({stated['at']})"
