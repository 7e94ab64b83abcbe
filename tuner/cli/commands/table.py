"""Show, compare, export, check and validate tuning tables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tuner.base.atomic_io import require_writable_file, write_atomically
from tuner.base.errors import InputError, UsageError
from tuner.base.units import humanize, plural
from tuner.cli.commands import comparisons, explanation, fault_trials, logged_validation
from tuner.cli.options import host_options, native_options
from tuner.cli.options.argument_types import file_option, require_image_suffix
from tuner.cli.terminal.output import (
    add_subcommand,
    print_cautions,
    print_command,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.cli.terminal.progress import Display
from tuner.cli.views.table_view import format_rule_count, print_changes, print_rules
from tuner.core.table import NOT_IN_FILES, TuningTable, read_table, table_record
from tuner.formats.registry import FORMATS, LIBRARIES, ExportOptions, Format, detect_format
from tuner.formats.rules_by_ranks import shadowed_calls
from tuner.formats.usable_table import require_safe_sizes
from tuner.launch import find_interpreter
from tuner.report.summary import NOT_IN_VALIDATED_FILE, validations_per_rule
from tuner.select.table_diff import diff_tables, table_diff_record
from tuner.workflows import native_files, validation

EXAMPLES = """examples:
  tuner table show tuner-out/openmpi/table.json
  tuner table diff old.json new.json --plot diff.svg
  tuner table export tuner-out/openmpi/table.json --format openmpi --out openmpi.rules
  tuner table export tuner-out/mpich/table.json --format mpich --out mpich.json
  tuner table export tuner-out/mpich/table.json --format mpich-device --out mpich-device.json
  tuner table export table.json --format nccl --fallback-algorithm ring_simple --out nccl_tuner.conf
  tuner table export table.json --format ucc --out ucc.conf
  tuner table export table.json --format intelmpi --ranks 64 --out adjust.sh
  tuner table check openmpi.rules --table tuner-out/openmpi/table.json
  tuner table explain my.rules --collective allreduce --ranks 64 --size 256KiB
  tuner table validate tuner-out/openmpi/table.json
  tuner table validate table.json --hosts node1,node2,node3,node4
  tuner table validate nccl.json --log train.log

Exit status of `validate`: 0 when every rule that the file holds was confirmed; 1 when one was
refuted or could not be tried, or was not seen (--log). What a file cannot hold is left to the
default, listed as not confirmed and counted apart. Of `check`: 1 when anything differs.

Using an exported file (docs/reference/library-formats.md has the others):
  mpirun --mca coll_tuned_use_dynamic_rules 1 \\
      --mca coll_tuned_dynamic_rules_filename $PWD/openmpi.rules ...
  MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE=$PWD/mpich-device.json \\
      MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE=$PWD/mpich.json mpiexec ..."""


class ValidationWords(NamedTuple):
    """The sentences about rules that were not confirmed.

    untried     rules without a trial
    left        rules that were not validated
    reason      why not, of each of them
    droppable   columns that a narrow terminal leaves out
    """

    untried: str
    left: str
    reason: str
    droppable: tuple[str, ...]


IN_LIBRARY = ValidationWords(
    "not tried.",
    "not in the validated file: there the library decides.",
    NOT_IN_VALIDATED_FILE,
    ("tried at", "executed"),
)
IN_LOGS = ValidationWords(
    "not seen in the logs.",
    logged_validation.SKIPPED_RULES_NOTE,
    logged_validation.LEFT_TO_NCCL,
    ("operators", "executed"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = add_subcommand(
        actions, "show", "print the rules with the evidence for them", EXAMPLES, run_show
    )
    show.add_argument("table", type=Path)
    diff = add_subcommand(
        actions,
        "diff",
        "say what changed between two tables, why, and what it gains",
        EXAMPLES,
        run_diff,
    )
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    file_option(diff, "--plot", "picture to draw: .svg, .png, or both without a suffix")
    _add_native_actions(actions)
    explanation.add_subcommand_explain(actions)
    comparisons.add_subcommands(actions)
    fault_trials.add_subcommand_faults(actions)


def _add_native_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the actions on files in a library's own format."""
    export = add_subcommand(
        actions, "export", "write the rules in a library's own format", EXAMPLES, run_export
    )
    export.add_argument("table", type=Path)
    names = ", ".join(FORMATS)
    export.add_argument(
        "--format", choices=FORMATS, required=True, metavar="FORMAT", help=f"format: {names}"
    )
    file_option(export, "--out", "file to write (default: standard output)")
    native_options.add_export_options(export)
    check = add_subcommand(
        actions, "check", "parse an exported file and compare its decisions", EXAMPLES, run_check
    )
    check.add_argument("file", type=Path)
    check.add_argument("--table", type=Path, required=True, metavar="FILE")
    check.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format: {names} (default: recognised by the content of the file)",
    )
    native_options.add_export_options(check)
    validate = add_subcommand(
        actions, "validate", "show what the real library executes, per rule", EXAMPLES, run_validate
    )
    validate.add_argument("table", type=Path)
    validate.add_argument(
        "--library",
        choices=LIBRARIES,
        metavar="NAME",
        help="library to run: openmpi, mpich or intelmpi (default: that of the table)",
    )
    logged_validation.add_log_options(validate)
    host_options.add_host_options(validate)
    native_options.add_export_options(validate)


def run_show(options: argparse.Namespace) -> None:
    """Print a table."""
    table = read_table(options.table)
    print_result(options.json, table_record(table), lambda: print_rules(table))


def run_diff(options: argparse.Namespace) -> None:
    """Compare two tables, and draw the differences if asked to."""
    if options.plot is not None:
        from tuner.report.table_diff_plot import save_table_diff  # matplotlib

        require_image_suffix(options.plot, "--plot", allow_both=True)
        require_writable_file(options.plot, options.old, options.new)
    old, new = read_table(options.old), read_table(options.new)
    found = diff_tables(old, new)
    print_result(options.json, table_diff_record(found), lambda: print_changes(old, new, found))
    if options.plot is not None:
        for path in save_table_diff(options.plot, old, new, found):
            print_text(f"{path}: written", error=True)


def run_export(options: argparse.Namespace) -> None:
    """Write a table in a library's format."""
    if options.out is not None:
        require_writable_file(options.out, options.table)
    table = native_options.read_table_part(options.table, options.ppn)
    form = FORMATS[options.format]
    form.require_library(table)
    native_options.check_python_option(options.python, form)
    wish, held = native_options.export_options(options, form), table.held_by_files()
    text, lost = form.emit(table, wish)
    replaced = form.fallback_rule_count(held, wish)
    for rule in lost:
        print_text(f"left to the default, {options.format} lacks it: {humanize(rule)}", error=True)
    if form.affects_other_shapes:
        warn(_overridden_note(read_table(options.table), table))
    notes = f"{_fallback_note(replaced, wish)}{native_files.omitted_rules_note(table)}"
    if options.out is None and not options.json:
        warn(notes.removeprefix("; "))
        print(text, end="")
        return
    apart = _commutative_count(held, form, wish)
    record: dict[str, Any] = {
        "format": options.format,
        "rules": len(held.rules),
        "cyclic_left_out": len(table.rules) - len(held.rules),
        "left_to_default": list(lost),
        "default_replaced": replaced,
        **({} if options.out else {"text": text}),
    }
    if options.out is not None:
        write_atomically(options.out, text)
        record |= {"out": str(options.out), "usage": form.usage_of(options.out)}

    def show() -> None:
        some = f"{len(held.rules) - apart} of " if apart else ""
        print_text(
            f"{options.out}: the decisions of {some}{format_rule_count(held)}, {len(lost)} of them"
            f" lost to the default{_commutative_note(apart)}{notes}"
        )
        print_command("use it:", form.command_of(options.out))
        if form.usage_note:
            print_text(f"({form.usage_note})")
        if exports := form.export_command(options.out):
            print_command("or, under any launcher, such as srun:", exports)
        if needs := form.further_file_note(held):
            print_text(needs)

    print_result(options.json, record, show)


def _commutative_note(number: int) -> str:
    """Return a note on the rules for commutative operators that the file lacks, or ""."""
    if not number:
        return ""
    return f"; {number} for commutative operators alone left out: --commutative-only has them"


def _fallback_note(number: int, wish: ExportOptions) -> str:
    """Return a note on the rules that the file replaces by the fallback algorithm, or ""."""
    if not number:
        return ""
    leave = "rule leaves" if number == 1 else "rules leave"
    return (
        f"; {number} {leave} the choice to the library: there the file forces a fallback"
        f" (--fallback-algorithm {wish.fallback_algorithm})"
    )


def _overridden_note(table: TuningTable, part: TuningTable) -> str:
    """Return a note on rules outside of --ppn that the file overrides, or ""."""
    calls = shadowed_calls(table.held_by_files(), part.held_by_files())
    if not calls:
        return ""
    return (
        f"the file also decides for {', '.join(calls)}, where the table says otherwise:"
        " --ppn leaves their rules out"
    )


def _commutative_count(table: TuningTable, form: Format, wish: ExportOptions) -> int:
    """Return the number of rules that a file without operator classes leaves out."""
    if wish.commutative_only or "commutative_only" not in form.used_options:
        return 0
    return sum(rule.key.operators == "commutative" for rule in table.rules)


def run_check(options: argparse.Namespace) -> int:
    """Compare a file with a table; return 1 when they differ."""
    table = native_options.read_table_part(options.table, options.ppn)
    try:
        require_safe_sizes(table)
    except InputError as reason:
        raise InputError(f"{options.table}: {reason}") from None
    text = native_files.read_text(options.file)
    form = FORMATS[options.format] if options.format else detect_format(table, text)
    form.require_library(table)
    native_options.check_python_option(options.python, form)
    try:
        differences = form.check(table, text, native_options.export_options(options, form))
    except InputError as reason:
        raise InputError(f"{options.file}: {reason}") from None
    record = {"file": str(options.file), "format": form.name, "differences": differences}

    def show() -> None:
        for each in differences:
            print_text(each)
        print_text(
            f"{options.file}: {_counted(differences)} from the"
            f" {format_rule_count(table.held_by_files())} of {options.table}"
            f"{native_files.omitted_rules_note(table)}"
        )

    print_result(options.json, record, show)
    return 1 if differences else 0


def _counted(differences: Sequence[str]) -> str:
    return plural(len(differences), "difference") if differences else "no differences"


def run_validate(options: argparse.Namespace) -> int:
    """Validate a table in the real library, or with logs.

    Return 1 when the library did not follow a rule of the file, or when a rule could not be tried.
    """
    table = native_options.read_table_part(options.table, options.ppn)
    library = table.library.partition(" ")[0]
    if options.library not in (None, library):
        raise InputError(
            f"{options.table} is for {table.library}: its rules say nothing about {options.library}"
        )
    held = table.held_by_files()
    if options.log:
        given = [name for name in logged_validation.LAUNCH_OPTIONS if getattr(options, name)]
        logged_validation.check_log_options(given, library)
        words = IN_LOGS
        validations, others = logged_validation.validate_from_logs(
            held, options.log, options.log_shape
        )
    else:
        if options.log_shape is not None:
            raise UsageError("--log-shape says what logs leave open: give them, too (--log FILE)")
        profile = validation.validated_library(table.library).profile
        if options.base_rules is not None:
            raise UsageError(
                "validation uses the rules of the library that runs: leave --base-rules out"
            )
        wish = native_options.export_options(options, FORMATS[profile.name])
        _require_rules(options.table, table)
        words, others = IN_LIBRARY, []
        with Display().stage(f"validating {table.library}") as report:
            python = find_interpreter(library, options.python)
            validations = validation.validate_exported(
                held, python, wish, report, host_options.given_hosts(options), options.launcher
            )
    every = validations_per_rule(held, [*validations, *others], words.reason)
    print_result(options.json, every, lambda: _print_validations(table, validations, every, words))
    return 0 if validations and all(each["confirmed"] for each in validations) else 1


def _require_rules(path: Path, table: TuningTable) -> None:
    """Raise InputError for a table without any rule that a file can hold."""
    if not table.held_by_files().rules:
        raise InputError(
            f"{path}: the table has no rules, so there is nothing to validate"
            f"{native_files.omitted_rules_note(table)}"
        )


def _print_validations(
    table: TuningTable,
    validations: Sequence[Mapping[str, Any]],
    every: Sequence[Mapping[str, Any]],
    words: ValidationWords,
) -> None:
    """Print the result of each rule's validation.

    every       records of all rules, those not validated included
    """
    print_table(
        "",
        validation.VALIDATION_COLUMNS,
        validation.validation_rows(every),
        right=("ranks",),
        droppable=words.droppable,
        wrappable=("table", "executed", "confirmed"),
    )
    confirmed = sum(bool(each["confirmed"]) for each in validations)
    untried = sum(not each["confirmed"] and not each["sizes"] for each in validations)
    omitted = len(table.rules) - len(table.held_by_files().rules)
    counted = (
        (len(validations) - confirmed - untried, "refuted: the library executed something else."),
        (untried, words.untried),
        (len(every) - len(validations), words.left),
        (omitted, f"left out: none for {NOT_IN_FILES} is written to native files."),
    )
    print_cautions(
        f"{plural(number, 'rule')} {'is' if number == 1 else 'are'} {what}"
        for number, what in counted
        if number
    )
    print_text(
        f"{confirmed} of {format_rule_count(table.held_by_files())} confirmed in {table.library}"
    )
