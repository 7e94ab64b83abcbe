"""Start a real Open MPI under a rules file, and validate the file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.collective import Collective
from tuner.core.table import OPERATORS, AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats.openmpi import han
from tuner.formats.openmpi.emitter import SUPPORTED_MAJOR_VERSIONS, check, emit
from tuner.formats.openmpi.rules import min_decided_bytes, render
from tuner.formats.openmpi.rules_parser import parse
from tuner.formats.registry import ExportOptions
from tuner.formats.rules_by_ranks import all_rule_lists
from tuner.launch import Launcher, MultiHostLauncher
from tuner.launch.shared_directory import shared_directory
from tuner.mpi_libraries import require_no_override
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, PlacedCollective
from tuner.mpi_libraries.openmpi import OVERRIDING_PATTERN, substitution_reason
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES, FIRST_OF_DECISIONS, FIRST_WITH_HAN
from tuner.mpi_libraries.openmpi_rule_numbers import canonical_choice
from tuner.mpi_libraries.products import OPENMPI, release_of
from tuner.mpi_libraries.profiles import PROFILES
from tuner.validation.openmpi_default_algorithms import find_default_algorithms
from tuner.validation.openmpi_fixed_decisions import fixed_choices, known_decisions
from tuner.validation.openmpi_trace import (
    TRACED_COLLECTIVES,
    build_tracer,
    executed_algorithm,
    nested_calls,
    why_unknown,
)
from tuner.validation.timing import LaunchOptions
from tuner.validation.validation import (
    NO_CALL_SIZE,
    CallOutcome,
    RankStarter,
    RuleValidation,
    ValidationCall,
    element_bytes_of,
    empty_call_failures,
    run_calls,
    validation_sizes,
)

KEPT_BY_HAN = "handled by coll/han, which cannot be traced"
NOT_IN_FILE = "the file has no rule for this collective, so the library decides"
# Open MPI reads this algorithm number, but refuses it when a call reaches it.
IMPOSSIBLE_ALGORITHM = 99


def activation(rules_file: Path, han_file: Path | None = None) -> dict[str, str]:
    """Return the MCA parameters under which Open MPI follows the file.

    han_file    the file of `han`, needed for calls on several nodes
    """
    settings = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_dynamic_rules_filename": str(rules_file.resolve()),
    }
    if han_file is not None:
        settings["coll_han_use_dynamic_file_rules"] = "1"
        settings["coll_han_dynamic_rules_filename"] = str(han_file.resolve())
    return settings


class OpenMpi:
    """Open MPI as a library that follows tables; see `tuner/validation/libraries.py`."""

    profile = PROFILES[OPENMPI]

    def unsupported_reason(self, library: str) -> str:
        if library.partition(" ")[2].partition(".")[0] in SUPPORTED_MAJOR_VERSIONS:
            return ""
        return (
            "nothing is validated: of Open MPI this program validates versions"
            f" {' and '.join(SUPPORTED_MAJOR_VERSIONS)}, and the table is for"
            f" {library}; `tuner table check` reads its JSON rules as it does"
        )

    def validate(
        self,
        table: TuningTable,
        file: Path,
        starter: RankStarter,
        directory: Path,
        options: ExportOptions,
        progress: ProgressCallback,
    ) -> list[RuleValidation]:
        """Validate the rules of a file, and those for commutative operators in one of their own."""
        found = validate(
            table,
            file,
            starter,
            directory,
            han_file=_existing_han_file(file),
            commutative_only=options.commutative_only,
            progress=progress,
        )
        rest = tuple(rule for rule in table.rules if rule.key.operators != OPERATORS[0])
        if options.commutative_only or not rest:
            return found
        part = TuningTable(table.cluster, table.library, rest)
        other = directory / "commutative.rules"
        other.write_text(emit(part, commutative_only=True), encoding="utf-8")
        self.write_further_file(part, other, commutative_only=True)
        options = replace(options, commutative_only=True)
        return found + self.validate(part, other, starter, directory, options, progress)

    def write_further_file(
        self,
        table: TuningTable,
        file: Path,
        python: Path | None = None,
        *,
        commutative_only: bool = False,
    ) -> None:
        beside = _han_file_path(file)
        if not han.is_needed(table):
            beside.unlink(missing_ok=True)
            return
        beside.write_text(han.emit(table, commutative_only=commutative_only), encoding="utf-8")

    def activation(self, file: Path) -> LaunchOptions:
        return LaunchOptions(settings=activation(file, _existing_han_file(file)))

    def limitation(self, python: Path) -> str:
        return ""

    def find_defaults(
        self, starter: MultiHostLauncher, calls: Sequence[PlacedCollective], max_bytes: int
    ) -> tuple[DefaultAlgorithms, ...]:
        with shared_directory(starter.hosts.is_local) as place:
            return find_default_algorithms(starter, calls, max_bytes, place)

    def default_choices(
        self, launcher: Launcher, key: RuleKey, sizes: Sequence[int]
    ) -> Iterator[AlgorithmChoice | None]:
        return fixed_choices(known_decisions(launcher), key, sizes)

    def decides_alike(self, library: str, installed: str, nodes: int) -> bool:
        """Return whether coll/tuned decides, as it does from 4.1 on.

        From 5.0 on coll/han is asked first on several nodes.
        """
        release, here = release_of(library), release_of(installed)
        return min(release, here) >= FIRST_OF_DECISIONS and (nodes == 1 or release < FIRST_WITH_HAN)


LIBRARY = OpenMpi()


def _han_file_path(file: Path) -> Path:
    return file.with_name(f"{file.stem}.han.rules")


def _existing_han_file(file: Path) -> Path | None:
    beside = _han_file_path(file)
    return beside if beside.is_file() else None


def validate(
    table: TuningTable,
    rules_file: Path,
    starter: RankStarter,
    directory: Path,
    *,
    han_file: Path | None = None,
    commutative_only: bool = False,
    trace: bool = True,
    progress: ProgressCallback = no_progress,
) -> list[RuleValidation]:
    """Run every rule that the file holds in the real library, in the order of the table.

    directory   for the tracer and the list of calls; all hosts see it
    han_file    makes `han` hand calls on several nodes to the rules
    trace       False: inject faults even where a tracer could be compiled

    Rules for collectives that the tracer does not know are tried by fault injection. No rule is
    confirmed under which a call without data fails.

    Raises InputError when the file is not that of the table, ProbeError when the ranks fail.
    """
    text = rules_file.read_text(encoding="utf-8")
    differences = check(table, text, commutative_only=commutative_only)
    if differences:
        raise InputError(f"{rules_file}: not the file of this table: {differences[0]}")
    require_no_override(OVERRIDING_PATTERN)
    rule_lists = all_rule_lists(table, "commutative" if commutative_only else "any")
    rules = [rule for rule_list in rule_lists for rule in rule_list]
    preloaded = build_tracer(directory) if trace else None
    watched = [rule for rule in rules if preloaded and rule.key.collective in TRACED_COLLECTIVES]
    validations, follow = dict[Rule, RuleValidation](), activation(rules_file, han_file)
    if preloaded and watched:
        seen_at_work = _validate_by_tracing(
            preloaded, follow, watched, starter, directory, progress
        )
        validations |= zip(watched, seen_at_work, strict=True)
    left = [rule for rule in rules if rule not in validations]
    validations |= _skip_without_effect(left, parse(text).collectives, han_file)
    others = [rule for rule in rules if rule not in validations]
    if others:
        broken = _failure_reasons(others, follow, starter, directory)
        poisoned = _validate_by_faults(text, others, starter, directory, han_file, progress)
        checked = map(_unless_failing, poisoned, (broken[rule] for rule in others))
        validations |= zip(others, checked, strict=True)
    fatal = empty_call_failures(starter, rules, directory, settings=follow)
    return [
        _unless_failing(validations[rule], [fatal[rule]] if rule in fatal else []) for rule in rules
    ]


def _skip_without_effect(
    rules: Sequence[Rule], named: Container[int], han_file: Path | None
) -> dict[Rule, RuleValidation]:
    """Return the validations of rules that decide nothing, because of `han` or the file.

    named   numbers of the collectives that the file has rules for
    """
    skipped = {}
    for rule in rules:
        if han_file and _is_left_to_han(rule):
            skipped[rule] = RuleValidation.skipped(rule, KEPT_BY_HAN)
        elif COLLECTIVES[rule.key.collective].number not in named:
            skipped[rule] = RuleValidation.skipped(rule, NOT_IN_FILE)
    return skipped


def _is_left_to_han(rule: Rule) -> bool:
    return rule.choice.is_default and rule.key.nodes > 1


def _validate_by_tracing(
    preloaded: Path,
    follow: Mapping[str, str],
    rules: Sequence[Rule],
    starter: RankStarter,
    directory: Path,
    progress: ProgressCallback,
) -> list[RuleValidation]:
    trials = [trial for rule in rules for trial in _calls_of_rule(rule)]
    defaults = [trial for trial in trials if trial.rule.choice.is_default]
    total = len(trials) + len(defaults)

    def counting_from(done: int) -> ProgressCallback:
        return lambda calls, _: progress(done + calls, total)

    environment = {"LD_PRELOAD": str(preloaded)}
    with_file = run_calls(
        starter,
        trials,
        directory,
        settings=follow,
        environment=environment,
        progress=counting_from(0),
    )
    alone = (
        run_calls(
            starter,
            defaults,
            directory,
            settings=_without_files(follow),
            environment=environment,
            progress=counting_from(len(trials)),
        )
        if defaults
        else {}
    )
    without = {trial: alone[i] for i, trial in enumerate(defaults)}
    ran = {trial: with_file[i] for i, trial in enumerate(trials)}
    return [
        _validate_rule(rule, {t: ran[t] for t in _calls_of_rule(rule)}, without) for rule in rules
    ]


def _calls_of_rule(rule: Rule) -> list[ValidationCall]:
    """Return the calls of a rule, with both kinds of operators where it is for both."""
    both = rule.key.collective.is_reduction and rule.key.operators == "any"
    return [
        ValidationCall(rule, nbytes, commutative)
        for nbytes in validation_sizes(rule)
        for commutative in ((True, False) if both else (True,))
    ]


def _without_files(follow: Mapping[str, str]) -> dict[str, str]:
    """Return settings without any file, whatever the environment or parameter files say."""
    return {name: "0" for name, switch in follow.items() if switch == "1"}


def _validate_rule(
    rule: Rule,
    outcomes: Mapping[ValidationCall, CallOutcome],
    without: Mapping[ValidationCall, CallOutcome],
) -> RuleValidation:
    executed, reasons = dict[int, AlgorithmChoice](), list[str]()
    for trial, answer in outcomes.items():
        ran = executed_algorithm(trial.collective, answer)
        if trial.commutative:
            executed[trial.nbytes] = ran or AlgorithmChoice()
        where = f"at {trial.nbytes} bytes" + (
            "" if trial.commutative else ", with an operator that does not commute,"
        )
        if answer.error_class:
            reasons.append(f"{where} the call failed with MPI error {answer.error_class}")
        elif rule.choice.is_default:
            reasons += _differences_without_file(where, trial, answer, without[trial])
        elif ran is None:
            reasons.append(f"{where} {why_unknown(answer)}")
        elif ran != canonical_choice(trial.collective, rule.choice):
            reasons.append(
                _substitution_reason(trial)
                or f"{where} {ran} ran instead of {canonical_choice(trial.collective, rule.choice)}"
            )
    sizes, confirmed = tuple(executed), bool(executed) and not reasons
    told = "; ".join(dict.fromkeys(reasons)) if executed else NO_CALL_SIZE
    return RuleValidation(rule, sizes, tuple(executed.values()), confirmed, told)


def _differences_without_file(
    where: str, call: ValidationCall, outcome: CallOutcome, without: CallOutcome
) -> Iterator[str]:
    """Yield how a call that is left to the library differs from one without any file."""
    ran = executed_algorithm(call.collective, outcome)
    wanted = executed_algorithm(call.collective, without)
    if ran is None and wanted is None and call.rule.key.nodes == 1:
        yield f"{where} {why_unknown(outcome)}, without the file, too"
    elif ran != wanted:
        yield f"{where} {ran or 'another component'} ran instead of {wanted or 'another component'}"
    elif changed := nested_calls(outcome) ^ nested_calls(without):
        yield (
            f"{where} han keeps the call, but what it is made of follows the rules, too:"
            f" {', '.join(sorted(changed & nested_calls(outcome)) or ['nothing'])} instead of"
            f" {', '.join(sorted(changed & nested_calls(without)) or ['nothing'])}"
        )


def _substitution_reason(call: ValidationCall) -> str:
    rule = call.rule
    item = element_bytes_of(call.nbytes)
    return substitution_reason(call.collective, rule.choice, rule.key.p, call.nbytes, item)


def _failure_reasons(
    rules: Sequence[Rule], follow: Mapping[str, str], starter: RankStarter, directory: Path
) -> dict[Rule, list[str]]:
    """Return what is wrong with calls of the rules under the file itself.

    These are errors, and algorithms that the library silently replaces.
    """
    trials = [trial for rule in rules for trial in _calls_of_rule(rule)]
    answers = run_calls(starter, trials, directory, settings=follow, spare_ranks=1)
    found: dict[Rule, list[str]] = {rule: [] for rule in rules}
    for i, trial in enumerate(trials):
        if answers[i].error_class:
            found[trial.rule].append(
                f"at {trial.nbytes} bytes the call failed with MPI error {answers[i].error_class}"
            )
        elif reason := _substitution_reason(trial):
            found[trial.rule].append(reason)
    return found


def _unless_failing(validation: RuleValidation, reasons: Sequence[str]) -> RuleValidation:
    """Return the validation, not confirmed where calls fail or run something else."""
    if not validation.confirmed or not reasons:
        return validation
    return replace(validation, confirmed=False, reason="; ".join(dict.fromkeys(reasons)))


def _validate_by_faults(
    text: str,
    rules: Sequence[Rule],
    starter: RankStarter,
    directory: Path,
    han_file: Path | None,
    progress: ProgressCallback,
) -> list[RuleValidation]:
    """Validate rules with one launch for the n-th rules of all communicator sizes of a collective.

    Creating a communicator calls collectives on all ranks. A spare rank makes their number differ
    from that of the rules.
    """
    validations: dict[Rule, RuleValidation] = {}
    for collective in sorted({rule.key.collective for rule in rules}):
        mine = [rule for rule in rules if rule.key.collective is collective]
        trials = [
            ValidationCall(rule, nbytes) for rule in mine for nbytes in validation_sizes(rule)
        ]
        poisoned = directory / "poisoned.conf"
        for position in range(max(_position(rule, mine) for rule in mine) + 1):
            starts = {r.key.p: min_decided_bytes(r) for r in mine if _position(r, mine) == position}
            write_atomically(poisoned, _with_faults(text, collective, starts))
            settings = activation(poisoned, han_file)
            answers = run_calls(starter, trials, directory, settings=settings, spare_ranks=1)
            failed = {rule: set[int]() for rule in mine}
            for i, answer in answers.items():
                if answer.error_class:
                    failed[trials[i].rule].add(trials[i].nbytes)
            others = [r for r, sizes in failed.items() if sizes and _position(r, mine) != position]
            for rule in (rule for rule in mine if _position(rule, mine) == position):
                validations[rule] = _validation_by_fault(rule, failed[rule], others)
            progress(len(validations), len(rules))
    return [validations[rule] for rule in rules]


def _validation_by_fault(rule: Rule, failed: set[int], others: list[Rule]) -> RuleValidation:
    sizes = validation_sizes(rule)
    reached = tuple(rule.choice if nbytes in failed else AlgorithmChoice() for nbytes in sizes)
    missed = [nbytes for nbytes in sizes if nbytes not in failed]
    reason = f"calls of {missed} bytes do not reach this rule" if missed else ""
    reason = reason if sizes else NO_CALL_SIZE
    if others and not reason:
        reason = f"calls that belong to the rule from {others[0].start_bytes} bytes on reach it too"
    return RuleValidation(rule, sizes, reached, not reason, reason)


def _position(rule: Rule, rules: Sequence[Rule]) -> int:
    return len(
        {r.start_bytes for r in rules if r.key.p == rule.key.p and r.start_bytes < rule.start_bytes}
    )


def _with_faults(text: str, collective: Collective, starts: Mapping[int, int]) -> str:
    """Return the file with an impossible algorithm in some lines.

    starts  first bytes of the line to change, by number of ranks
    """
    rules, number = parse(text), COLLECTIVES[collective].number
    entries = tuple(
        (
            ranks,
            tuple(
                replace(row, algorithm=IMPOSSIBLE_ALGORITHM)
                if row.min_bytes == starts.get(ranks)
                else row
                for row in rows
            ),
        )
        for ranks, rows in rules.collectives[number]
    )
    return render(replace(rules, collectives={**rules.collectives, number: entries}))
