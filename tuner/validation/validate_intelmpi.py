"""Validate I_MPI_ADJUST variables in a real Intel MPI.

The library does not report what it runs, and what a preset stands for is not published. So a tracer
records which functions each call enters, and with which numbers the library chose them: with the
variables, with each of their presets alone for all sizes, and without variables. A rule is
confirmed when all its calls enter what they enter under its preset, and neither under another
preset of the variables nor by the library's own decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.base import c_compiler
from tuner.base.errors import InputError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats import shell_exports
from tuner.formats.intelmpi import fallback_of
from tuner.formats.intelmpi.adjust import DIALECT, VARIABLE_PREFIX
from tuner.formats.registry import DEFAULT_OPTIONS, ExportOptions
from tuner.formats.rules_by_ranks import rules_by_rank_count
from tuner.mpi_libraries import require_no_override
from tuner.mpi_libraries.intelmpi import preset_of
from tuner.mpi_libraries.products import INTELMPI
from tuner.mpi_libraries.profiles import PROFILES
from tuner.validation.validation import (
    NO_CALL_SIZE,
    CallOutcome,
    RankStarter,
    RuleValidation,
    ValidationCall,
    run_calls,
    validation_sizes,
)

SOURCE = Path(__file__).with_name("intelmpi_trace.c")
LIBRARY_DEFAULT = None  # stands for the library's own decision instead of a preset
_Outcomes = Mapping[tuple[Rule, int], CallOutcome]


def activation(file: Path) -> dict[str, str]:
    """Return the variables that a file sets."""
    variables = shell_exports.parse(file.read_text(encoding="utf-8"))
    return {name: value for name, value in variables.items() if value is not None}


class IntelMpi:
    """Intel MPI as a library that follows tables; see `tuner/validation/libraries.py`."""

    profile = PROFILES[INTELMPI]

    def unsupported_reason(self, library: str) -> str:
        return ""

    def validate(
        self,
        table: TuningTable,
        file: Path,
        starter: RankStarter,
        directory: Path,
        options: ExportOptions = DEFAULT_OPTIONS,
        progress: ProgressCallback = no_progress,
    ) -> list[RuleValidation]:
        """Run every rule for `options.ranks` ranks that the file holds in the real library.

        Raises InputError when the file is not that of the table, ProbeError when the ranks fail or
        cannot be traced.
        """
        fallback = fallback_of(options.fallback_algorithm)
        commutative_only = options.commutative_only
        differences = DIALECT.check(
            table,
            file.read_text(encoding="utf-8"),
            options.ranks,
            fallback=fallback,
            commutative_only=commutative_only,
        )
        if differences:
            raise InputError(f"{file}: not the file of this table: {differences[0]}")
        require_no_override(VARIABLE_PREFIX + ".*")
        preloaded = c_compiler.compile_shared_library(SOURCE, directory)
        if preloaded is None:
            raise ProbeError(
                "Intel MPI is watched by a small C program: install a C compiler (x86-64)"
            )
        launches = _Launches(starter, directory, preloaded, activation(file), progress)
        return launches.validate(_rules(table, options.ranks, commutative_only), fallback)


LIBRARY = IntelMpi()


def _rules(table: TuningTable, ranks: int | None, commutative_only: bool) -> list[Rule]:
    rule_lists = rules_by_rank_count(table, "commutative" if commutative_only else "any")
    return [
        rule
        for sizes in rule_lists.values()
        for p, rule_list in sizes.items()
        if ranks in (None, p)
        for rule in rule_list
    ]


class _Launches:
    """Runs the same calls under several settings."""

    def __init__(
        self,
        starter: RankStarter,
        directory: Path,
        preloaded: Path,
        variables: Mapping[str, str],
        progress: ProgressCallback,
    ) -> None:
        self._starter, self._directory, self._progress = starter, directory, progress
        self._environment = {"LD_PRELOAD": str(preloaded)}
        self._variables = variables
        self._done = self._total = 0

    def validate(
        self, rules: Sequence[Rule], fallback: AlgorithmChoice | None
    ) -> list[RuleValidation]:
        """Validate the rules with the variables, without them, and with each preset alone."""
        meant = {rule: self._expected_preset(rule, fallback) for rule in rules}
        presets = sorted(
            {
                (rule.key.collective, preset)
                for rule, preset in meant.items()
                if preset is not LIBRARY_DEFAULT
            }
        )
        self._total = 2 + len(presets)
        ran, own = self._trace(rules, self._variables), self._trace(rules, {})
        alone: dict[Collective, dict[int | None, _Outcomes]] = {
            rule.key.collective: {LIBRARY_DEFAULT: own} for rule in rules
        }
        for collective, preset in presets:
            calls = [rule for rule in rules if rule.key.collective is collective]
            forced = {**self._variables, DIALECT.variable_names[collective]: str(preset)}
            alone[collective][preset] = self._trace(calls, forced)
        return [
            _validate_rule(rule, meant[rule], ran, alone[rule.key.collective]) for rule in rules
        ]

    def _expected_preset(self, rule: Rule, fallback: AlgorithmChoice | None) -> int | None:
        """Return the preset of the variables for a rule; LIBRARY_DEFAULT where none is set."""
        collective = rule.key.collective
        if DIALECT.variable_names.get(collective) not in self._variables:
            return LIBRARY_DEFAULT
        choice = fallback if rule.choice.is_default and fallback else rule.choice
        return preset_of(collective, choice)

    def _trace(self, rules: Sequence[Rule], variables: Mapping[str, str]) -> _Outcomes:
        trials = [
            ValidationCall(rule, nbytes) for rule in rules for nbytes in validation_sizes(rule)
        ]
        answers = (
            run_calls(
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


def _validate_rule(
    rule: Rule, meant: int | None, ran: _Outcomes, alone: Mapping[int | None, _Outcomes]
) -> RuleValidation:
    """Return the validation of a rule.

    meant   its preset
    ran     observations with the variables
    alone   observations by the library's own decision, and under each preset that the variables
            have for the collective
    """
    sizes, doubts = validation_sizes(rule), dict[str, list[str]]()
    for nbytes in sizes:
        under = {preset: entered[rule, nbytes] for preset, entered in alone.items()}
        doubt = _mismatch_reason(ran[rule, nbytes], meant, under)
        if doubt:
            doubts.setdefault(doubt, []).append(str(nbytes))
    reasons = [f"at {', '.join(where)} bytes {doubt}" for doubt, where in doubts.items()]
    if not sizes:
        reasons.append(NO_CALL_SIZE)
    executed = tuple(AlgorithmChoice(describe_functions(ran[rule, nbytes])) for nbytes in sizes)
    return RuleValidation(rule, sizes, executed, not reasons, "; ".join(reasons))


def _mismatch_reason(
    outcome: CallOutcome, meant: int | None, under: Mapping[int | None, CallOutcome]
) -> str:
    """Return why a call does not show that the rule's preset ran; "" where it does."""
    if outcome.error_class:
        return f"the call failed with MPI error {outcome.error_class}"
    if not outcome.entered_functions:
        return "no algorithm of this library was seen"
    alike = [
        preset
        for preset, seen in under.items()
        if set(seen.entered_functions) == set(outcome.entered_functions)
    ]
    if meant not in alike:
        wanted = describe_functions(under[meant])
        told = (
            f"instead of {wanted}"
            if describe_functions(outcome) != wanted
            else "with other numbers"
        )
        return f"{describe_functions(outcome)} ran {told}, unlike under {_describe_preset(meant)}"
    others = " or ".join(_describe_preset(preset) for preset in alike if preset != meant)
    return f"{_describe_preset(meant)} cannot be told from {others}" if others else ""


def _describe_preset(preset: int | None) -> str:
    return "Intel MPI's own decision" if preset is LIBRARY_DEFAULT else f"preset {preset}"


def describe_functions(outcome: CallOutcome) -> str:
    """Return the functions without their common parts, as `Bcast_binomial + Reduce_binomial`."""
    words = sorted(
        name.removeprefix("MPIR_").removeprefix("MPIDI_").replace("_intra_", "_")
        for name in outcome.entered_functions
        if "(" not in name
    )
    return " + ".join(words) or "no function with a name"
