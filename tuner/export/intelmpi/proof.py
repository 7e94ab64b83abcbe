"""Proving I_MPI_ADJUST variables in a real Intel MPI.

The library says nothing of what it runs, and what a preset stands for is not published. So a
watcher notes which functions each call enters: with the variables, with the rule's preset alone for
all sizes, and with neither. A rule is confirmed when its calls enter what its preset enters, and
that differs from the library's own decision, which would run if the variables were not followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.errors import InputError, ProbeError
from tuner.export import environment, watcher
from tuner.export.intelmpi.adjust import DIALECT, PREFIX
from tuner.export.ladders import by_ranks
from tuner.export.prove import (
    NO_SIZE,
    Answer,
    RuleProof,
    Starter,
    Trial,
    ask,
    require_unset,
    sizes_of,
)
from tuner.libraries.intelmpi import preset_of
from tuner.progress import Counted, quietly
from tuner.table import Choice, Rule, TuningTable

SOURCE = Path(__file__).with_name("watch.c")
_Entered = Mapping[tuple[Rule, int], Answer]


def activation(file: Path) -> dict[str, str]:
    """The variables of a file."""
    return environment.parse(file.read_text(encoding="utf-8"))


def prove(
    table: TuningTable,
    file: Path,
    starter: Starter,
    directory: Path,
    *,
    ranks: int | None = None,
    otherwise: Choice | None = None,
    commutative_only: bool = False,
    progress: Counted = quietly,
) -> list[RuleProof]:
    """Run every rule for `ranks` ranks that the file holds in the real library.

    Raises InputError when the file is not that of the table, ProbeError when the ranks fail or
    cannot be watched.
    """
    differences = DIALECT.check(
        table, file.read_text(encoding="utf-8"), ranks, otherwise=otherwise,
        commutative_only=commutative_only,
    )  # fmt: skip
    if differences:
        raise InputError(f"{file}: not the file of this table: {differences[0]}")
    require_unset(PREFIX + ".*")
    preloaded = watcher.build(SOURCE, directory)
    if preloaded is None:
        raise ProbeError("Intel MPI is watched by a small C program: install a C compiler (x86-64)")
    rules = _rules(table, ranks, commutative_only)
    return _Launches(starter, directory, preloaded, activation(file), progress).judge(
        rules, otherwise
    )


def _rules(table: TuningTable, ranks: int | None, commutative_only: bool) -> list[Rule]:
    ladders = by_ranks(table, "commutative" if commutative_only else "any")
    return [
        rule for sizes in ladders.values() for p, ladder in sizes.items()
        if ranks in (None, p) for rule in ladder
    ]  # fmt: skip


class _Launches:
    """Launches of the same calls under several settings."""

    def __init__(
        self, starter: Starter, directory: Path, preloaded: Path, variables: Mapping[str, str],
        progress: Counted,
    ) -> None:  # fmt: skip
        self._starter, self._directory, self._progress = starter, directory, progress
        self._environment = {"LD_PRELOAD": str(preloaded)}
        self._variables = variables
        self._done = self._total = 0

    def judge(self, rules: Sequence[Rule], otherwise: Choice | None) -> list[RuleProof]:
        """With the variables, without them, and with each preset alone."""
        presets = {rule: self._preset(rule, otherwise) for rule in rules}
        alone = sorted({
            (rule.key.collective, preset) for rule, preset in presets.items() if preset is not None
        })  # fmt: skip
        self._total = 2 + len(alone)
        with_file, without = self._watch(rules, self._variables), self._watch(rules, {})
        expected: dict[tuple[Rule, int], Answer] = {}
        for collective, preset in alone:
            mine = [r for r, n in presets.items() if (r.key.collective, n) == (collective, preset)]
            forced = {**self._variables, f"{PREFIX}{collective.upper()}": str(preset)}
            expected |= self._watch(mine, forced)
        return [
            _judge(rule, with_file, without if presets[rule] is None else expected, without)
            for rule in rules
        ]

    def _preset(self, rule: Rule, otherwise: Choice | None) -> int | None:
        """The number that the variables have for a rule; None where they leave it alone."""
        collective = rule.key.collective
        if f"{PREFIX}{collective.upper()}" not in self._variables:
            return None
        choice = otherwise if rule.choice.is_default and otherwise else rule.choice
        return preset_of(collective, choice)

    def _watch(self, rules: Sequence[Rule], variables: Mapping[str, str]) -> _Entered:
        trials = [Trial(rule, nbytes) for rule in rules for nbytes in sizes_of(rule)]
        answers = ask(
            self._starter, trials, self._directory, settings=variables,
            environment=self._environment,
        ) if trials else {}  # fmt: skip
        self._done += 1
        self._progress(self._done, self._total)
        return {(trial.rule, trial.nbytes): answers[i] for i, trial in enumerate(trials)}


def _judge(rule: Rule, ran: _Entered, expected: _Entered, own: _Entered) -> RuleProof:
    sizes, reasons = sizes_of(rule), []
    for nbytes in sizes:
        answer, wanted = ran[rule, nbytes], expected[rule, nbytes]
        if answer.error:
            reasons.append(f"at {nbytes} bytes the call failed with MPI error {answer.error}")
        elif not answer.entered:
            reasons.append(f"at {nbytes} bytes no algorithm of this library was seen")
        elif set(answer.entered) != set(wanted.entered):
            reasons.append(f"at {nbytes} bytes {named(answer)} ran instead of {named(wanted)}")
    if not sizes:
        reasons.append(NO_SIZE)
    told_apart = any(set(ran[rule, n].entered) != set(own[rule, n].entered) for n in sizes)
    if not reasons and expected is not own and not told_apart:
        reasons.append(
            "Intel MPI's own decision enters the same functions: nothing tells them apart"
        )
    executed = tuple(Choice(named(ran[rule, nbytes])) for nbytes in sizes)
    return RuleProof(rule, sizes, executed, not reasons, "; ".join(reasons))


def named(answer: Answer) -> str:
    """`Bcast_binomial + Reduce_binomial`: the functions without what all names have in common."""
    words = sorted(
        name.removeprefix("MPIR_").removeprefix("MPIDI_").replace("_intra_", "_")
        for name in answer.entered
    )
    return " + ".join(words) or "nothing"
