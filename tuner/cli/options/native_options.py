"""Tables in the runtimes' own formats, as somebody at the terminal wants them."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from tuner.base.errors import UsageError
from tuner.cli.options.argument_types import count_option, file_option
from tuner.core.table import TuningTable, read_table
from tuner.formats.registry import FORMATS, ExportOptions, Format
from tuner.workflows.native_files import generic_rules_loader


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options for a native file besides its table."""
    parser.add_argument(
        "--commutative-only",
        action="store_true",
        help="use the rules for commutative operators in a format that cannot tell operators apart"
        " (MPICH's can): programs with other operators would get wrong results",
    )
    parser.add_argument(
        "--fallback-algorithm",
        default="",
        metavar="NAME",
        help="algorithm for nccl, intelmpi and mvapich2 where the table leaves the choice to the"
        " library and its format cannot, such as ring_simple or preset_1",
    )
    count_option(
        parser,
        "--ranks",
        "ranks of the communicators that environment variables are for; required where the"
        " table has several",
        metavar="P",
    )
    add_ppn_option(parser)
    file_option(
        parser,
        "--python",
        "interpreter of the environment with the table's library (default: this one for Open"
        " MPI, else .venv-mpich/bin/python or .venv-intelmpi/bin/python, which `make"
        " .venv-intelmpi/ready` creates)",
        metavar="PYTHON",
    )
    file_option(
        parser,
        "--base-rules",
        "JSON with the library's own rules of this layer, which the exported file must"
        " contain, for mpich, mpich-device and mvapich (default: those in MPICH's libmpi)",
    )


def add_ppn_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option that selects a part of a table."""
    count_option(
        parser,
        "--ppn",
        "ranks per node of the rules to use: required where rules for equally many ranks"
        " differ by it, since most formats do not distinguish nodes",
        metavar="N",
    )


def read_table_part(path: Path, ppn: int | None) -> TuningTable:
    """Read a table, or the part of it for so many ranks per node; raise InputError."""
    table = read_table(path)
    return table if ppn is None else table.with_ppn(ppn)


def export_options(options: argparse.Namespace, form: Format) -> ExportOptions:
    """Return the export options; raise InputError for one that this format does not use."""
    for name in sorted({field.name for field in fields(ExportOptions)} - form.used_options):
        if getattr(options, name):
            raise _unused_option_error(f"--{name.replace('_', '-')}", name, form)
    generic = generic_rules_loader(options.python, options.base_rules)
    return ExportOptions(
        options.commutative_only, options.fallback_algorithm, options.ranks, generic
    )


def check_python_option(python: Path | None, form: Format) -> None:
    """Raise InputError for an interpreter that this format does not read rules with."""
    if python is not None and "base_rules" not in form.used_options:
        raise _unused_option_error("--python", "base_rules", form)


def _unused_option_error(option: str, asked: str, form: Format) -> UsageError:
    """Return the error for an option that only formats with option `asked` use."""
    users = ", ".join(own.name for own in FORMATS.values() if asked in own.used_options)
    return UsageError(
        f"{option} is for files of {users}; {form.name} has no use for it: leave it out"
    )
