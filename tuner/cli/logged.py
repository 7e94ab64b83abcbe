"""What programs ran under a table for NCCL, by what NCCL logged of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuner.cli.output import console, warn
from tuner.cli.progress import Display, timed
from tuner.cli.proving import record_of
from tuner.errors import InputError
from tuner.export.nccl import proof
from tuner.export.nccl.logs import Evidence, Shape
from tuner.table import TuningTable
from tuner.units import format_size, plural

LIBRARIES = ("nccl", "rccl")
LEFT = "left to NCCL"
PASSED = "passed over: the choice is left to NCCL, and no log tells who chose."
LARGE = 32 << 20  # bytes; reading more takes seconds
_STARTING = (
    "hosts", "hostfile", "launch", "python", "generic", "otherwise", "ranks", "commutative_only",
)  # fmt: skip
_SHAPE = re.compile(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--log", type=Path, nargs="+", default=[], metavar="FILE",
        help="nccl, rccl: what programs wrote that ran under the table with NCCL_DEBUG=INFO"
        " NCCL_DEBUG_SUBSYS=INIT,TUNING (with COLL, too, where a process is in communicators of"
        " several shapes), or files of NCCL's Inspector; a folder stands for its files",
    )  # fmt: skip
    parser.add_argument(
        "--log-shape",
        type=_shape,
        metavar="NODESxPPN",
        help="nodes and ranks per node of communicators of which the logs do not say it: 2x8",
    )


def _shape(text: str) -> Shape:
    """Return the ranks and nodes of `2x8`."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as NODESxPPN, such as 2x8")
    return int(found[1]) * int(found[2]), int(found[1])


def require_alone(options: argparse.Namespace, library: str) -> None:
    """Raises InputError for logs of another library, and for options that start ranks."""
    if library not in LIBRARIES:
        raise InputError(
            f"--log is for tables for NCCL and RCCL: rules for {library} are proved in the library"
            " itself, so leave it out"
        )
    for name in _STARTING:
        if getattr(options, name):
            option = name.replace("_", "-")
            raise InputError(f"--log starts no ranks and writes no file: leave --{option} out")


def prove(table: TuningTable, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a record per rule that names an algorithm; what the logs leave open is said."""
    if all(rule.choice.is_default for rule in table.rules):
        raise InputError("no rule of the table names an algorithm, so no log can tell of any")
    files = list(_files(options.log))
    if sum(file.stat().st_size for file in files) < LARGE:
        evidence = proof.read_evidence(files, options.log_shape)
    else:
        with Display(console(error=True)).stage("reading logs") as report:
            tell = timed(report)
            evidence = proof.read_evidence(
                files, options.log_shape,
                lambda done, total: tell(
                    done / total, f"{format_size(done)} of {format_size(total)}"
                ),
            )  # fmt: skip
    for sentence in _noticed(table, evidence):
        warn(sentence)
    return [record_of(each) for each in proof.prove(table, evidence)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            found = sorted(path.iterdir()) if path.is_dir() else [path]
        except OSError as reason:
            raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
        files = [file for file in found if file.is_file()]
        if not files:
            raise InputError(f"{path} is a folder without files" if path.is_dir() else
                             f"there is no file {path}")  # fmt: skip
        yield from files


def _noticed(table: TuningTable, evidence: Evidence) -> Iterator[str]:
    """Yield sentences on what the logs leave open."""
    if others := sorted(evidence.versions - {table.library}):
        yield f"the logs are of {', '.join(others)}, but the table is for {table.library}"
    of = f"of {plural(evidence.lines, 'call')} in the logs"
    if evidence.shapeless:
        yield (
            f"{evidence.shapeless} {of} are on communicators that the logs do not tell: log the"
            " subsystems INIT,TUNING,COLL, or give --log-shape NODESxPPN"
        )
    if evidence.nameless:
        yield (
            f"{evidence.nameless} {of} are told without their collective, size or algorithm: older"
            " versions of NCCL name the collective only in COLL, the Inspector tells the algorithm"
            " from format v4.2 on"
        )
    if evidence.damaged:
        yield f"{evidence.damaged} {of} cannot be read: their lines are damaged"
