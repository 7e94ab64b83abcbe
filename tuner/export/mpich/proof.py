"""Proving a collective selection file in a real MPICH, by poisoned leaves.

The prebuilt library shows nothing of what it runs. But a leaf that names another collective's
algorithm aborts the program, so one launch per rule shows that exactly its calls reach its leaf.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.errors import InputError, ProbeError
from tuner.export.ladders import every_ladder
from tuner.export.mpich.emitter import check, grown, guarded
from tuner.export.mpich.selection import Call, Tree
from tuner.export.prove import (
    RuleProof,
    Starter,
    Trial,
    ask,
    item_of,
    require_unset,
    sizes_of,
)
from tuner.files import write_atomically
from tuner.progress import Counted, quietly
from tuner.table import Choice, Rule, TuningTable

PREFIX = "MPI(R_CVAR|R_PARAM|CH)_"  # under any of which the library reads a control variable
FORCING = rf"{PREFIX}\w+_INTRA_ALGORITHM"  # those that come before any file


def activation(tuning_file: Path) -> dict[str, str]:
    """Control variables under which MPICH follows the file; device collectives would come first."""
    return {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": str(tuning_file.resolve()),
    }


def prove(
    table: TuningTable,
    tuning_file: Path,
    generic: Tree,
    starter: Starter,
    directory: Path,
    *,
    progress: Counted = quietly,
) -> list[RuleProof]:
    """Run every rule of the table in the real library: one launch each, on one of the shapes that
    have as many ranks and so share a leaf.

    Each launch has its own limit of time (`ask`). Where ranks answer nothing that no poison
    explains, the rules that remain are not confirmed, and say so.

    Raises InputError when the file is not that of the table, ProbeError when no rank ever answers.
    """
    differences = check(table, tuning_file.read_text(encoding="utf-8"), generic)
    if differences:
        raise InputError(f"{tuning_file}: not the file of this table: {differences[0]}")
    require_unset(FORCING)
    trials, lost = _trials(table), ""
    rules, proofs = list(dict.fromkeys(trial.rule for trial in trials)), list[RuleProof]()
    for rule in rules:
        alike = _same_leaf(rule, (proof.rule for proof in proofs))
        if alike:
            proofs.append(replace(proofs[rules.index(alike[0])], rule=rule))
        elif lost:
            proofs.append(RuleProof.untried(rule, lost))
        else:
            try:
                proofs.append(_prove_rule(table, generic, rule, trials, starter, directory))
            except ProbeError as reason:
                if not proofs:
                    raise
                lost = f"not tried: {reason}"
                proofs.append(RuleProof.untried(rule, lost))
        progress(len(proofs), len(rules))
    return proofs


def _trials(table: TuningTable) -> list[Trial]:
    """Calls for the rules of every key, with an operator that each ladder is for."""
    everyone, commutative = list(every_ladder(table)), list(every_ladder(table, "commutative"))
    return [
        Trial(rule, nbytes, ladder in commutative)
        for ladder in (*everyone, *(other for other in commutative if other not in everyone))
        for rule in ladder
        for nbytes in sizes_of(rule)
    ]


def _same_leaf(rule: Rule, rules: Iterable[Rule]) -> list[Rule]:
    """Those of shapes with as many ranks, which the file does not tell apart."""

    def place(one: Rule) -> tuple[object, ...]:
        return one.key.collective, one.key.p, one.key.operators, one.lo

    return [one for one in rules if place(one) == place(rule)]


def _own(rule: Rule, trials: Sequence[Trial]) -> Trial:
    """A call that the rule applies to: below a minimum count its guards leave calls alone."""
    mine = [t for t in trials if t.rule == rule]
    calls = ((t, Call(rule.key.p, t.nbytes, item_of(t.nbytes))) for t in mine)
    return next((t for t, call in calls if not guarded(rule, call)), mine[0])


def _prove_rule(
    table: TuningTable, generic: Tree, rule: Rule, trials: Sequence[Trial], starter: Starter,
    directory: Path,
) -> RuleProof:  # fmt: skip
    def answered(poisoned: Collection[Rule], calls: Sequence[Trial], *, dying: bool = True) -> int:
        """The library calls collectives on all ranks while it starts: a spare rank keeps these
        from having the number of ranks that the rule is for."""
        path = directory / "poisoned.json"
        write_atomically(path, json.dumps(grown(table, generic, poisoned)))
        settings = activation(path)
        return len(ask(starter, calls, directory, settings=settings, may_abort=dying, spare=1))

    here = [t for t in trials if t.rule.key.p == rule.key.p]
    alike = _same_leaf(rule, (t.rule for t in here))
    neighbours = [t for t in here if t.rule not in alike]
    own = _own(rule, trials)
    done, reason = answered(alike, [*neighbours, own]), ""
    if done != len(neighbours) and answered(alike, [*neighbours, own]) != done:
        # A host that was lost, or a busy one, ends a launch early, too, but not twice alike.
        return RuleProof.untried(rule, "two launches under the same file ended differently")
    if done == 0:
        # Making a communicator calls this rule: poison the others, and its own call must live.
        others = {t.rule for t in neighbours if t.collective is rule.key.collective}
        if answered(others, [own]) == 0:
            answered((), [own], dying=False)  # which says what is wrong if it is not the file
            reason = f"a call of {own.nbytes} bytes reaches another rule"
    elif done > len(neighbours):
        reason = f"a call of {own.nbytes} bytes does not reach this rule"
    elif done < len(neighbours):
        stray = neighbours[done]
        reason = (
            f"a call of {stray.nbytes} bytes, which belongs to the rule from {stray.rule.lo} bytes"
            " on, reaches this rule too"
        )
    executed = Choice() if reason else rule.choice
    return RuleProof(rule, (own.nbytes,), (executed,), not reason, reason)
