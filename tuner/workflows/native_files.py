"""Read and write tables in the libraries' native formats."""

from __future__ import annotations

from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.units import plural
from tuner.core.table import NOT_IN_FILES, TuningTable
from tuner.formats import mpich
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.launch import find_interpreter, loaded_libmpi
from tuner.mpi_libraries import LIBRARY_MODULES


def omitted_rules_note(table: TuningTable) -> str:
    """Return a note on the rules that are in no native file, or "" if there are none."""
    number = len(table.rules) - len(table.held_by_files().rules)
    left = plural(number, "rule")
    return (
        f"; {left} left out: none for {NOT_IN_FILES} is written to native files" if number else ""
    )


def export_table(
    table: TuningTable, format_name: str, python: Path | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the file's content, and the descriptions of the rules it cannot express.

    python      interpreter of the MPICH environment; its library's own rules go into the file
    """
    return FORMATS[format_name].emit(table, ExportOptions(base_rules=generic_rules_loader(python)))


def generic_rules_loader(python: Path | None, file: Path | None = None) -> mpich.GenericTreeLoader:
    """Return a function that reads a library's built-in rules when they are needed.

    It reads them from `file`, or else from the MPICH of an environment, and raises InputError where
    there are none.

    python      interpreter of that environment
    file        rules of the library as JSON
    """

    def generic(library: str, layer: mpich.Layer) -> mpich.Tree:
        if file is not None:
            try:
                return mpich.parse(read_text(file), library, layer)
            except InputError as reason:
                raise InputError(f"--base-rules {file}: {reason}") from None
        if library not in LIBRARY_MODULES:
            raise InputError(
                f"an exported file must contain {library}'s own rules: give them (--base-rules"
                " FILE); its sources have them as JSON"
            )
        return mpich.read_generic_tree(
            loaded_libmpi(library, find_interpreter(library, python)), layer
        )

    return generic


def read_text(path: Path) -> str:
    """Return a file's text; raise InputError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: no text in it: give a file in a library's own format") from None
