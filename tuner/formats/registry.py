"""The registry of native file formats: the libraries of each, how it is written and compared."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.base.errors import InputError
from tuner.core.table import TuningTable
from tuner.formats import intelmpi, mpich, mvapich2, nccl, openmpi, ucc
from tuner.formats.file_rules import FileRules
from tuner.launch import Installation
from tuner.mpi_libraries.openmpi_collectives import NEWEST_CLASSIC


def _no_generic(library: str, _layer: mpich.Layer) -> mpich.Tree:
    raise InputError(f"expected an installed {library}, whose own rules complete the file")


@dataclass(frozen=True)
class ExportOptions:
    """Options for writing or checking a file, besides the table.

    commutative_only    use the rules for commutative operators where a format cannot tell operators
                        apart
    fallback_algorithm  name of the fallback algorithm, for formats that cannot express the library
                        default; "" for none
    ranks               communicator size, for formats whose file holds the rules of one size only
    base_rules          loads the built-in selection rules of MPICH or MVAPICH
    """

    commutative_only: bool = False
    fallback_algorithm: str = ""
    ranks: int | None = None
    base_rules: mpich.GenericTreeLoader = _no_generic


DEFAULT_OPTIONS = ExportOptions()


@dataclass(frozen=True)
class Format:
    """One native file format.

    libraries               names of the libraries whose tables it can hold
    used_options            names of the `ExportOptions` fields that it uses
    write                   returns the file's content and the names of the rules that it cannot
                            express
    compare                 returns one sentence for every call that a file decides differently from
                            the table
    usage                   how $PWD/FILE is passed to the library, as Markdown
    affects_other_shapes    whether a file of part of a table (`--ppn`) also decides calls of the
                            shapes left out
    read                    returns the rules of a user's file, given the library, with its version
                            if it is known
    signature               pattern of a text found only in its files, if the formats before it and
                            those of other libraries do not have it; ^ and $ are those of a line,
                            and the text begins with its first line that is neither blank nor a
                            comment
    newest                  release that `read` assumes where none is known; "" where it tells none
                            apart
    mark                    text that only its files have of those with its signature; "" for none
    fallback_rule_count     returns how many default rules the fallback replaces in the file
    further_file_note       returns a sentence on a second file that this one needs to have an
                            effect; "" if it needs none
    is_read_by              returns whether an installation of one of the libraries reads its files
    not_validated           why its libraries are not started to validate their tables
    """

    name: str
    libraries: tuple[str, ...]
    media_type: str
    used_options: frozenset[str]
    write: Callable[[TuningTable, ExportOptions], tuple[str, tuple[str, ...]]]
    compare: Callable[[TuningTable, str, ExportOptions], list[str]]
    usage: str
    read: Callable[[str, str], FileRules]
    signature: str
    newest: str = ""
    mark: str = ""
    affects_other_shapes: bool = False
    fallback_rule_count: Callable[[TuningTable, ExportOptions], int] = lambda *_: 0
    further_file_note: Callable[[TuningTable], str] = lambda _: ""
    is_read_by: Callable[[Installation], bool] = lambda _: True
    not_validated: str = ""

    @property
    def is_json(self) -> bool:
        return self.media_type.endswith("+json")

    def has_signature(self, text: str) -> bool:
        """Return whether a text looks like one of its files."""
        lines = dropwhile(lambda line: line.strip()[:1] in ("", "#"), text.split("\n"))
        return re.search(self.signature, "\n".join(lines), re.MULTILINE) is not None

    def emit(self, table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
        """Write the file from the rules for block placement, as `write` does.

        Raises InputError where the file would be wrong.
        """
        return self.write(table.held_by_files(), options)

    def check(self, table: TuningTable, text: str, options: ExportOptions) -> list[str]:
        """Compare a file with the rules that files can hold, as `compare` does.

        Raises InputError for a damaged file.
        """
        return self.compare(table.held_by_files(), text, options)

    def usage_of(self, path: Path) -> str:
        """Return `usage` with the path of this file."""
        return _with_path(self.usage, path)

    def command_of(self, path: Path) -> str:
        """Return the command in `usage_of`, without the text after it."""
        return _with_path(self.usage.split("`", 2)[1], path)

    @property
    def usage_note(self) -> str:
        """The text after the command in `usage`; "" if there is none."""
        return self.usage.split("`", 2)[2].replace("`", "").lstrip(",; ")

    def export_command(self, path: Path) -> str:
        """Return the export command for ranks that Open MPI's own mpirun does not start.

        Only that mpirun knows `--mca`. The command is "" for other libraries.
        """
        words = self.command_of(path).split("--mca ")[1:]
        pairs = ("OMPI_MCA_" + "=".join(word.split(maxsplit=1)).rstrip() for word in words)
        return f"export {' '.join(pairs)}" if words else ""

    def require_library(self, table: TuningTable) -> None:
        """Raise InputError for a table of another library."""
        if _library_name(table) not in self.libraries:
            raise InputError(
                f"the table is for {table.library}: its rules mean nothing in the format of"
                f" {self.name}"
            )


def _with_path(usage: str, path: Path) -> str:
    return usage.replace("$PWD/FILE", shlex.quote(str(path.absolute()))).replace("`", "")


def _emit_mpich(table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
    kept, lost = mpich.drop_inexpressible(table)
    return mpich.emit(kept, options.base_rules(_library_name(table), mpich.MPIR)), lost


def _check_mpich(table: TuningTable, text: str, options: ExportOptions) -> list[str]:
    generic = options.base_rules(_library_name(table), mpich.MPIR)
    return mpich.check(mpich.drop_inexpressible(table)[0], text, generic)


def _emit_device(table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
    kept, lost = mpich.drop_inexpressible(table)
    return mpich.device.emit(kept, options.base_rules(_library_name(table), mpich.DEVICE)), lost


def _check_device(table: TuningTable, text: str, options: ExportOptions) -> list[str]:
    generic = options.base_rules(_library_name(table), mpich.DEVICE)
    return mpich.device.check(mpich.drop_inexpressible(table)[0], text, generic)


def _library_name(table: TuningTable) -> str:
    return table.library.partition(" ")[0]


def _intelmpi_options(options: ExportOptions) -> Mapping[str, Any]:
    fallback = intelmpi.fallback_of(options.fallback_algorithm)
    return {"fallback": fallback, "commutative_only": options.commutative_only}


def _mvapich2_options(table: TuningTable, options: ExportOptions) -> Mapping[str, Any]:
    if not options.commutative_only:
        mvapich2.require_operand_order(table)
    fallback = mvapich2.fallback_of(options.fallback_algorithm)
    return {"fallback": fallback, "commutative_only": options.commutative_only}


def _han_note(table: TuningTable) -> str:
    if not openmpi.han.is_needed(table):
        return ""
    return (
        "On several nodes Open MPI 5 reads these rules only for calls that a second file hands on:"
        " write that, too, with --format openmpi-han"
    )


def _reads_classic_rules(place: Installation) -> bool:
    return place.identity.major_version in openmpi.emitter.SUPPORTED_MAJOR_VERSIONS


_TUNED_USAGE = (
    "`mpirun --mca coll_tuned_use_dynamic_rules 1"
    " --mca coll_tuned_dynamic_rules_filename $PWD/FILE`"
)
_HAN_USAGE = (
    "`mpirun --mca coll_han_use_dynamic_file_rules 1"
    " --mca coll_han_dynamic_rules_filename $PWD/FILE`, with the parameters of the file `openmpi`"
)
_MPICH_USAGE = (
    f"`{mpich.MPIR.variable}=$PWD/FILE`, with the variable of the file `mpich-device`, without"
    " which the device layer answers first; a library that reads no such file wants"
    " `MPIR_CVAR_DEVICE_COLLECTIVES=none` instead"
)
_DEVICE_USAGE = f"`{mpich.DEVICE.variable}=$PWD/FILE`, with the variable of the file `mpich`"
_MVAPICH_USAGE = (
    f"`MPIR_CVAR_DEVICE_COLLECTIVES=none {mpich.MPIR.variable}=$PWD/FILE`; MVAPICH Plus 4.1 also"
    " wants `MPIR_CVAR_ENABLE_DYNAMIC_TUNING=0`"
)
_PLUGIN_USAGE = (
    "`NCCL_TUNER_PLUGIN=PATH NCCL_TUNER_CONFIG_FILE=$PWD/FILE`, the plugin being the example in"
    " NCCL's sources; RCCL since April 2026 reads the file without a plugin"
)
_NCCL_NOT_VALIDATED = (
    "nothing is validated: NCCL reads its tuner's file on GPUs alone, and this program does not"
    " start it; `tuner table check` reads the file as the plugin does. To see what a program"
    " ran, give --log FILE: the log of one that ran with NCCL_DEBUG=INFO"
    " NCCL_DEBUG_SUBSYS=INIT,TUNING"
)
_UCC_NOT_VALIDATED = (
    "nothing is validated: UCC does not report which algorithm it runs, and this program"
    " does not start it; `tuner table check` reads the file as UCC does"
)
_MVAPICH_NOT_VALIDATED = (
    "nothing is validated: this program does not start MVAPICH; `tuner table check` reads the"
    " file as it does"
)
_NEWEST_MPICH = "5.0"  # whose algorithms and conditions are known (coll_algorithms.txt)
_CSEL = r'"collective='
_SET = r"^[ \t]*(?:(?:export|setenv|unset|unsetenv)[ \t]+)?"  # before the name of a variable
_SET_END = r"(?:[ \t\r=]|$)"
_SOURCED_USAGE = "`. $PWD/FILE` before the launch"

_FORMATS = (
    Format(
        "openmpi-han",
        ("openmpi",),
        "application/vnd.tuner.openmpi-han-rules",
        frozenset({"commutative_only"}),
        lambda table, wish: (openmpi.han.emit(table, commutative_only=wish.commutative_only), ()),
        lambda table, text, wish: openmpi.han.check(
            table, text, commutative_only=wish.commutative_only
        ),
        _HAN_USAGE,
        openmpi.read_rules.read_han,
        rf"^[ \t]*({'|'.join(openmpi.han.LEVELS)})\b",
        newest=f"{openmpi.han.SUPPORTED_MAJOR_VERSIONS[-1]}.0",
        affects_other_shapes=True,
        is_read_by=lambda place: (
            place.identity.major_version in openmpi.han.SUPPORTED_MAJOR_VERSIONS
        ),
    ),
    Format(
        "openmpi",
        ("openmpi",),
        "application/vnd.tuner.openmpi-rules",
        frozenset({"commutative_only"}),
        lambda table, wish: (openmpi.emit(table, commutative_only=wish.commutative_only), ()),
        lambda table, text, wish: openmpi.check(
            table, text, commutative_only=wish.commutative_only
        ),
        _TUNED_USAGE,
        openmpi.read_rules.read_classic,
        r"\A\s*(rule-file-version-\d+\s|\d+[ \t\r]*(#.*)?$)",
        newest="{}.{}".format(*NEWEST_CLASSIC),
        affects_other_shapes=True,
        further_file_note=_han_note,
        is_read_by=_reads_classic_rules,
    ),
    Format(
        "openmpi-json",
        ("openmpi",),
        "application/vnd.tuner.openmpi-rules+json",
        frozenset({"commutative_only"}),
        lambda table, wish: (openmpi.emit_json(table, commutative_only=wish.commutative_only), ()),
        lambda table, text, wish: openmpi.check_json(
            table, text, commutative_only=wish.commutative_only
        ),
        _TUNED_USAGE,
        openmpi.read_rules.read_json,
        r'"(rule_file_version|collectives)"\s*:',
        newest=f"{openmpi.json_rules.FIRST_MAJOR_VERSION}.0",
        affects_other_shapes=True,
        is_read_by=lambda place: not _reads_classic_rules(place),
    ),
    Format(
        "mpich-device",
        ("mpich",),
        "application/vnd.tuner.mpich-device-csel+json",
        frozenset({"base_rules"}),
        _emit_device,
        _check_device,
        _DEVICE_USAGE,
        mpich.read,
        mpich.DEVICE.leaf_prefix,
        newest=_NEWEST_MPICH,
        affects_other_shapes=True,
        is_read_by=lambda place: mpich.DEVICE.variable in place.capabilities.variables,
    ),
    Format(
        "mpich",
        ("mpich",),
        "application/vnd.tuner.mpich-csel+json",
        frozenset({"base_rules"}),
        _emit_mpich,
        _check_mpich,
        _MPICH_USAGE,
        mpich.read,
        rf"{_CSEL}|{_SET}MPIR_CVAR_\w{{1,80}}_ALGORITHM{_SET_END}",
        newest=_NEWEST_MPICH,
        affects_other_shapes=True,
    ),
    Format(
        "mvapich",
        ("mvapich",),
        "application/vnd.tuner.mvapich-csel+json",
        frozenset({"base_rules"}),
        _emit_mpich,
        _check_mpich,
        _MVAPICH_USAGE,
        mpich.read,
        _CSEL,
        mark="_intra_osu_",
        affects_other_shapes=True,
        not_validated=_MVAPICH_NOT_VALIDATED,
    ),
    Format(
        "nccl",
        ("nccl", "rccl"),
        "application/vnd.tuner.nccl-csv",
        frozenset({"fallback_algorithm"}),
        lambda table, wish: (nccl.emit(table, nccl.fallback_of(wish.fallback_algorithm)), ()),
        lambda table, text, wish: nccl.check(
            table, text, nccl.fallback_of(wish.fallback_algorithm)
        ),
        _PLUGIN_USAGE,
        nccl.read,
        rf"\A\s*({'|'.join(nccl.COLLECTIVES)})[ \t]*,",
        fallback_rule_count=lambda table, _: nccl.fallback_rule_count(table),
        not_validated=_NCCL_NOT_VALIDATED,
    ),
    Format(
        "ucc",
        ("ucc",),
        "application/vnd.tuner.ucc-conf",
        frozenset(),
        lambda table, _: (ucc.emit(table), ()),
        lambda table, text, _: ucc.check(table, text),
        "`UCC_CONFIG_FILE=$PWD/FILE`",
        ucc.read,
        rf"{_SET}UCC_\w{{1,80}}{_SET_END}|^\[[^=\n]*=[^]\n]*\][ \t\r]*$",
        not_validated=_UCC_NOT_VALIDATED,
    ),
    Format(
        "intelmpi",
        ("intelmpi",),
        "application/vnd.tuner.intelmpi-environment",
        frozenset({"commutative_only", "fallback_algorithm", "ranks"}),
        lambda table, wish: (
            intelmpi.DIALECT.emit(table, wish.ranks, **_intelmpi_options(wish)),
            (),
        ),
        lambda table, text, wish: intelmpi.DIALECT.check(
            table, text, wish.ranks, **_intelmpi_options(wish)
        ),
        _SOURCED_USAGE,
        intelmpi.DIALECT.read,
        rf"{_SET}I_MPI_ADJUST_\w{{1,80}}{_SET_END}",
        affects_other_shapes=True,
        fallback_rule_count=lambda table, wish: intelmpi.DIALECT.fallback_rule_count(
            table, wish.ranks, commutative_only=wish.commutative_only
        ),
    ),
    Format(
        "mvapich2",
        ("mvapich2",),
        "application/vnd.tuner.mvapich2-environment",
        frozenset({"commutative_only", "fallback_algorithm", "ranks"}),
        lambda table, wish: (
            mvapich2.DIALECT.emit(table, wish.ranks, **_mvapich2_options(table, wish)),
            (),
        ),
        lambda table, text, wish: mvapich2.DIALECT.check(
            table, text, wish.ranks, **_mvapich2_options(table, wish)
        ),
        _SOURCED_USAGE,
        mvapich2.DIALECT.read,
        rf"{_SET}MV2_\w{{1,80}}_TUNING{_SET_END}",
        affects_other_shapes=True,
        fallback_rule_count=lambda table, wish: mvapich2.DIALECT.fallback_rule_count(
            table, wish.ranks, commutative_only=wish.commutative_only
        ),
        not_validated=_MVAPICH_NOT_VALIDATED,
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({each.name: each for each in _FORMATS})
LIBRARIES = tuple(dict.fromkeys(name for form in _FORMATS for name in form.libraries))


def detect_format(table: TuningTable, text: str) -> Format:
    """Return the format of a file for this table, judged by its content.

    Raises InputError where no format of the table's library fits.
    """
    library = _library_name(table)
    offered = [form for form in _FORMATS if library in form.libraries]
    if not offered:
        raise InputError(f"expected a table for {', '.join(LIBRARIES)}, not for {table.library}")
    is_json = text.lstrip().startswith("{")
    if all(form.is_json != is_json for form in offered):
        raise InputError(
            f"this is not a file of {library}, whose files are {'not ' if is_json else ''}JSON:"
            " give one of the library that the table is for"
        )
    marked = [form for form in offered if form.has_signature(text)]
    # Of the others the last: han's files and those of the device layer always have their signature.
    return next(form for form in (*marked, *reversed(offered)) if form.is_json == is_json)


def recognise_format(text: str, library: str = "") -> Format:
    """Return the format of a user's file, judged by its content.

    library     one of LIBRARIES, or "" where the file alone is to tell; where it has one format,
                that is taken for any file

    Raises InputError where none fits.
    """
    offered = [form for form in _FORMATS if library in ("", *form.libraries)]
    if len(offered) == 1:
        return offered[0]
    fitting = [form for form in offered if form.has_signature(text)]
    found = next((form for form in fitting if form.mark and form.mark in text), None)
    found = found or next(iter(fitting), None)
    if found is None:
        names = ", ".join(form.name for form in offered)
        raise InputError(f"expected a rules file in one of the formats {names}")
    return found
