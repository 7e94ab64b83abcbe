"""The whole loop on this computer: probe the real MPI libraries, calibrate, simulate, select,
write their tuning files, prove what then runs, time tuned against default, report."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from tuner import libraries
from tuner.cli import parsing
from tuner.cli.environments import interpreter
from tuner.cli.loop import LibraryLoop
from tuner.cli.output import add_json, console
from tuner.cli.progress import Display, clock
from tuner.cli.results import print_results
from tuner.cli.stages import RECORD, Stages
from tuner.cost import read_calibration
from tuner.db import (
    open_database,
    publish,
    store_calibration,
    store_heldout,
    store_measurements,
    store_proofs,
    store_table,
    transaction,
)
from tuner.errors import InputError
from tuner.files import require_folder, write_atomically
from tuner.report import LibraryResult, render_page, summarise
from tuner.units import parse_duration

EXAMPLES = """examples:
  tuner quickstart
  tuner quickstart --ranks 8 --budget 300s --out my-cluster
  tuner quickstart --libraries openmpi --fresh

Interrupted, the same command without --fresh resumes. Afterwards open tuner-out/report.html."""

REPORT_SECONDS = 4.0  # writing the database and the plots, for the estimate
BUDGET = 85.0  # seconds of probing Open MPI: with everything else well under six minutes
SMALLER = 3.0  # MPICH has fewer algorithms, and comparing has fewer points, by this factor


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", type=Path, default=Path("tuner-out"), metavar="DIRECTORY")
    parser.add_argument(
        "--ranks", type=parsing.positive, help="default: the cores, at least 4 (mpich: 2)"
    )
    parser.add_argument(
        "--budget", type=parse_duration, default=BUDGET,
        help=f"time to probe Open MPI (default: {BUDGET:.0f}s); the rest takes about as long again",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", type=parsing.sizes, help="such as 1KiB,64KiB (default: 4B to 4MiB)"
    )
    parser.add_argument(
        "--libraries", default="openmpi,mpich",
        help="comma list (default: openmpi,mpich; mpich only where its environment exists)",
    )  # fmt: skip
    parser.add_argument(
        "--mpich-python", type=Path, metavar="PYTHON",
        help="interpreter of the environment with MPICH (default: .venv-mpich/bin/python)",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="measure again, keep nothing")
    add_json(parser)
    parser.set_defaults(run=run, resumes=True)


def run(options: argparse.Namespace) -> None:
    """Run the loop for each library, store, report."""
    if options.ranks == 1:
        raise InputError("one rank has nobody to talk to: --ranks is at least 2")
    require_folder(options.out)
    wanted = _libraries(options.libraries)
    for name in wanted:
        libraries.require_unset(libraries.named(name).DECIDING)
    display = Display(console(error=True))
    if options.fresh:
        _remove(options.out)
    stages = Stages(options.out)
    loops = _loops(options, wanted, stages, display)
    display.later = sum(loop.expected for loop in loops) + REPORT_SECONDS
    display.note(f"about {clock(display.later)} for {' and '.join(loop.title for loop in loops)}")
    results = [loop.run() for loop in loops]
    with display.stage("writing database and report", REPORT_SECONDS):
        for loop, result in zip(loops, results, strict=True):
            _store(stages, loop, result)
        record = summarise(results)
        write_atomically(options.out / "report.json", json.dumps(record, indent=1) + "\n")
        write_atomically(options.out / "report.html", render_page(results))
    if options.json:
        print(json.dumps(record, indent=1))
    else:
        print_results(options.out, results, record)


def _remove(out: Path) -> None:
    """Delete an earlier result, recognised by its record; never any other directory."""
    if not out.exists():
        return
    if not (out / RECORD).is_file():
        raise InputError(f"{out} was not made by `tuner quickstart`: choose another --out")
    shutil.rmtree(out)


def _libraries(text: str) -> list[str]:
    wanted = text.split(",")
    unknown = sorted(set(wanted) - {"openmpi", "mpich"})
    if unknown:
        raise InputError(f"there is no library {unknown[0]!r}; known: openmpi, mpich")
    return wanted


def _loops(
    options: argparse.Namespace, wanted: Sequence[str], stages: Stages, display: Display
) -> list[LibraryLoop]:
    given = {"openmpi": None, "mpich": options.mpich_python}
    budgets = {"openmpi": options.budget, "mpich": options.budget / SMALLER}
    loops = []
    for name in wanted:
        python = interpreter(name, given[name])
        if name == "mpich" and given[name] is None and len(wanted) > 1 and not python.exists():
            display.note("MPICH is left out: it has no environment; `make venv` makes one")
            continue
        loops.append(
            LibraryLoop(name, python, stages, display, options.ranks, options.sizes, budgets[name])
        )
    return loops


def _store(stages: Stages, loop: LibraryLoop, result: LibraryResult) -> None:
    """Publish the table in the database, as a new version unless an equal one is in it."""
    database = stages.out / "tuner.sqlite"

    def store() -> None:
        engine = open_database(f"sqlite:///{database}")
        with transaction(engine) as session:
            probe = store_measurements(session, result.measurements).id
            calibration = read_calibration(loop.file("calibration.json"))
            fitted = store_calibration(session, calibration, probe).id
            version = store_table(session, result.table, probe, fitted).id
            publish(session, version, "tuner quickstart")
            store_proofs(session, version, result.proofs)
            store_heldout(session, version, result.heldout)
        engine.dispose()

    inputs: Sequence[Path] = [
        loop.file(name)
        for name in ("measurements.ndjson", "calibration.json", "table.json", "proofs.json",
                     "heldout.json")
    ]  # fmt: skip
    stages.run(f"{loop.name}/store", inputs, [database], store)
