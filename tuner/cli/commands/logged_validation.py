"""Validation of a table for NCCL by the logs of programs that followed it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, UsageError
from tuner.base.units import plural
from tuner.cli.options.argument_types import file_option
from tuner.cli.terminal.output import warn
from tuner.cli.terminal.progress import reading
from tuner.core.table import TuningTable
from tuner.formats.nccl.emitter import emit_sparse
from tuner.formats.nccl.plugin import fnv1a
from tuner.importers.streaming import file_size, read_head
from tuner.validation import validate_nccl
from tuner.validation.nccl_logs import LoggedCalls
from tuner.validation.nccl_processes import CommunicatorShape
from tuner.workflows.validation import validation_record

LIBRARIES = ("nccl", "rccl")
LEFT_TO_NCCL = "left to NCCL"
OTHER_RULES_FOLLOWED = "not these rules were followed on all ranks"
SKIPPED_RULES_NOTE = (
    "passed over: left to NCCL, where no log tells who chose, or not in NCCL's file."
)
START_OPTIONS = ("hosts", "hostfile", "launcher", "python")
FILE_OPTIONS = ("base_rules", "fallback_algorithm", "ranks", "commutative_only")
LAUNCH_OPTIONS = (*START_OPTIONS, *FILE_OPTIONS)
_SHAPE = re.compile(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options for logs."""
    file_option(
        parser,
        "--log",
        "logs of programs that ran under a table for nccl or rccl with NCCL_DEBUG=INFO"
        " NCCL_DEBUG_SUBSYS=INIT,TUNING (with COLL, too, where a process is in communicators of"
        " several shapes), or files of NCCL's Inspector; a folder stands for the logs in it",
        nargs="+",
        default=[],
    )
    parser.add_argument(
        "--log-shape",
        type=_shape,
        metavar="NODESxPPN",
        help="shape (nodes x ranks per node, such as 2x8) of communicators that the logs leave"
        " open",
    )


def _shape(text: str) -> CommunicatorShape:
    """Parse `2x8` to the number of ranks and of nodes."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as NODESxPPN, such as 2x8")
    return int(found[1]) * int(found[2]), int(found[1])


def check_log_options(given: Sequence[str], library: str) -> None:
    """Raise InputError for logs of another library, and for options that start ranks (`given`)."""
    if library not in LIBRARIES:
        raise InputError(
            f"--log is for tables for NCCL and RCCL: rules for {library} are validated in the"
            " library itself, so leave it out"
        )
    for name in given:
        option = name.replace("_", "-")
        raise UsageError(f"--log starts no ranks and writes no file: leave --{option} out")


def validate_from_logs(
    table: TuningTable, logs: Sequence[Path], shape: CommunicatorShape | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Validate the rules of a table for NCCL with logs of programs.

    Warns of what the logs leave open. Return a record per rule of NCCL's file that names an
    algorithm, and one per rule that the file does not hold.
    """
    if all(rule.choice.is_default for rule in table.rules):
        raise InputError("expected a rule that names an algorithm: logs tell of no others")
    named, found = _files(logs)
    files = [*named, *found]
    with reading("reading logs", sum(map(file_size, files))) as progress:
        evidence = validate_nccl.read_logs(files, shape, progress, found)
    doubts = list(_doubts(table, evidence))
    for sentence in (*_noticed(table, evidence), *doubts):
        warn(sentence)
    proved = validate_nccl.validate(table, evidence)
    replaced = validate_nccl.superseded_rules(table)
    if doubts and evidence.has_plugin_messages:
        proved = [replace(each, confirmed=False, reason=OTHER_RULES_FOLLOWED) for each in proved]
    return [validation_record(each) for each in proved], [
        validation_record(each) for each in replaced
    ]


def _doubts(table: TuningTable, evidence: LoggedCalls) -> Iterator[str]:
    """Yield sentences on whether the rules were followed, by what tuner's plugin logged."""
    own = fnv1a(emit_sparse(table).encode())
    if not evidence.has_plugin_messages:
        yield (
            "no line of tuner's plugin (TUNER/tuner: ...) is in the logs: they tell what ran, not"
            " that rules were followed"
        )
    for digest in sorted(evidence.rule_digests - {own}):
        yield f"some ranks followed other rules (fnv1a64 {digest}) than this table's ({own})"
    for said in sorted(evidence.declining_messages):
        yield f"on some ranks the plugin left calls to NCCL: {said}"


def _files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the named files, and those in named folders that may be logs.

    Raises InputError for what cannot be read, and for a folder without any log.
    """
    named, found = list[Path](), list[Path]()
    for path in paths:
        try:
            if not path.is_dir():
                named.append(path)
                continue
            files = [file for file in sorted(path.iterdir()) if file.is_file()]
        except OSError as reason:
            raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
        logs = [file for file in files if _may_be_log(file)]
        if not logs:
            raise InputError(f"{path} is a folder without {'logs' if files else 'files'}")
        if others := len(files) - len(logs):
            warn(f"{path}: {plural(others, 'file')} passed over: no text, or damaged")
        found += logs
    return named, [file for file in found if file not in set(named)]


def _may_be_log(file: Path) -> bool:
    """Return whether a file begins as text, compressed by gzip or not."""
    try:
        return b"\0" not in read_head(file)
    except InputError:
        return False


def _noticed(table: TuningTable, evidence: LoggedCalls) -> Iterator[str]:
    """Yield sentences on what the logs leave open."""
    if others := sorted(evidence.versions - {table.library}):
        yield f"the logs are of {', '.join(others)}, but the table is for {table.library}"
    if unread := evidence.unread_files:
        more = f" (and {plural(len(unread) - 1, 'other file')})" if len(unread) > 1 else ""
        yield f"{unread[0]}{more}: what is before it was read"
    of = f"of {plural(evidence.call_lines, 'call')} in the logs"
    if evidence.lines_without_shape:
        yield (
            f"{evidence.lines_without_shape} {of} are on communicators that the logs do not"
            " tell: log the subsystems INIT,TUNING,COLL, or give --log-shape NODESxPPN"
        )
    if evidence.incomplete_lines:
        yield (
            f"{evidence.incomplete_lines} {of} are told without their collective, size or"
            " algorithm: older"
            " versions of NCCL name the collective only in COLL, the Inspector tells the algorithm"
            " from format v4.2 on"
        )
    if evidence.damaged_lines:
        yield f"{evidence.damaged_lines} {of} cannot be read: their lines are damaged"
