"""Make and prove a tuning table for each MPI library of this computer: measure its messages and
the calls that tell most, select, keep the rules that make a C program faster, compare with the
default at other sizes, write the tuning files, validate what then runs, and report."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import mpi_libraries
from tuner.base.atomic_io import require_writable_dir, write_atomically
from tuner.base.errors import InputError, ProbeError, UsageError
from tuner.base.file_lock import hold_lock
from tuner.base.spelling import unknown_name
from tuner.base.units import parse_duration
from tuner.cli.options.argument_types import count_option, file_option, measured_sizes_option
from tuner.cli.options.host_options import add_thread_level_option
from tuner.cli.quickstart_files import DATABASE, OUT, REPORT
from tuner.cli.terminal.output import finish_command, print_result
from tuner.cli.terminal.progress import Display, format_clock
from tuner.cli.views.quickstart_summary import print_results
from tuner.core.calibration import read_calibration
from tuner.db import (
    open_database,
    publish,
    store_calibration,
    store_heldout,
    store_measurements,
    store_table,
    store_validations,
    transaction,
)
from tuner.diagnosis import diagnose
from tuner.launch import Launcher, find_interpreter, inspect_interpreter
from tuner.mpi_libraries.profiles import profile_of
from tuner.probe.driver import default_ranks
from tuner.probe.probe_spec import spec_of_this_computer
from tuner.probe.single_host import COLLECTIVE_SIZES
from tuner.report import LibraryResult, summarise
from tuner.report.page import render_page
from tuner.sim.warmup import compile_within, is_compiled
from tuner.workflows.checkpoint import CHECKPOINT_FILE, StageCheckpoint
from tuner.workflows.quickstart import LibraryPipeline

EXAMPLES = """examples:
  tuner quickstart
  tuner quickstart --ranks 8 --budget 300s --out my-cluster
  tuner quickstart --libraries openmpi --restart
  tuner quickstart --python /opt/site/bin/python3

Interrupted, the same command without --restart resumes. Afterwards open tuner-out/report.html."""

LIBRARIES_BESIDE = [
    name for name in mpi_libraries.LIBRARY_MODULES if profile_of(name).interpreter is not None
]
MIN_BUDGET_S = 30.0  # seconds in which messages are measured and calls are simulated
LOCK_FILE = "quickstart.lock"  # held while a quickstart works in the directory
COMPILE_SECONDS = 65.0  # seconds for compiling the simulation, for the estimate
MAX_COMPILE_S = 600.0  # seconds; what is not compiled by then is compiled when it is needed
REPORT_SECONDS = 4.0  # seconds for writing the database and the plots, for the estimate
DEFAULT_BUDGET_S = 75.0  # seconds of measuring Open MPI: with all else well under five minutes


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIRECTORY")
    count_option(parser, "--ranks", "number of ranks (default: the cores, at least 4; mpich: 2)")
    parser.add_argument(
        "--budget",
        type=parse_duration,
        default=DEFAULT_BUDGET_S,
        help="maximum time to measure Open MPI and select (default:"
        f" {DEFAULT_BUDGET_S:.0f}s); a third of it for MPICH, but {MIN_BUDGET_S:.0f}s at least;"
        " trying the rules and comparing them take at most about twice as long, all else a minute",
    )
    measured_sizes_option(parser, ", such as 1KiB,64KiB")
    parser.add_argument(
        "--libraries",
        metavar="NAME,...",
        help="libraries to tune: openmpi, mpich or both (default: the MPI of this interpreter, and"
        " MPICH where .venv-mpich holds it)",
    )
    file_option(
        parser,
        "--python",
        "tune the MPI that this interpreter's mpi4py loads, and no other by default",
        metavar="PYTHON",
    )
    file_option(
        parser,
        "--mpich-python",
        "interpreter of the environment with MPICH (default: .venv-mpich/bin/python)",
        metavar="PYTHON",
    )
    add_thread_level_option(parser)
    parser.add_argument("--restart", action="store_true", help="measure again instead of going on")
    finish_command(parser, run, resumes=True)


def run(options: argparse.Namespace) -> None:
    """Run all stages for each library, store the tables, and write the report."""
    if options.ranks == 1:
        raise UsageError("one rank exchanges no messages: --ranks is at least 2")
    display, out = Display(), options.out
    beside = {name: getattr(options, f"{name}_python") for name in LIBRARIES_BESIDE}
    pythons = (
        _pythons_beside(options.python, beside, display)
        if options.libraries is None
        else _named_pythons(_libraries(options.libraries), options.python, beside, display)
    )
    require_writable_dir(out)
    with hold_lock(
        out / LOCK_FILE, f"`tuner quickstart` is at work in {out}", "or choose another --out"
    ):
        if options.restart:
            _remove(out)
        stages, sizes = StageCheckpoint(out), options.sizes or COLLECTIVE_SIZES
        loops = [
            LibraryPipeline(
                spec_of_this_computer(
                    name,
                    options.ranks or default_ranks(name),
                    sizes=sizes,
                    thread_level=options.thread_level,
                ),
                budget_of(name, options.budget),
                python,
                stages,
                display,
            )
            for name, python in pythons.items()
        ]
        results, record = _run_stages(loops, stages, display)
        print_result(options.json, record, lambda: print_results(out, results, record))


def budget_of(library: str, budget: float) -> float:
    """Return the seconds for a library: a share of the budget that suffices for simulations."""
    return min(budget, max(budget / profile_of(library).budget_divisor, MIN_BUDGET_S))


def _run_stages(
    loops: Sequence[LibraryPipeline], stages: StageCheckpoint, display: Display
) -> tuple[list[LibraryResult], Mapping[str, Any]]:
    """Run the stages of all libraries; return the results and the report that is written."""
    compiling = 0.0 if is_compiled() else COMPILE_SECONDS
    expected = sum(loop.expected_seconds for loop in loops)
    display.remaining_after = compiling + expected + REPORT_SECONDS
    display.note(
        f"about {format_clock(display.remaining_after)} for"
        f" {' and '.join(loop.title for loop in loops)}"
    )
    if compiling:
        with display.stage("compiling the simulation, once", compiling):
            compile_within(MAX_COMPILE_S)
    for loop in loops:
        loop.make_accepted_table()
    results = [loop.compare_and_validate() for loop in loops]
    with display.stage("writing database and report", REPORT_SECONDS):
        for loop, result in zip(loops, results, strict=True):
            _store(stages, loop, result)
        record = summarise(results)
        write_atomically(stages.out / "report.json", json.dumps(record, indent=1) + "\n")
        write_atomically(stages.out / REPORT, render_page(results))
    return results, record


def _remove(out: Path) -> None:
    """Delete an earlier result, recognised by its record; never any other directory."""
    entries = [path for path in out.iterdir() if path.name != LOCK_FILE]
    if entries and not (out / CHECKPOINT_FILE).is_file():
        raise InputError(f"{out} was not made by `tuner quickstart`: choose another --out")
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _named_pythons(
    names: Sequence[str], python: Path | None, beside: Mapping[str, Path | None], display: Display
) -> dict[str, Path]:
    """Return the interpreters of the named libraries; raise ProbeError if one cannot be tuned.

    python      interpreter that was named for all
    beside      interpreters that were named for one library
    """
    named = {name: find_interpreter(name, beside.get(name) or python) for name in names}
    for name in named:
        mpi_libraries.require_no_override(mpi_libraries.library_module(name).OVERRIDING_PATTERN)
    for name, own in named.items():
        _check_installation(own, display)
        Launcher.find(name, own)
    return named


def _pythons_beside(
    python: Path | None, beside: Mapping[str, Path | None], display: Display
) -> dict[str, Path]:
    """Return the interpreters of the library of `python` and of those found beside it."""
    own = find_interpreter("", python)
    _check_installation(own, display)
    found = {inspect_interpreter(own).base: own}
    for name, given in beside.items():
        if given is None and python is not None:
            continue
        other = find_interpreter(name, given)
        if given is None and not other.exists():
            display.note(
                f"{profile_of(name).title} is left out: it has no environment; name one"
                f" (--{name}-python), or create it with `make venv` in a checkout"
            )
        elif name not in found:
            _check_installation(other, display)
            found[name] = other
    return found


def _libraries(text: str) -> list[str]:
    wanted = text.split(",")
    unknown = sorted(set(wanted) - set(mpi_libraries.LIBRARY_MODULES))
    if unknown:
        raise UsageError(unknown_name("library", unknown[0], mpi_libraries.LIBRARY_MODULES))
    return wanted


def _check_installation(python: Path, display: Display) -> None:
    """Report problems of an interpreter's MPI; raise ProbeError for a fatal one."""
    for problem in diagnose(python).problems:
        if problem.fatal:
            raise ProbeError(str(problem))
        display.note(str(problem))


def _store(stages: StageCheckpoint, loop: LibraryPipeline, result: LibraryResult) -> None:
    """Publish the table in the database, as a new version unless it has an equal one."""
    database = stages.out / DATABASE

    def store() -> None:
        engine = open_database(f"sqlite:///{database}")
        with transaction(engine) as session:
            probe = store_measurements(session, result.measurements).id
            calibration = read_calibration(loop.path_of("calibration.json"))
            fitted = store_calibration(session, calibration, probe).id
            version = store_table(session, result.table, probe, fitted).id
            publish(session, version, "tuner quickstart")
            store_validations(session, version, result.validations)
            store_heldout(session, version, result.heldout)
        engine.dispose()

    names = ("measurements.ndjson", "calibration.json", "table.json", "validation.json")
    inputs = [loop.path_of(name) for name in (*names, "heldout.json")]
    stages.run(f"{loop.name}/store", inputs, [database], store)
