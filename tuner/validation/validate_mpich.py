"""Proving collective selection files in a real MPICH, by poisoned leaves.

The prebuilt library shows nothing of what it runs. But a leaf that names another collective's
algorithm aborts the program and says so, so one launch per rule shows that exactly its calls reach
its leaf. A rule's leaf is in the MPIR layer's file. Where the device layer has a file, too, what is
left to the default is poisoned there, since that layer answers it first. Ranks die for other
reasons, too, which prove nothing: one launch before these shows that all calls succeed under the
files themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, ProbeError
from tuner.base.progress import Counted, quietly
from tuner.core.table import Choice, Rule, TuningTable
from tuner.formats.mpich import device, emitter
from tuner.formats.mpich.branches import LeafOf, grown, guarded
from tuner.formats.mpich.generic import OwnTrees
from tuner.formats.mpich.layers import DEVICE, MPIR
from tuner.formats.mpich.selection import Call, Leaf, Tree
from tuner.formats.rules_by_ranks import every_ladder
from tuner.mpi_libraries import require_unset
from tuner.mpi_libraries.mpich import DECIDING, DEVICE_COLLECTIVES
from tuner.validation.validation import (
    NO_SIZE,
    RuleProof,
    Starter,
    Trial,
    ask,
    item_of,
    outlived,
    sizes_of,
)

# What every rank writes that is led to an algorithm of another collective (mpir_coll.c of 5.0.2,
# the collective's own file in 3.4), or to such a composition (ch4_coll.h of both).
POISONED = re.compile(
    r"Assertion failed in file \S*src/(mpi/coll/\S+\.c|mpid/ch4/src/ch4_coll\.h) at line \d+: 0\b"
)
# How many calls on a communicator the device layer waits for before it uses shared memory. Until
# then it sends its own calls through the MPIR layer, where they would meet a poison although nobody
# handed them on. Setting up shared memory takes calls of the library's own, which ask the device
# layer, too.
BEFORE_SHARED_MEMORY = "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD"
NONE, ALL = "0", "2147483647"
UNSAID = "the ranks ended or fell silent, and MPICH did not say that it was at an impossible leaf"
LAUNCHES = 3  # how many may be made to see two that end alike
LARGE = 4096  # bytes: what MPICH itself sends while it makes a communicator is less
DIFFERENT = "three launches under the same file ended differently"
UNMADE = "the ranks end while their communicator is made, before the rule's own call"


def activation(tuning_file: Path, device_file: Path | None = None) -> dict[str, str]:
    """Return the control variables under which MPICH follows the MPIR layer's file.

    device_file     that of the device layer; None where the library has none: then that layer,
                    which would answer first, is switched off, if there is one
    """
    first = (
        {DEVICE_COLLECTIVES: "none"}
        if device_file is None
        else {DEVICE.variable: str(device_file.resolve())}
    )
    return {**first, MPIR.variable: str(tuning_file.resolve())}


def prove(
    table: TuningTable,
    tuning_file: Path,
    trees: OwnTrees,
    starter: Starter,
    directory: Path,
    *,
    device_file: Path | None = None,
    progress: Counted = quietly,
) -> list[RuleProof]:
    """Run every rule of the table in the real library: one launch under the files themselves, then
    one for each rule, on one of the shapes that have as many ranks and so share a leaf.

    trees           the library's own
    device_file     that of the device layer; None: it is switched off

    Each launch has its own limit of time (`ask`, `outlived`). Where ranks answer nothing that no
    poison explains, the rules that remain are not confirmed, and say so.

    Raises InputError when a file is not that of the table or a variable comes before it,
    ProbeError when the ranks do not outlive the files themselves.
    """
    require_unset(DECIDING)
    if device_file is None:
        trees = replace(trees, device=None)
    _require_own(tuning_file, table, trees.mpir, emitter.check)
    if device_file is not None and trees.device is not None:
        _require_own(device_file, table, trees.device, device.check)
    trials, lost = _trials(table), ""
    poisons = _Poisons(table, tuning_file, device_file, trees, starter, directory)
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


def _require_own(
    file: Path,
    table: TuningTable,
    generic: Tree,
    check: Callable[[TuningTable, str, Tree], list[str]],
) -> None:
    differences = check(table, file.read_text(encoding="utf-8"), generic)
    if differences:
        raise InputError(f"{file}: not the file of this table: {differences[0]}")


def _trials(table: TuningTable) -> list[Trial]:
    """Calls for the rules of every key, with an operator that each ladder is for."""
    commutative = list(every_ladder(table, "commutative"))
    return [
        Trial(rule, nbytes, ladder in commutative)
        for ladder in _ladders(table)
        for rule in ladder
        for nbytes in sizes_of(rule)
    ]


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

    @property
    def early(self) -> bool:
        """Whether a call before the last one met the poison."""
        return self.poisoned and self.begun and self.done < self.calls - 1


@dataclass(frozen=True)
class _Poisons:
    """Launches under the files, and under these with poisoned leaves.

    The library calls collectives on all ranks while it starts: a spare rank keeps these from having
    the number of ranks that a rule is for.
    """

    table: TuningTable
    tuning_file: Path
    device_file: Path | None
    trees: OwnTrees
    starter: Starter
    directory: Path

    def failing(self, trials: Sequence[Trial]) -> Mapping[Rule, RuleProof]:
        """The rules whose calls fail under the files themselves; raises ProbeError where ranks
        die.
        """
        settings = activation(self.tuning_file, self.device_file)
        answers = ask(self.starter, trials, self.directory, settings=settings, spare=1)
        return {
            trial.rule: RuleProof(
                trial.rule,
                (trial.nbytes,),
                (),
                False,
                f"a call of {trial.nbytes} bytes fails with MPI error class {answers[n].error}",
            )
            for n, trial in enumerate(trials)
            if answers[n].error
        }

    def under(
        self, poisoned: Collection[Rule], calls: Sequence[Trial], only: int | None = None
    ) -> _Ended:
        """How ranks end that make these calls.

        only    bytes of the calls for which these rules are poisoned, None for all of their own
        """
        table = self.table
        if only is not None:
            cut = {rule: _cut(rule, only) for rule in poisoned}
            rules = tuple(piece for rule in table.rules for piece in cut.get(rule, [rule]))
            table = TuningTable(table.cluster, table.library, rules)
            poisoned = [piece for pieces in cut.values() for piece in pieces if piece.lo == only]
        settings = self._poisoned(table, poisoned)
        met = outlived(self.starter, calls, self.directory, settings=settings, spare=1)
        said = POISONED.search(met.stderr) is not None
        return _Ended(met.begun, met.done, len(calls), said)

    def _poisoned(self, table: TuningTable, poisoned: Collection[Rule]) -> dict[str, str]:
        """Settings under which the library follows files in which these rules are poisoned."""
        path, own = self.directory / "poisoned.json", self.trees.device
        left = [rule for rule in poisoned if own is not None and rule.choice.is_default]
        named = [rule for rule in poisoned if rule not in left]
        leaf_of = _with_poison(emitter.leaf_of, emitter.POISON, named)
        write_atomically(path, json.dumps(grown(table, self.trees.mpir, leaf_of)))
        if own is None:
            return activation(path)
        leaf_of = _with_poison(device.leaf_of, device.POISON, left)
        write_atomically(device.beside(path), json.dumps(grown(table, own, leaf_of)))
        before = ALL if left else NONE
        return {**activation(path, device.beside(path)), BEFORE_SHARED_MEMORY: before}


def _with_poison(leaf_of: LeafOf, poison: Leaf, poisoned: Collection[Rule]) -> LeafOf:
    return lambda rule: poison if rule in poisoned else leaf_of(rule)


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
    expected = _Ended(True, len(neighbours), len(calls), True)
    ended = _settled(expected, lambda: poisons.under(alike, calls))
    if ended is None:
        return RuleProof.untried(rule, DIFFERENT)
    if ended.unmade or (ended.early and poisons.trees.device is not None):
        # Making a communicator calls this rule, too, or setting up its shared memory: poison it for
        # the size of its own call alone.
        own = _apart(own)
        calls = [*neighbours, own]
        ended = _settled(expected, lambda: poisons.under(alike, calls, own.nbytes))
        if ended is None:
            return RuleProof.untried(rule, DIFFERENT)
    if ended.unmade:
        return RuleProof.untried(rule, UNMADE)
    if ended.unsaid:
        poisons.failing([own])  # which says what is wrong if it is not the file
        return RuleProof.untried(rule, UNSAID)
    reason = _astray(ended, neighbours, own)
    executed = Choice() if reason else rule.choice
    return RuleProof(rule, (own.nbytes,), (executed,), not reason, reason)


def _settled(expected: _Ended, launch: Callable[[], _Ended]) -> _Ended | None:
    """Return how a launch ends as expected, or how two of three end; None where no two agree.

    A host that was lost, or a busy one, ends a launch early, too, but not twice alike.
    """
    seen: list[_Ended] = []
    while len(seen) < LAUNCHES:
        ended = launch()
        if ended in [*seen, expected]:
            return ended
        seen.append(ended)
    return None


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
