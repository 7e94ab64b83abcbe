"""Run the real library under a table's file, and check which algorithms it executes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.progress import ProgressCallback, StageCallback, progress_from_counts
from tuner.base.units import format_range, format_sizes, humanize, plural
from tuner.core.measurement import Cluster
from tuner.core.table import OPERATORS, Rule, TuningTable
from tuner.formats import intelmpi, mpich, openmpi
from tuner.formats.env_format import rank_counts
from tuner.formats.openmpi.emitter import SUPPORTED_MAJOR_VERSIONS
from tuner.formats.registry import FORMATS, ExportOptions, Format
from tuner.launch import LOCAL_HOST, Hosts, Launcher, LauncherTemplate, MultiHostLauncher
from tuner.launch.interpreters import loaded_libmpi
from tuner.launch.template import default_template
from tuner.mpi_libraries import library_module, require_no_override
from tuner.mpi_libraries.products import base_of
from tuner.probe.probed_machine import local_cluster
from tuner.validation import validate_intelmpi, validate_mpich, validate_openmpi
from tuner.validation.validation import RuleValidation
from tuner.workflows.following import device_file, write_device_file

VALIDATION_COLUMNS = (
    "call",
    "ranks",
    "operators",
    "sizes",
    "tried at",
    "table",
    "executed",
    "confirmed",
)


VALIDATED_LIBRARIES = ("openmpi", "mpich", "intelmpi")
NOT_VALIDATED_REASONS = {
    "ucc": "nothing is validated: UCC does not report which algorithm it runs, and this program"
    " does not start it; `tuner table check` reads the file as UCC does",
    **dict.fromkeys(
        ("nccl", "rccl"),
        "nothing is validated: NCCL reads its tuner's file on GPUs alone, and this program does not"
        " start it; `tuner table check` reads the file as the plugin does. To see what a program"
        " ran, give --log FILE: the log of one that ran with NCCL_DEBUG=INFO"
        " NCCL_DEBUG_SUBSYS=INIT,TUNING",
    ),
    **dict.fromkeys(
        ("mvapich", "mvapich2"),
        "nothing is validated: this program does not start MVAPICH; `tuner table check` reads the"
        " file as it does",
    ),
}


def validate_file(
    table: TuningTable,
    python: Path,
    native_file: Path,
    report: StageCallback,
    starter: Launcher | MultiHostLauncher | None = None,
    commutative_only: bool = False,
) -> list[dict[str, Any]]:
    """Validate the rules of a file for Open MPI or MPICH, and return one record per rule.

    Open MPI's file is for one operator class: rules for commutative operators alone are validated
    in a second file.

    starter             launcher of ranks on several hosts; None: on this computer
    commutative_only    whether the file has the rules for commutative operators (Open MPI)

    Raises InputError for a table of another computer or library.
    """
    starter = starter or local_launcher(table, python)
    progress = progress_from_counts(report)
    with shared_workdir(starter) as place:
        if starter.library == "openmpi":
            validations = _validate_openmpi(
                table, native_file, starter, Path(place), progress, commutative_only
            )
            rest = TuningTable(table.cluster, table.library, tuple(_rules_in_second_file(table)))
            if rest.rules and not commutative_only:
                other = Path(place, "commutative.rules")
                other.write_text(openmpi.emit(rest, commutative_only=True), encoding="utf-8")
                validations += _validate_openmpi(rest, other, starter, Path(place), progress, True)
        else:
            kept, _ = mpich.drop_inexpressible(table)
            trees = mpich.read_generic_trees(loaded_libmpi("mpich", python))
            made = validate_mpich.validate(
                kept,
                native_file,
                trees,
                starter,
                Path(place),
                device_file=device_file(native_file),
                progress=progress,
            )
            validations = [
                validation for validation in made if validation.rule in table.rules
            ]  # not the dropped
    return [validation_record(validation) for validation in validations]


def _validate_openmpi(
    table: TuningTable,
    file: Path,
    starter: Launcher | MultiHostLauncher,
    place: Path,
    progress: ProgressCallback,
    commutative_only: bool,
) -> list[RuleValidation]:
    return validate_openmpi.validate(
        table,
        file,
        starter,
        place,
        progress=progress,
        han_file=_write_han_file(table, place, commutative_only),
        commutative_only=commutative_only,
    )


def _rules_in_second_file(table: TuningTable) -> Iterator[Rule]:
    """Return the rules that a file for any operator lacks."""
    return (rule for rule in table.rules if rule.key.operators != OPERATORS[0])


def shared_workdir(starter: Launcher | MultiHostLauncher) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory that all hosts of a launcher see.

    With remote hosts it is in the home directory, since they do not see /tmp of this computer.
    """
    folder = Path.home() / ".cache" / "tuner" if isinstance(starter, MultiHostLauncher) else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="tuner-validate-", dir=folder)


def _write_han_file(table: TuningTable, place: Path, commutative_only: bool) -> Path | None:
    """Write the rules file of Open MPI's han for calls on several nodes; None if none is needed."""
    if not openmpi.han.is_needed(table):
        return None
    file = place / "han.rules"
    text = openmpi.han.emit(table, commutative_only=commutative_only)
    file.write_text(text, encoding="utf-8")
    return file


def _validate_intelmpi(
    table: TuningTable, python: Path, wish: ExportOptions, report: StageCallback
) -> list[dict[str, Any]]:
    """Validate the rules for Intel MPI, and return one record per rule.

    Its variables are for one number of ranks, so that each number has its own file.
    """
    starter = local_launcher(table, python)
    otherwise = intelmpi.fallback_of(wish.fallback_algorithm)
    validations = list[RuleValidation]()
    with tempfile.TemporaryDirectory(prefix="tuner-validate-") as place:
        file = Path(place, "adjust.sh")
        for ranks in rank_counts(table) if wish.ranks is None else (wish.ranks,):
            file.write_text(
                intelmpi.DIALECT.emit(
                    table, ranks, fallback=otherwise, commutative_only=wish.commutative_only
                )
            )
            validations += validate_intelmpi.validate(
                table,
                file,
                starter,
                Path(place),
                ranks=ranks,
                fallback=otherwise,
                commutative_only=wish.commutative_only,
                progress=progress_from_counts(report),
            )
    return [validation_record(validation) for validation in validations]


def format_for_library(library: str) -> Format:
    """Return the format in which tables of a library are validated.

    Raises InputError for a library that cannot be started.
    """
    if library not in VALIDATED_LIBRARIES:
        raise InputError(NOT_VALIDATED_REASONS.get(library, f"{library} cannot be started here"))
    return FORMATS[library]


def require_supported_version(table: TuningTable) -> None:
    """Raise InputError for a version of Open MPI whose files cannot be validated."""
    name, _, version = table.library.partition(" ")
    if name == "openmpi" and version.partition(".")[0] not in SUPPORTED_MAJOR_VERSIONS:
        raise InputError(
            "nothing is validated: of Open MPI this program validates versions"
            f" {' and '.join(SUPPORTED_MAJOR_VERSIONS)}, and the table is for"
            f" {table.library}; `tuner table check` reads its JSON rules as it does"
        )


def validate_exported(
    table: TuningTable,
    python: Path,
    wish: ExportOptions,
    report: StageCallback,
    hosts: Hosts = LOCAL_HOST,
    template: LauncherTemplate | None = None,
) -> list[dict[str, Any]]:
    """Export to a temporary file and validate that; return one record per rule.

    hosts       hosts on which ranks are started, with `template`

    Raises InputError for a library that cannot be validated.
    """
    library = table.library.partition(" ")[0]
    if library == "mpich":  # started before the validation, to read its own rules
        require_no_override(library_module(library).OVERRIDING_PATTERN)
    if library == "intelmpi" and not hosts.is_local:
        raise InputError("Intel MPI is validated on this computer alone: leave out --hosts")
    if library == "intelmpi":
        return _validate_intelmpi(table, python, wish, report)
    text, _ = format_for_library(library).emit(table, wish)
    starter = (
        local_launcher(table, python)
        if hosts.is_local
        else multi_host_launcher(table, python, hosts, template)
    )
    with shared_workdir(starter) as place:
        path = Path(place, "exported")
        path.write_text(text, encoding="utf-8")
        if library == "mpich":
            write_device_file(table, python, path)
        return validate_file(table, python, path, report, starter, wish.commutative_only)


def multi_host_launcher(
    table: TuningTable, python: Path, hosts: Hosts, template: LauncherTemplate | None
) -> MultiHostLauncher:
    """Return a launcher with as many ranks per host as the largest rule is for.

    Raises InputError where there are too few hosts, and for a table of another library.
    """
    library = base_of(table.library)
    starter = Launcher.find(library, python, template or default_template(library))
    _require_version(table, starter)
    nodes = max(key.nodes for key in table.keys)
    if nodes > len(hosts.names):
        raise InputError(
            f"the table has rules for {plural(nodes, 'host')}, more than the"
            f" {plural(len(hosts.names), 'host')} given: give more (--hosts)"
        )
    return MultiHostLauncher(starter, hosts, max(key.ppn for key in table.keys))


def local_launcher(table: TuningTable, python: Path) -> Launcher:
    """Return a launcher for the library of the table on this computer.

    Raises InputError for a table of another computer or another version of the library.
    """
    starter = Launcher.find(base_of(table.library), python)
    here = local_cluster()
    if table.cluster != here:
        raise InputError(
            f"the table is for {_name(table.cluster)}, but this is {_name(here)}: make a table"
            " here with `tuner quickstart`, or give its hosts (--hosts)"
        )
    _require_version(table, starter)
    return starter


def _require_version(table: TuningTable, starter: Launcher) -> None:
    python = starter.python
    if table.library != starter.version():
        raise InputError(
            f"the table is for {table.library}, but {python} runs {starter.version()}: give"
            " --python of an environment with that version, or make a new table"
        )


def _name(cluster: Cluster) -> str:
    return f"{cluster.name} ({cluster.nodes} x {cluster.cores} cores, {cluster.cpu})"


def validation_record(validation: RuleValidation) -> dict[str, Any]:
    """Return the record of a rule's validation, as reports and databases hold it."""
    rule = validation.rule
    return {
        "collective": rule.key.collective.value,
        "nodes": rule.key.nodes,
        "ppn": rule.key.ppn,
        "p": rule.key.p,
        "operators": rule.key.operators,
        "start_bytes": rule.start_bytes,
        "stop_bytes": "inf" if rule.stop_bytes == math.inf else rule.stop_bytes,
        "nbytes": validation.sizes[0] if validation.sizes else rule.start_bytes,
        "sizes": list(validation.sizes),
        "expected": str(rule.choice),
        "executed": ", ".join(dict.fromkeys(map(str, validation.executed))),
        "confirmed": validation.confirmed,
        "reason": validation.reason,
    }


def validation_rows(validations: Iterable[Mapping[str, Any]]) -> list[Sequence[str]]:
    """Return one table row per record, in the order of `VALIDATION_COLUMNS`."""
    return [
        (
            validation["collective"],
            str(validation["p"]),
            validation["operators"],
            format_range(validation["start_bytes"], float(validation["stop_bytes"])),
            format_sizes(validation["sizes"]),
            humanize(validation["expected"]),
            humanize(validation["executed"]),
            "yes" if validation["confirmed"] else f"no: {humanize(validation['reason'])}",
        )
        for validation in validations
    ]
