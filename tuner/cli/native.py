"""Tables in the runtimes' own formats, as somebody at the terminal wants them."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli.environments import interpreter, libmpi
from tuner.export import mpich
from tuner.export.formats import FORMATS, Wish
from tuner.table import TuningTable


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
        "--ranks", type=int, metavar="P",
        help="ranks of the communicators that environment variables are for; needed where the table"
        " has several",
    )  # fmt: skip
    parser.add_argument(
        "--python", type=Path, metavar="PYTHON",
        help="interpreter of the environment with the table's library (default: this one for Open"
        " MPI, .venv-mpich/bin/python, .venv-intelmpi/bin/python); MPICH's own rules are in its"
        " file",
    )  # fmt: skip


def wish(options: argparse.Namespace) -> Wish:
    """What was said."""
    return Wish(
        options.commutative_only, options.otherwise, options.ranks, generic_of(options.python)
    )


def export(table: TuningTable, to: str, python: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """The file's content, and the rules that this library cannot express, by name.

    python      interpreter of the MPICH environment; its library's own rules go into the file
    """
    return FORMATS[to].emit(table, Wish(generic=generic_of(python)))


def generic_of(python: Path | None) -> mpich.Generic:
    """The rules that the MPICH of an environment decides with by itself, read when needed."""
    return lambda: mpich.generic_tuning(libmpi("mpich", interpreter("mpich", python)))
