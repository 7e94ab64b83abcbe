"""Tables in the libraries' own formats, by name of the library."""

from __future__ import annotations

from pathlib import Path

from tuner.cli.environments import interpreter, libmpi
from tuner.export import mpich, openmpi
from tuner.table import TuningTable


def export(
    table: TuningTable, to: str, python: Path | None = None, commutative_only: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The file's content, and the rules that this library cannot express, by name.

    python      interpreter of the MPICH environment; its library's own rules go into the file
    """
    if to == "openmpi":
        return openmpi.emit(table, commutative_only=commutative_only), ()
    kept, lost = mpich.portable(table)
    return mpich.emit(kept, _generic(python)), lost


def check(
    table: TuningTable, text: str, to: str, python: Path | None = None,
    commutative_only: bool = False,
) -> list[str]:  # fmt: skip
    """Every call that the file decides otherwise than the table, one sentence each."""
    if to == "openmpi":
        return openmpi.check(table, text, commutative_only=commutative_only)
    kept, _ = mpich.portable(table)
    return mpich.check(kept, text, _generic(python))


def _generic(python: Path | None) -> mpich.Tree:
    return mpich.generic_tuning(libmpi("mpich", interpreter("mpich", python)))
