"""Tables in the runtimes' own formats, as somebody at the terminal wants them."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.cli import parsing
from tuner.cli.environments import interpreter, libmpi
from tuner.core.table import TuningTable, read_table
from tuner.formats import mpich
from tuner.formats.formats import FORMATS, Format, Wish


def options(parser: argparse.ArgumentParser) -> None:
    """Declare what may be said about a file besides its table."""
    parser.add_argument(
        "--commutative-only", action="store_true",
        help="use the rules for commutative operators in a format that cannot tell operators apart"
        " (MPICH's can): programs with other operators would get wrong results",
    )  # fmt: skip
    parser.add_argument(
        "--otherwise", default="", metavar="NAME",
        help="nccl, intelmpi, mvapich2: what runs where the table leaves the choice to the library"
        " and its own format cannot, such as ring_simple or preset_1",
    )  # fmt: skip
    parser.add_argument(
        "--ranks", type=parsing.positive, metavar="P",
        help="ranks of the communicators that environment variables are for; needed where the table"
        " has several",
    )  # fmt: skip
    add_ppn(parser)
    parser.add_argument(
        "--python", type=Path, metavar="PYTHON",
        help="interpreter of the environment with the table's library (default: this one for Open"
        " MPI, .venv-mpich/bin/python, .venv-intelmpi/bin/python, of which `make"
        " .venv-intelmpi/ready` makes the last)",
    )  # fmt: skip
    parser.add_argument(
        "--generic", type=Path, metavar="FILE",
        help="mpich, mpich-device, mvapich: JSON with the library's own rules of this layer, which"
        " the exported file must contain (default: those in MPICH's libmpi)",
    )  # fmt: skip


def add_ppn(parser: argparse.ArgumentParser) -> None:
    """Declare which part of a table is meant."""
    parser.add_argument(
        "--ppn", type=parsing.positive, metavar="N",
        help="only rules for so many ranks on each node: needed where others for as many ranks in"
        " all differ, since most formats know no nodes",
    )  # fmt: skip


def table_of(path: Path, options: argparse.Namespace) -> TuningTable:
    """A table, or what was asked for of it; raises InputError."""
    table = read_table(path)
    return table if options.ppn is None else table.with_ppn(options.ppn)


def left_out(table: TuningTable) -> str:
    """Return what is said of rules that no file has; "" for a table without any."""
    number = len(table.rules) - len(table.consecutive().rules)
    left = plural(number, "rule")
    return f"; {left} for cyclic ranks left out: no file tells placements" if number else ""


def wish(options: argparse.Namespace, form: Format) -> Wish:
    """What was said; raises InputError for what a file of this format has no use for."""
    for name in sorted({field.name for field in fields(Wish)} - form.asks):
        if getattr(options, name):
            raise _no_use(f"--{name.replace('_', '-')}", name, form)
    generic = generic_of(options.python, options.generic)
    return Wish(options.commutative_only, options.otherwise, options.ranks, generic)


def require_interpreted(options: argparse.Namespace, form: Format) -> None:
    """Raises InputError for an interpreter where no rules of the library's own are read with it."""
    if options.python is not None and "generic" not in form.asks:
        raise _no_use("--python", "generic", form)


def _no_use(option: str, asked: str, form: Format) -> InputError:
    """Of an option for the formats that ask for this."""
    users = ", ".join(own.name for own in FORMATS.values() if asked in own.asks)
    return InputError(
        f"{option} is for files of {users}; {form.name} has no use for it: leave it out"
    )


def export(table: TuningTable, to: str, python: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """The file's content, and the rules that this library cannot express, by name.

    python      interpreter of the MPICH environment; its library's own rules go into the file
    """
    return FORMATS[to].emit(table, Wish(generic=generic_of(python)))


def generic_of(python: Path | None, file: Path | None = None) -> mpich.Generic:
    """The rules that a library decides with by itself, read when they are needed: from a file, else
    from the MPICH of an environment. Raises InputError where there are none."""

    def generic(library: str, layer: mpich.Layer) -> mpich.Tree:
        if file is not None:
            try:
                return mpich.parse(text_of(file), library, layer)
            except InputError as reason:
                raise InputError(f"--generic {file}: {reason}") from None
        if library != "mpich":
            raise InputError(
                f"an exported file must contain {library}'s own rules: give them (--generic FILE);"
                " its sources have them as JSON"
            )
        return mpich.generic_tuning(libmpi(library, interpreter(library, python)), layer)

    return generic


def text_of(path: Path) -> str:
    """A file's content; raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: no text in it: give a file in a library's own format") from None
