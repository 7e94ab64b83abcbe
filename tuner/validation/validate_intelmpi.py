"""Proving I_MPI_ADJUST variables in a real Intel MPI.

The library says nothing of what it runs, and what a preset stands for is not published. So a
watcher notes which functions each call enters, and with which numbers the library chose them: with
the variables, with each preset of theirs alone for all sizes, and without variables. A rule is
confirmed when all its calls enter what they enter under its preset, and neither under another one
of the variables nor by the library's own decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.base import c_compiler
from tuner.base.errors import InputError, ProbeError
from tuner.base.progress import Counted, quietly
from tuner.core.collective import Collective
from tuner.core.table import Choice, Rule, TuningTable
from tuner.formats import shell_exports
from tuner.formats.intelmpi.adjust import DIALECT, PREFIX
from tuner.formats.rules_by_ranks import by_ranks
from tuner.mpi_libraries import require_unset
from tuner.mpi_libraries.intelmpi import preset_of
from tuner.validation.validation import NO_SIZE, Answer, RuleProof, Starter, Trial, ask, sizes_of

SOURCE = Path(__file__).with_name("intelmpi_trace.c")
OWN = None  # in the place of a preset: the library's own decision
_Entered = Mapping[tuple[Rule, int], Answer]


def activation(file: Path) -> dict[str, str]:
    """The variables that a file sets."""
    variables = shell_exports.parse(file.read_text(encoding="utf-8"))
    return {name: value for name, value in variables.items() if value is not None}


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
        table,
        file.read_text(encoding="utf-8"),
        ranks,
        otherwise=otherwise,
        commutative_only=commutative_only,
    )
    if differences:
        raise InputError(f"{file}: not the file of this table: {differences[0]}")
    require_unset(PREFIX + ".*")
    preloaded = c_compiler.build(SOURCE, directory)
    if preloaded is None:
        raise ProbeError("Intel MPI is watched by a small C program: install a C compiler (x86-64)")
    launches = _Launches(starter, directory, preloaded, activation(file), progress)
    return launches.judge(_rules(table, ranks, commutative_only), otherwise)


def _rules(table: TuningTable, ranks: int | None, commutative_only: bool) -> list[Rule]:
    ladders = by_ranks(table, "commutative" if commutative_only else "any")
    return [
        rule
        for sizes in ladders.values()
        for p, ladder in sizes.items()
        if ranks in (None, p)
        for rule in ladder
    ]


class _Launches:
    """Launches of the same calls under several settings."""

    def __init__(
        self,
        starter: Starter,
        directory: Path,
        preloaded: Path,
        variables: Mapping[str, str],
        progress: Counted,
    ) -> None:
        self._starter, self._directory, self._progress = starter, directory, progress
        self._environment = {"LD_PRELOAD": str(preloaded)}
        self._variables = variables
        self._done = self._total = 0

    def judge(self, rules: Sequence[Rule], otherwise: Choice | None) -> list[RuleProof]:
        """With the variables, without them, and with each preset of theirs alone."""
        meant = {rule: self._meant(rule, otherwise) for rule in rules}
        presets = sorted(
            {(rule.key.collective, preset) for rule, preset in meant.items() if preset is not OWN}
        )
        self._total = 2 + len(presets)
        ran, own = self._watch(rules, self._variables), self._watch(rules, {})
        alone: dict[Collective, dict[int | None, _Entered]] = {
            rule.key.collective: {OWN: own} for rule in rules
        }
        for collective, preset in presets:
            calls = [rule for rule in rules if rule.key.collective is collective]
            forced = {**self._variables, DIALECT.names[collective]: str(preset)}
            alone[collective][preset] = self._watch(calls, forced)
        return [_judge(rule, meant[rule], ran, alone[rule.key.collective]) for rule in rules]

    def _meant(self, rule: Rule, otherwise: Choice | None) -> int | None:
        """The preset that the variables have for a rule; OWN where they leave it alone."""
        collective = rule.key.collective
        if DIALECT.names.get(collective) not in self._variables:
            return OWN
        choice = otherwise if rule.choice.is_default and otherwise else rule.choice
        return preset_of(collective, choice)

    def _watch(self, rules: Sequence[Rule], variables: Mapping[str, str]) -> _Entered:
        trials = [Trial(rule, nbytes) for rule in rules for nbytes in sizes_of(rule)]
        answers = (
            ask(
                self._starter,
                trials,
                self._directory,
                settings=variables,
                environment=self._environment,
            )
            if trials
            else {}
        )
        self._done += 1
        self._progress(self._done, self._total)
        return {(trial.rule, trial.nbytes): answers[i] for i, trial in enumerate(trials)}


def _judge(
    rule: Rule, meant: int | None, ran: _Entered, alone: Mapping[int | None, _Entered]
) -> RuleProof:
    """alone: what calls enter by the library's own decision, and under each preset that the
    variables have for the collective."""
    sizes, doubts = sizes_of(rule), dict[str, list[str]]()
    for nbytes in sizes:
        under = {preset: entered[rule, nbytes] for preset, entered in alone.items()}
        doubt = _doubt(ran[rule, nbytes], meant, under)
        if doubt:
            doubts.setdefault(doubt, []).append(str(nbytes))
    reasons = [f"at {', '.join(where)} bytes {doubt}" for doubt, where in doubts.items()]
    if not sizes:
        reasons.append(NO_SIZE)
    executed = tuple(Choice(named(ran[rule, nbytes])) for nbytes in sizes)
    return RuleProof(rule, sizes, executed, not reasons, "; ".join(reasons))


def _doubt(answer: Answer, meant: int | None, under: Mapping[int | None, Answer]) -> str:
    """Why a call does not show that what was meant ran; "" where it does."""
    if answer.error:
        return f"the call failed with MPI error {answer.error}"
    if not answer.entered:
        return "no algorithm of this library was seen"
    alike = [preset for preset, seen in under.items() if set(seen.entered) == set(answer.entered)]
    if meant not in alike:
        wanted = named(under[meant])
        told = f"instead of {wanted}" if named(answer) != wanted else "with other numbers"
        return f"{named(answer)} ran {told}, unlike under {_called(meant)}"
    others = " or ".join(_called(preset) for preset in alike if preset != meant)
    return f"{_called(meant)} cannot be told from {others}" if others else ""


def _called(preset: int | None) -> str:
    return "Intel MPI's own decision" if preset is OWN else f"preset {preset}"


def named(answer: Answer) -> str:
    """`Bcast_binomial + Reduce_binomial`: the functions without what all names have in common."""
    words = sorted(
        name.removeprefix("MPIR_").removeprefix("MPIDI_").replace("_intra_", "_")
        for name in answer.entered
        if "(" not in name
    )
    return " + ".join(words) or "no function with a name"
