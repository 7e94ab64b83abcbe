"""The tuning table, the main result of a run: rules with evidence.

Rules of one key (collective, nodes, ppn, placement, memory, operators) cover [0, inf) bytes without
gap or overlap. `operators` is `any` (order-preserving: safe for every operator, also
non-commutative ones) or `commutative` (may reorder operands). A lookup for a non-commutative
operator sees the rules for `any` only.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import (
    dataclass_from_record,
    encode_infinities,
    load_json,
    write_atomically,
)
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.path_classes import BLOCK, PlacementMixin, omit_default_placement

FORMAT_VERSION = 1
OPERATORS = ("any", "commutative")
DEFAULT = "default"  # the algorithm name that stands for the library default
LIBRARY, SCHEDULE, NCCL = "library", "schedule", "nccl"
NOT_IN_FILES = f"cyclic ranks, {' or '.join(one for one in Collective if one.is_ragged)}"
RUNNERS = (LIBRARY, SCHEDULE, NCCL)
RUNNER_OF_KIND = {
    "collective": LIBRARY,
    SCHEDULE: SCHEDULE,
}  # kind of a measured series -> what ran it
MEASURED, LEARNED, SIMULATED, NO_EVIDENCE = "measured", "learned", "simulated", "none"
DISTURBED_KEY = "disturbed"  # provenance key of the calls in launches whose times were left out


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm with its parameters; `DEFAULT` is the library default.

    runner      what runs it: the MPI library's own code, our schedule over point-to-point messages,
                or NCCL
    """

    algorithm: str = DEFAULT
    params: Mapping[str, int] = field(default_factory=dict)
    runner: str = LIBRARY

    def __post_init__(self) -> None:
        if self.runner not in RUNNERS or (self.is_default and self.runner != LIBRARY):
            raise ValueError(
                f"{shortened_repr(self.algorithm)} cannot run via {shortened_repr(self.runner)}"
            )
        for name in (self.algorithm, *self.params):
            if not name.isprintable():  # it could hold a terminal's control sequences
                raise ValueError(
                    f"{shortened_repr(name)} is not a name of an algorithm or a parameter"
                )

    @property
    def is_default(self) -> bool:
        return self.algorithm == DEFAULT

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in sorted(self.params.items()))
        name = f"{self.algorithm}({inside})" if inside else self.algorithm
        return name if self.runner == LIBRARY else f"{name} via {self.runner}"

    def __hash__(self) -> int:
        return hash((self.algorithm, tuple(sorted(self.params.items())), self.runner))


@dataclass(frozen=True)
class Evidence:
    """The evidence for a rule. Times are in seconds.

    They are midmeans (`tuner.base.statistics`), or expected by a posterior where an experiment
    design chose what was measured or the basis is not `measured`.

    basis       measured | learned (from other calls, measured and simulated) | simulated (alone) |
                none (no evidence for this range)
    nbytes      the probed sizes that support the rule, or those at which its times are predicted
    default_s   time of the library default at each of these sizes, or empty
    chosen_s    time of the chosen choice at each size; as long as `default_s`
    predicted_s predicted time at each size, or empty
    gain        default time / chosen time at these sizes, geometric mean; 1 for the default
    gain_ci95   its 95 % interval
    slowdown_probability    of being over 5 % slower than the default, the largest at these sizes
                            where a posterior decides; None where measured samples do
    """

    basis: str
    nbytes: tuple[int, ...] = ()
    default_s: tuple[float, ...] = ()
    chosen_s: tuple[float, ...] = ()
    predicted_s: tuple[float, ...] = ()
    gain: float = 1.0
    gain_ci95: tuple[float, float] = (1.0, 1.0)
    runner_up: str = ""
    slowdown_probability: float | None = None


@dataclass(frozen=True)
class RuleKey(PlacementMixin):
    """The calls that a list of rules is for, without their message size.

    memory      kind of memory that the buffers are in; always that of the host without data
    """

    collective: Collective
    nodes: int
    ppn: int
    memory: str = "host"
    operators: str = "any"
    placement: str = BLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Collective(self.collective).has_data:
            vars(self)["memory"] = "host"

    @property
    def p(self) -> int:
        return self.nodes * self.ppn

    @property
    def is_in_files(self) -> bool:
        """Return whether rules for these calls are written to the libraries' own files.

        Libraries cannot tell placements apart, nor sizes of all-to-alls with counts. Files of Open
        MPI and MPICH could hold allgathervs; these are left out with the other ragged calls.
        """
        return self.placement == BLOCK and not self.collective.is_ragged


@dataclass(frozen=True)
class Rule:
    """A rule that calls under `key` of [start_bytes, stop_bytes) use `choice`."""

    key: RuleKey
    start_bytes: int
    stop_bytes: float
    choice: AlgorithmChoice
    evidence: Evidence


class TuningTable:
    """Immutable rules for one cluster and one library.

    Raises InputError when the rules of a key leave a gap, overlap, or do not end at infinity.
    """

    def __init__(
        self,
        cluster: Cluster,
        library: str,
        rules: tuple[Rule, ...],
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.cluster = cluster
        self.library = library
        self.rules = tuple(
            sorted(
                rules,
                key=lambda r: (
                    r.key.collective,
                    r.key.nodes,
                    r.key.ppn,
                    r.key.placement,
                    r.key.memory,
                    r.key.operators,
                    r.start_bytes,
                ),
            )
        )
        self.provenance = dict(provenance or {})
        self._rules_by_key: dict[RuleKey, list[Rule]] = {}
        for rule in self.rules:
            self._rules_by_key.setdefault(rule.key, []).append(rule)
        for key, rule_list in self._rules_by_key.items():
            _check_rules(key, rule_list)

    @property
    def keys(self) -> tuple[RuleKey, ...]:
        return tuple(self._rules_by_key)

    def rules_for(self, key: RuleKey) -> tuple[Rule, ...]:
        """Return the rules of one key in ascending size; empty for an unknown key."""
        return tuple(self._rules_by_key.get(key, ()))

    def held_by_files(self) -> TuningTable:
        """Return the table with the rules that are written to the libraries' own files.

        Raises InputError if there are only others.
        """
        rules = tuple(rule for rule in self.rules if rule.key.is_in_files)
        if self.rules and not rules:
            raise InputError(
                f"all rules of the table are for {NOT_IN_FILES}, which are not written to native"
                " files: `tuner run` follows them"
            )
        return TuningTable(self.cluster, self.library, rules, self.provenance)

    def with_ppn(self, ppn: int) -> TuningTable:
        """Return the rules for `ppn` ranks per node; raise InputError if there are none."""
        rules = tuple(rule for rule in self.rules if rule.key.ppn == ppn)
        if not rules:
            known = ", ".join(map(str, sorted({key.ppn for key in self.keys})))
            raise InputError(f"the table has no rules for {ppn} ranks per node: it knows {known}")
        return TuningTable(self.cluster, self.library, rules, self.provenance)

    def lookup(self, key: RuleKey, nbytes: int) -> Rule | None:
        """Return the rule for a call of `nbytes`, by bisection; None if the key has no rules."""
        rule_list = self._rules_by_key.get(key)
        if not rule_list:
            return None
        return rule_list[bisect.bisect_right([rule.start_bytes for rule in rule_list], nbytes) - 1]


def _check_rules(key: RuleKey, rules: list[Rule]) -> None:
    bounds = [0.0, *(rule.stop_bytes for rule in rules)]
    for lower, rule in zip(bounds, rules, strict=False):
        if rule.start_bytes != lower or rule.stop_bytes <= rule.start_bytes:
            raise InputError(
                f"table: {key.collective} on {key.shape} ranks: the rule"
                f" [{rule.start_bytes}, {rule.stop_bytes}) should start at {lower:g} and end above"
                " its start"
            )
    if bounds[-1] != math.inf:
        raise InputError(
            f"table: {key.collective} on {key.shape} ranks:"
            f" no rule from {bounds[-1]:g} bytes on; the last rule must end at inf"
        )
    if len(rules) > 1 and not key.collective.has_data:
        raise InputError(
            f"table: {key.collective} on {key.shape} ranks: its calls have no size: give one rule"
        )


def rule_record(rule: Rule) -> dict[str, Any]:
    """Return a rule as a JSON record, with infinities as "inf".

    Evidence has no `slowdown_probability` where it is None.
    """
    known = {name: told for name, told in vars(rule.evidence).items() if told is not None}
    return {
        "key": omit_default_placement(vars(rule.key)),
        "start_bytes": rule.start_bytes,
        "stop_bytes": encode_infinities(rule.stop_bytes),
        "choice": encode_infinities(vars(rule.choice)),
        "evidence": encode_infinities(known),
    }


def table_record(table: TuningTable) -> dict[str, Any]:
    """Return a table as the JSON record of a table file, version 1."""
    return {
        "kind": "table",
        "version": FORMAT_VERSION,
        "cluster": asdict(table.cluster),
        "library": table.library,
        "provenance": table.provenance,
        "rules": [rule_record(rule) for rule in table.rules],
    }


def write_table(table: TuningTable, path: Path) -> None:
    """Write a table as JSON; raise InputError when it cannot be written."""
    write_atomically(path, json.dumps(table_record(table), indent=1) + "\n")


def read_table(path: Path) -> TuningTable:
    """Read a table file; raise InputError unless it is a valid version-1 table."""
    try:
        return parse_table(path.read_bytes())
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder: name the table in it") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None


def parse_table(text: str | bytes) -> TuningTable:
    """Parse the content of a table file; raise InputError for anything else."""
    try:
        record = load_json(text)
    except ValueError as reason:
        raise _invalid_table_error(str(reason)) from None
    return table_from_record(record)


def table_from_record(record: Any) -> TuningTable:
    """Return the table of a record that `table_record` made; raise InputError for anything else."""
    try:
        _require_kind(record)
        rules = tuple(_parse_rule(entry) for entry in record["rules"])
        cluster = dataclass_from_record(Cluster, record["cluster"])
        if not isinstance(record["library"], str):
            raise ValueError("the library has no name")
        return TuningTable(cluster, record["library"], rules, record["provenance"])
    except KeyError as lacking:
        reason = f"it lacks {lacking}"
    except (ValueError, TypeError) as wrong:
        reason = str(wrong)
    raise _invalid_table_error(reason)


def _invalid_table_error(reason: str) -> InputError:
    return InputError(f"not a tuning table ({reason}); make one with `tuner tune`")


def _require_kind(record: Any) -> None:
    """Raise ValueError for the record of another kind of file, and InputError for a version."""
    if not isinstance(record, dict) or record.get("kind") != "table":
        raise ValueError("a file of another kind")
    if record.get("version") != FORMAT_VERSION:
        raise InputError(
            f"a table in version {shortened_repr(record.get('version'))} of its format, where"
            f" {FORMAT_VERSION} was expected: another version of tuner has written it; use that"
            " one, or make a table with `tuner tune`"
        )
    if not isinstance(record.get("rules", []), list):
        raise ValueError("its rules are not a list")


def _parse_rule(entry: Any) -> Rule:
    rule = dataclass_from_record(Rule, entry)
    if min(rule.key.nodes, rule.key.ppn) < 1 or rule.key.operators not in OPERATORS:
        raise ValueError(f"{rule.key} needs nodes and ppn of at least 1, operators of {OPERATORS}")
    _check_evidence(rule)
    return rule


def _check_evidence(rule: Rule) -> None:
    told = rule.evidence
    sizes, default, chosen, predicted = map(
        len, (told.nbytes, told.default_s, told.chosen_s, told.predicted_s)
    )
    if default != chosen or not {default, predicted} <= {0, sizes}:
        raise ValueError(
            f"{rule.key.collective} on {rule.key.shape} ranks from {rule.start_bytes} bytes on: of"
            f" {sizes} sizes there are {default} default_s, {chosen} chosen_s and {predicted}"
            " predicted_s"
        )
