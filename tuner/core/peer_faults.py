"""The outcome of a call of which one rank dies, stops for a time or is late, as a table states it.

`error`     the job ends with a status other than 0
`success`   every rank finishes the call
`hang`      neither happens in time
`fails`     the ranks fail or hang in such a call before the fault
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.base.units import format_size, plural
from tuner.core.table import Rule, TuningTable, table_record

DIES = "dies"
FAULTS = (DIES, "stops", "is late")
ERROR = "error"
HANG = "hang"
SUCCESS = "success"
FAILS = "fails"
OUTCOMES = (ERROR, HANG, SUCCESS, FAILS)
READY = "ready"  # printed by rank 0 before the fault
PEER_FAULTS = "peer_faults"  # where a table's provenance has them
ORIGIN = "origin"  # where they have the digest of the table that they are of


@dataclass(frozen=True)
class PeerFaults:
    """The outcomes of a rule's call of `nbytes`, by fault: with the table and without.

    hosts       names of the hosts that ranks could run on; empty: this computer
    launcher    command that started them
    """

    rule: Rule
    nbytes: int
    outcomes: tuple[str, ...]
    default: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    launcher: str = ""

    def __str__(self) -> str:
        """Return a sentence on the outcomes with the table, and on other ones without."""
        key = self.rule.key
        told = ", ".join(
            f"{fault}: {end}" for fault, end in zip(FAULTS, self.outcomes, strict=True)
        )
        alone = "" if self.is_as_default else f" (library alone: {', '.join(self.default)})"
        where = f"{key.collective} on {key.p} ranks at {format_size(self.nbytes)}"
        return f"{where}, {self.rule.choice}: rank {told}{alone}"

    @property
    def is_as_default(self) -> bool:
        return self.outcomes == self.default

    @property
    def when_dead(self) -> str:
        """The outcome where a rank dies."""
        return self.outcomes[FAULTS.index(DIES)]

    def holds_for(self, hosts: Sequence[str], launcher: str) -> bool:
        """Return whether the outcomes are known for these hosts and this launcher.

        Ranks may have failed before the fault for another reason than the rule.
        """
        is_here = (self.hosts, self.launcher) == (tuple(hosts), launcher)
        return is_here and FAILS not in self.outcomes

    def as_record(self) -> dict[str, Any]:
        """Return the record of a table's provenance."""
        return {
            **_call_of(self.rule),
            "nbytes": self.nbytes,
            "outcomes": dict(zip(FAULTS, self.outcomes, strict=True)),
            "default": dict(zip(FAULTS, self.default, strict=True)),
            "hosts": list(self.hosts),
            "launcher": self.launcher,
        }


def _call_of(rule: Rule) -> dict[str, Any]:
    """Return what the outcomes are for: a choice for a call of ranks on nodes."""
    key = rule.key
    return {
        "collective": str(key.collective),
        "nodes": key.nodes,
        "ppn": key.ppn,
        "placement": key.placement,
        "memory": key.memory,
        "operators": key.operators,
        "choice": str(rule.choice),
    }


def table_digest(table: TuningTable) -> str:
    """Return a digest of a table but for its provenance; a file of its outcomes is known by it."""
    record = {**table_record(table), "provenance": None}
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def stated_outcomes(table: TuningTable, rules: Iterable[Rule]) -> list[PeerFaults]:
    """Return what a table states of some rules, which another table may have.

    Whatever is not as `tuner table faults` writes it is left out.
    """
    stated = table.provenance.get(PEER_FAULTS)
    listed = stated.get("rules") if isinstance(stated, Mapping) else None
    records = [one for one in listed if _is_record(one)] if isinstance(listed, list) else []
    first = {rule: next((r for r in records if _is_of_rule(r, rule)), None) for rule in rules}
    return [
        PeerFaults(
            rule,
            one["nbytes"],
            _told(one["outcomes"]),
            _told(one["default"]),
            tuple(one["hosts"]),
            one["launcher"],
        )
        for rule, one in first.items()
        if one
    ]


def _told(outcomes: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(outcomes[fault] for fault in FAULTS)


def describe_peer_faults(table: TuningTable) -> str:
    """Return what a table states about its rules when a rank dies, "" for nothing."""
    rules = (rule for rule in table.rules if not rule.choice.is_default)
    outcomes = Counter(one.when_dead for one in stated_outcomes(table, rules))
    told = ", ".join(f"{outcome} in {number}" for outcome, number in outcomes.most_common())
    return f"when a rank dies: {told} of {plural(outcomes.total(), 'rule')}" if told else ""


def _is_record(one: Any) -> bool:
    """Return whether a value of a file is a record of outcomes."""
    if not isinstance(one, Mapping) or not isinstance(one.get("nbytes"), int):
        return False
    hosts = one.get("hosts")
    if not isinstance(hosts, list) or not all(isinstance(text, str) for text in hosts):
        return False
    sides = one.get("outcomes"), one.get("default")
    return isinstance(one.get("launcher"), str) and all(
        isinstance(side, Mapping) and all(side.get(fault) in OUTCOMES for fault in FAULTS)
        for side in sides
    )


def _is_of_rule(record: Mapping[str, Any], rule: Rule) -> bool:
    """Return whether a record is of a call that a rule decides about."""
    is_of_size = rule.start_bytes <= record["nbytes"] < rule.stop_bytes
    return is_of_size and _call_of(rule).items() <= record.items()
