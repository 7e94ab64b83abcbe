"""Every runtime's own format by name: whose tables it holds, how it is written and compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.base.errors import InputError
from tuner.core.table import TuningTable
from tuner.formats import intelmpi, mpich, mvapich2, nccl, openmpi, ucc


def _no_generic(library: str, _layer: mpich.Layer) -> mpich.Tree:
    raise InputError(f"there is no {library} whose own rules could complete the file")


@dataclass(frozen=True)
class ExportOptions:
    """What somebody who wants a file says besides the table.

    commutative_only    use the rules for commutative operators where a format cannot tell operators
                        apart
    otherwise           what runs where the table leaves the choice to a runtime whose file cannot
    ranks               of the communicators that a file is for which can be for one size alone
    generic             the rules that MPICH or MVAPICH decides with by itself
    """

    commutative_only: bool = False
    otherwise: str = ""
    ranks: int | None = None
    generic: mpich.GenericTreeLoader = _no_generic


def _no_fallback_rules(_table: TuningTable, _options: ExportOptions) -> int:
    return 0


@dataclass(frozen=True)
class Format:
    """One format.

    libraries   names of the libraries whose tables it holds
    asks        what of a wish it looks at
    write       the file's content, and the rules that it cannot express, by name
    compare     every call that a file decides otherwise than the table, one sentence each
    mixes       its files decide for shapes of which a part of a table has no rules (`--ppn`), too
    usage       how $PWD/FILE is given to the library, as Markdown
    mark        what its files alone have among those of one library
    replaced    how many rules leave to the library what a stand-in decides in the file
    """

    name: str
    libraries: tuple[str, ...]
    media_type: str
    used_options: frozenset[str]
    write: Callable[[TuningTable, ExportOptions], tuple[str, tuple[str, ...]]]
    compare: Callable[[TuningTable, str, ExportOptions], list[str]]
    usage: str
    affects_other_shapes: bool = False
    signature: str = ""
    fallback_rule_count: Callable[[TuningTable, ExportOptions], int] = _no_fallback_rules

    @property
    def is_json(self) -> bool:
        """Whether its files are JSON."""
        return self.media_type.endswith("+json")

    def emit(self, table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
        """`write`, of rules for consecutive ranks; raises InputError where it would be wrong."""
        return self.write(table.with_block_placement(), options)

    def check(self, table: TuningTable, text: str, options: ExportOptions) -> list[str]:
        """`compare`, with the rules for consecutive ranks; raises InputError for a damaged file."""
        return self.compare(table.with_block_placement(), text, options)

    def usage_of(self, path: Path) -> str:
        """`usage`, of the file in this place."""
        return _with_path(self.usage, path)

    def command_of(self, path: Path) -> str:
        """Return the part of `usage_of` that is typed."""
        return _with_path(self.usage.split("`", 2)[1], path)

    @property
    def usage_note(self) -> str:
        """Return what `usage` says beside its command, "" where that is nothing."""
        return self.usage.split("`", 2)[2].replace("`", "").lstrip(",; ")

    def export_command(self, path: Path) -> str:
        """Return what to type where the ranks are not started by Open MPI's own mpirun, which alone
        knows `--mca`; "" for other libraries.
        """
        words = self.command_of(path).split("--mca ")[1:]
        pairs = ("OMPI_MCA_" + "=".join(word.split(maxsplit=1)).rstrip() for word in words)
        return f"export {' '.join(pairs)}" if words else ""

    def require_library(self, table: TuningTable) -> None:
        """Raises InputError for a table of another library."""
        if _library_name(table) not in self.libraries:
            raise InputError(
                f"the table is for {table.library}: its rules mean nothing in the format of"
                f" {self.name}"
            )


def _with_path(usage: str, path: Path) -> str:
    return usage.replace("$PWD/FILE", shlex.quote(str(path.absolute()))).replace("`", "")


def _emit_mpich(table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
    kept, lost = mpich.drop_inexpressible(table)
    return mpich.emit(kept, options.generic(_library_name(table), mpich.MPIR)), lost


def _check_mpich(table: TuningTable, text: str, options: ExportOptions) -> list[str]:
    generic = options.generic(_library_name(table), mpich.MPIR)
    return mpich.check(mpich.drop_inexpressible(table)[0], text, generic)


def _emit_device(table: TuningTable, options: ExportOptions) -> tuple[str, tuple[str, ...]]:
    kept, lost = mpich.drop_inexpressible(table)
    return mpich.device.emit(kept, options.generic(_library_name(table), mpich.DEVICE)), lost


def _check_device(table: TuningTable, text: str, options: ExportOptions) -> list[str]:
    generic = options.generic(_library_name(table), mpich.DEVICE)
    return mpich.device.check(mpich.drop_inexpressible(table)[0], text, generic)


def _library_name(table: TuningTable) -> str:
    return table.library.partition(" ")[0]


def _intelmpi_options(options: ExportOptions) -> Mapping[str, Any]:
    fallback = intelmpi.fallback_of(options.otherwise)
    return {"fallback": fallback, "commutative_only": options.commutative_only}


def _mvapich2_options(table: TuningTable, options: ExportOptions) -> Mapping[str, Any]:
    if not options.commutative_only:
        mvapich2.require_operand_order(table)
    fallback = mvapich2.fallback_of(options.otherwise)
    return {"fallback": fallback, "commutative_only": options.commutative_only}


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
_SOURCED_USAGE = "`. $PWD/FILE` before the launch"

_FORMATS = (
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
        affects_other_shapes=True,
    ),
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
        affects_other_shapes=True,
        signature=openmpi.han.TOPOLOGY_LEVEL,
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
        affects_other_shapes=True,
    ),
    Format(
        "mpich",
        ("mpich",),
        "application/vnd.tuner.mpich-csel+json",
        frozenset({"generic"}),
        _emit_mpich,
        _check_mpich,
        _MPICH_USAGE,
        affects_other_shapes=True,
    ),
    Format(
        "mpich-device",
        ("mpich",),
        "application/vnd.tuner.mpich-device-csel+json",
        frozenset({"generic"}),
        _emit_device,
        _check_device,
        _DEVICE_USAGE,
        affects_other_shapes=True,
        signature=mpich.DEVICE.leaf_prefix,
    ),
    Format(
        "mvapich",
        ("mvapich",),
        "application/vnd.tuner.mvapich-csel+json",
        frozenset({"generic"}),
        _emit_mpich,
        _check_mpich,
        _MVAPICH_USAGE,
        affects_other_shapes=True,
    ),
    Format(
        "nccl",
        ("nccl", "rccl"),
        "application/vnd.tuner.nccl-csv",
        frozenset({"otherwise"}),
        lambda table, wish: (nccl.emit(table, nccl.fallback_of(wish.otherwise)), ()),
        lambda table, text, wish: nccl.check(table, text, nccl.fallback_of(wish.otherwise)),
        _PLUGIN_USAGE,
        fallback_rule_count=lambda table, _: nccl.fallback_rule_count(table),
    ),
    Format(
        "ucc",
        ("ucc",),
        "application/vnd.tuner.ucc-conf",
        frozenset(),
        lambda table, _: (ucc.emit(table), ()),
        lambda table, text, _: ucc.check(table, text),
        "`UCC_CONFIG_FILE=$PWD/FILE`",
    ),
    Format(
        "intelmpi",
        ("intelmpi",),
        "application/vnd.tuner.intelmpi-environment",
        frozenset({"commutative_only", "otherwise", "ranks"}),
        lambda table, wish: (
            intelmpi.DIALECT.emit(table, wish.ranks, **_intelmpi_options(wish)),
            (),
        ),
        lambda table, text, wish: intelmpi.DIALECT.check(
            table, text, wish.ranks, **_intelmpi_options(wish)
        ),
        _SOURCED_USAGE,
        affects_other_shapes=True,
        fallback_rule_count=lambda table, wish: intelmpi.DIALECT.fallback_rule_count(
            table, wish.ranks, commutative_only=wish.commutative_only
        ),
    ),
    Format(
        "mvapich2",
        ("mvapich2",),
        "application/vnd.tuner.mvapich2-environment",
        frozenset({"commutative_only", "otherwise", "ranks"}),
        lambda table, wish: (
            mvapich2.DIALECT.emit(table, wish.ranks, **_mvapich2_options(table, wish)),
            (),
        ),
        lambda table, text, wish: mvapich2.DIALECT.check(
            table, text, wish.ranks, **_mvapich2_options(table, wish)
        ),
        _SOURCED_USAGE,
        affects_other_shapes=True,
        fallback_rule_count=lambda table, wish: mvapich2.DIALECT.fallback_rule_count(
            table, wish.ranks, commutative_only=wish.commutative_only
        ),
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({each.name: each for each in _FORMATS})


def detect_format(table: TuningTable, text: str) -> Format:
    """The format that a file for this table is in, as it looks; raises InputError for none."""
    library = _library_name(table)
    offered = [form for form in _FORMATS if library in form.libraries]
    if not offered:
        raise InputError(f"there is no format for tables of {table.library}")
    is_json = text.lstrip().startswith("{")
    if all(form.is_json != is_json for form in offered):
        raise InputError(
            f"this is no file of {library}, whose own are {'no ' if is_json else ''}JSON: give one"
            " of the library that the table is for"
        )
    marked = [form for form in offered if form.signature and form.signature in text]
    return next(form for form in (*marked, *offered) if form.is_json == is_json)
