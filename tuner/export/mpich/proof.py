"""Proving a collective selection file in a real MPICH, by poisoned leaves.

The prebuilt library shows nothing of what it runs. But a leaf that names another collective's
algorithm aborts the program and says so, so one launch per rule shows that exactly its calls reach
its leaf. Ranks die for other reasons, too, which prove nothing: one launch before these shows that
all calls succeed under the file itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tuner.errors import InputError, ProbeError
from tuner.export.ladders import every_ladder
from tuner.export.mpich.emitter import check, grown, guarded
from tuner.export.mpich.selection import Call, Tree
from tuner.export.prove import (
    NO_SIZE,
    RuleProof,
    Starter,
    Trial,
    ask,
    item_of,
    outlived,
    sizes_of,
)
from tuner.files import write_atomically
from tuner.libraries import require_unset
from tuner.libraries.mpich import DECIDING
from tuner.progress import Counted, quietly
from tuner.table import Choice, Rule, TuningTable

# What every rank writes that is led to an algorithm of another collective (mpir_coll.c of 5.0.2).
POISONED = re.compile(r"Assertion failed in file \S*src/mpi/coll/\S+\.c at line \d+: 0\b")
UNSAID = "the ranks ended or fell silent, and MPICH did not say that it was at an impossible leaf"
LARGE = 4096  # bytes: what MPICH itself sends while it makes a communicator is less
UNMADE = "the ranks end while their communicator is made, before the rule's own call"


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
    """Run every rule of the table in the real library: one launch under the file itself, then one
    for each rule, on one of the shapes that have as many ranks and so share a leaf.

    Each launch has its own limit of time (`ask`, `outlived`). Where ranks answer nothing that no
    poison explains, the rules that remain are not confirmed, and say so.

    Raises InputError when the file is not that of the table or a variable comes before it,
    ProbeError when the ranks do not outlive the file itself.
    """
    require_unset(DECIDING)
    differences = check(table, tuning_file.read_text(encoding="utf-8"), generic)
    if differences:
        raise InputError(f"{tuning_file}: not the file of this table: {differences[0]}")
    trials, lost = _trials(table), ""
    poisons = _Poisons(table, tuning_file, generic, starter, directory)
    failed = poisons.failing(trials)
    rules, proofs = [rule for ladder in _ladders(table) for rule in ladder], list[RuleProof]()
    for rule in rules:
        alike = _same_leaf(rule, (proof.rule for proof in proofs))
        if not sizes_of(rule):
            proofs.append(RuleProof.untried(rule, NO_SIZE))
        elif rule in failed:
            proofs.append(failed[rule])
        elif alike:
            proofs.append(replace(proofs[rules.index(alike[0])], rule=rule))
        elif lost:
            proofs.append(RuleProof.untried(rule, lost))
        else:
            try:
                proofs.append(_prove_rule(rule, trials, poisons))
            except ProbeError as reason:
                lost = f"not tried: {reason}"
                proofs.append(RuleProof.untried(rule, lost))
        progress(len(proofs), len(rules))
    return proofs


def _trials(table: TuningTable) -> list[Trial]:
    """Calls for the rules of every key, with an operator that each ladder is for."""
    commutative = list(every_ladder(table, "commutative"))
    return [
        Trial(rule, nbytes, ladder in commutative)
        for ladder in _ladders(table) for rule in ladder for nbytes in sizes_of(rule)
    ]  # fmt: skip


def _ladders(table: TuningTable) -> list[tuple[Rule, ...]]:
    """Of every key."""
    return list(dict.fromkeys([*every_ladder(table), *every_ladder(table, "commutative")]))


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


def _apart(own: Trial) -> Trial:
    """The same call with more bytes than the library's own calls have, if the rule has them."""
    rule, large = own.rule, int(min(own.rule.hi - 1, LARGE))
    call = Call(rule.key.p, large, item_of(large))
    return own if large < own.nbytes or guarded(rule, call) else replace(own, nbytes=large)


@dataclass(frozen=True)
class _Ended:
    """How a launch ended: whether its communicators were made (`begun`), with `done` of so many
    `calls` answered, and whether MPICH was `poisoned` by its own word.
    """

    begun: bool
    done: int
    calls: int
    poisoned: bool

    @property
    def unsaid(self) -> bool:
        """Whether it ended early for a reason that nobody gave."""
        return self.done < self.calls and not self.poisoned

    @property
    def unmade(self) -> bool:
        """Whether the library met the poison in a call of its own, making a communicator."""
        return self.poisoned and not self.begun


@dataclass(frozen=True)
class _Poisons:
    """Launches under a file, and under that file with poisoned leaves.

    The library calls collectives on all ranks while it starts: a spare rank keeps these from having
    the number of ranks that a rule is for.
    """

    table: TuningTable
    tuning_file: Path
    generic: Tree
    starter: Starter
    directory: Path

    def failing(self, trials: Sequence[Trial]) -> Mapping[Rule, RuleProof]:
        """The rules whose calls fail under the file itself; raises ProbeError where ranks die."""
        settings = activation(self.tuning_file)
        answers = ask(self.starter, trials, self.directory, settings=settings, spare=1)
        return {
            trial.rule: RuleProof(
                trial.rule, (trial.nbytes,), (), False,
                f"a call of {trial.nbytes} bytes fails with MPI error class {answers[n].error}",
            )
            for n, trial in enumerate(trials) if answers[n].error
        }  # fmt: skip

    def under(
        self, poisoned: Collection[Rule], calls: Sequence[Trial], only: int | None = None
    ) -> _Ended:
        """How ranks end that make these calls.

        only    bytes of the calls for which these rules are poisoned, None for all of their own
        """
        path, table = self.directory / "poisoned.json", self.table
        if only is not None:
            cut = {rule: _cut(rule, only) for rule in poisoned}
            rules = tuple(piece for rule in table.rules for piece in cut.get(rule, [rule]))
            table = TuningTable(table.cluster, table.library, rules)
            poisoned = [piece for pieces in cut.values() for piece in pieces if piece.lo == only]
        write_atomically(path, json.dumps(grown(table, self.generic, poisoned)))
        settings = activation(path)
        met = outlived(self.starter, calls, self.directory, settings=settings, spare=1)
        said = POISONED.search(met.stderr) is not None
        return _Ended(met.begun, met.done, len(calls), said)


def _cut(rule: Rule, nbytes: int) -> list[Rule]:
    """The rule in pieces, one of which is for just so many bytes."""
    edges = sorted({rule.lo, nbytes, nbytes + 1, rule.hi})
    return [replace(rule, lo=int(lo), hi=hi) for lo, hi in pairwise(edges)]


def _prove_rule(rule: Rule, trials: Sequence[Trial], poisons: _Poisons) -> RuleProof:
    here = [t for t in trials if t.rule.key.p == rule.key.p]
    alike = _same_leaf(rule, (t.rule for t in here))
    neighbours = [t for t in here if t.rule not in alike]
    own = _own(rule, trials)
    calls = [*neighbours, own]
    ended = poisons.under(alike, calls)
    expected = _Ended(True, len(neighbours), len(calls), True)
    if ended != expected and poisons.under(alike, calls) != ended:
        # A host that was lost, or a busy one, ends a launch early, too, but not twice alike.
        return RuleProof.untried(rule, "two launches under the same file ended differently")
    if ended.unmade:
        # Making a communicator calls this rule, too: poison it for the size of its own call alone.
        own = _apart(own)
        calls = [*neighbours, own]
        ended = poisons.under(alike, calls, own.nbytes)
    if ended.unmade:
        return RuleProof.untried(rule, UNMADE)
    if ended.unsaid:
        poisons.failing([own])  # which says what is wrong if it is not the file
        return RuleProof.untried(rule, UNSAID)
    reason = _astray(ended, neighbours, own)
    executed = Choice() if reason else rule.choice
    return RuleProof(rule, (own.nbytes,), (executed,), not reason, reason)


def _astray(ended: _Ended, neighbours: Sequence[Trial], own: Trial) -> str:
    """Which call did not go where it should under the rule's poison."""
    if ended.done > len(neighbours):
        return f"a call of {own.nbytes} bytes does not reach this rule"
    if ended.done < len(neighbours):
        stray = neighbours[ended.done]
        return (
            f"a call of {stray.nbytes} bytes, which belongs to the rule from {stray.rule.lo} bytes"
            " on, reaches this rule too"
        )
    return ""
