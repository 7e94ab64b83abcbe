"""Tables in the runtimes' own formats, with the rules of an installed library where needed."""

from __future__ import annotations

from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.table import TuningTable
from tuner.formats import mpich
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.launch.interpreters import find_interpreter, loaded_libmpi


def omitted_rules_note(table: TuningTable) -> str:
    """Return what is said of rules that no file has; "" for a table without any."""
    number = len(table.rules) - len(table.with_block_placement().rules)
    left = plural(number, "rule")
    return f"; {left} for cyclic ranks left out: no file tells placements" if number else ""


def export_table(
    table: TuningTable, format_name: str, python: Path | None = None
) -> tuple[str, tuple[str, ...]]:
    """The file's content, and the rules that this library cannot express, by name.

    python      interpreter of the MPICH environment; its library's own rules go into the file
    """
    return FORMATS[format_name].emit(table, ExportOptions(generic=generic_rules_loader(python)))


def generic_rules_loader(python: Path | None, file: Path | None = None) -> mpich.GenericTreeLoader:
    """The rules that a library decides with by itself, read when they are needed: from a file, else
    from the MPICH of an environment. Raises InputError where there are none."""

    def generic(library: str, layer: mpich.Layer) -> mpich.Tree:
        if file is not None:
            try:
                return mpich.parse(read_text(file), library, layer)
            except InputError as reason:
                raise InputError(f"--generic {file}: {reason}") from None
        if library != "mpich":
            raise InputError(
                f"an exported file must contain {library}'s own rules: give them (--generic FILE);"
                " its sources have them as JSON"
            )
        return mpich.read_generic_tree(
            loaded_libmpi(library, find_interpreter(library, python)), layer
        )

    return generic


def read_text(path: Path) -> str:
    """A file's content; raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: no text in it: give a file in a library's own format") from None
