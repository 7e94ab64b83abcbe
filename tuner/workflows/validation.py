"""Run the real library under a table's file, and check which algorithms it executes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.progress import StageCallback, progress_from_counts
from tuner.base.units import format_range, format_sizes, humanize, plural
from tuner.core.measurement import Cluster, provenance_texts
from tuner.core.table import TuningTable
from tuner.formats.env_format import rank_counts
from tuner.formats.registry import DEFAULT_OPTIONS, FORMATS, ExportOptions, Format
from tuner.launch import LOCAL_HOST, Hosts, Launcher, LauncherTemplate, MultiHostLauncher
from tuner.launch.shared_directory import shared_directory
from tuner.launch.template import default_template
from tuner.mpi_libraries import LIBRARY_MODULES, library_module, require_no_override
from tuner.mpi_libraries.products import base_of
from tuner.probe.probed_machine import is_this_computer, local_cluster
from tuner.validation.libraries import TUNED_LIBRARIES, VALIDATED_LIBRARIES, ValidatedLibrary
from tuner.validation.validation import RuleValidation

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


def validate_file(
    table: TuningTable,
    python: Path,
    native_file: Path,
    report: StageCallback,
    starter: Launcher | MultiHostLauncher | None = None,
    options: ExportOptions = DEFAULT_OPTIONS,
) -> list[dict[str, Any]]:
    """Validate the rules of a file that was written with `options`; return one record per rule.

    starter     launcher of ranks on several hosts; None: on this computer

    Raises InputError for a table of another computer or library.
    """
    starter = starter or local_launcher(table, python)
    library, progress = VALIDATED_LIBRARIES[starter.library], progress_from_counts(report)
    with shared_directory(not isinstance(starter, MultiHostLauncher)) as place:
        found = library.validate(table, native_file, starter, place, options, progress)
    return [validation_record(validation) for validation in found]


def validated_library(library: str) -> ValidatedLibrary:
    """Return the library of a table.

    Raises InputError for a library that cannot be started, and for a version whose files cannot be
    validated.
    """
    name = library.partition(" ")[0]
    if name not in VALIDATED_LIBRARIES:
        reasons = (each.not_validated for each in FORMATS.values() if name in each.libraries)
        raise InputError(next(reasons, f"{name} cannot be started here"))
    if reason := VALIDATED_LIBRARIES[name].unsupported_reason(library):
        raise InputError(reason)
    return VALIDATED_LIBRARIES[name]


def validate_exported(
    table: TuningTable,
    python: Path,
    wish: ExportOptions,
    report: StageCallback,
    hosts: Hosts = LOCAL_HOST,
    template: LauncherTemplate | None = None,
) -> list[dict[str, Any]]:
    """Export to temporary files and validate them; return one record per rule.

    hosts       hosts on which ranks are started, with `template`

    Raises InputError for a library that cannot be validated.
    """
    profile = validated_library(table.library).profile
    if profile.name in LIBRARY_MODULES:  # it is started before the validation, too
        require_no_override(library_module(profile.name).OVERRIDING_PATTERN)
    if not (hosts.is_local or profile.validates_on_hosts):
        raise InputError(f"{profile.title} is validated on this computer alone: leave out --hosts")
    form = FORMATS[profile.name]
    files = [(each, form.emit(table, each)[0]) for each in _options_of_files(table, wish, form)]
    starter = (
        local_launcher(table, python)
        if hosts.is_local
        else multi_host_launcher(table, python, hosts, template)
    )
    validations = list[dict[str, Any]]()
    with shared_directory(hosts.is_local) as place:
        path = place / "exported"
        for options, text in files:
            path.write_text(text, encoding="utf-8")
            if profile.name in TUNED_LIBRARIES:
                TUNED_LIBRARIES[profile.name].write_further_file(
                    table, path, python, commutative_only=options.commutative_only
                )
            validations += validate_file(table, python, path, report, starter, options)
    return validations


def _options_of_files(
    table: TuningTable, options: ExportOptions, form: Format
) -> Iterator[ExportOptions]:
    """Yield the options of each file that the rules need: some formats hold one number of ranks."""
    if "ranks" not in form.used_options or options.ranks is not None:
        yield options
        return
    for ranks in rank_counts(table):
        yield replace(options, ranks=ranks)


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
    if not is_this_computer(table.cluster, hosts_of(table)):
        raise InputError(
            f"the table is for {_name(table.cluster)}, but this is {_name(here)}: make a table"
            " here with `tuner quickstart`, or give its hosts (--hosts)"
        )
    _require_version(table, starter)
    return starter


def hosts_of(table: TuningTable) -> list[str]:
    """Return the names of the hosts that a table was measured on, as far as it says."""
    probe = table.provenance.get("probe")
    return provenance_texts(probe, "hosts") if isinstance(probe, Mapping) else []


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
