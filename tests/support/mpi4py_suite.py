"""mpi4py's own tests, from its source distribution, with and without the dispatcher.

python -m tests.support.mpi4py_suite        download the source distribution
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.support.ladders import Rungs, table_of
from tests.support.waiting import patience
from tuner import algorithms, mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable, write_table
from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TUNER_MPI4PY_SUITE", ROOT / "build" / "mpi4py-suite"))
PROGRAM = ROOT / "tests" / "mpi4py_suite" / "suite_program.py"
TOPOLOGIES = ("testCartcomm", "testGraphcomm", "testDistgraphcomm", "testDistgraphcommAdjacent")
# They ask whether a new object of mpi4py for the same communicator, `MPI.Comm.fromint(...)`, is of
# exactly the same class. A tuned communicator is of a class derived from mpi4py's, since mpi4py's
# own cannot be given other methods.
EXACT_CLASS = {
    "test_objmodel.TestObjModel.testHandle",
    *(f"test_comm_topo.TestTopoWorld{dup}.{name}" for dup in ("", "Dup") for name in TOPOLOGIES),
}
# They start an agreement and then a barrier on one rank, and on the others the reverse. MPI wants
# collectives in the same order on all ranks (4.1, 6.12): under a table Open MPI hangs in the
# creation of our communicator, which the barrier begins with.
LEFT_OUT = "test_ulfm"
# MPICH's ranks spin in `MPI_Win_lock` until the target makes a call itself, these in `Parrived`,
# and in the library's own exchanges over files: with more ranks than cores they take from minutes
# to over half an hour. Their only collective is a barrier.
SPINNING = "test_rma|test_p2p_buf_part|test_io"
STEPS = (0, 8, 16, 32, 64, 128, 256, 512)  # bytes from which on a table has another choice
SHARED_CORES = {  # ranks that wait let others work, and more can be spawned than there are cores
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SEGMENT = 24  # bytes: some of the messages of the tests are longer


@dataclass(frozen=True)
class Outcome:
    """What all ranks of one run came to.

    ran         tests on each rank
    failed      by name, with the last line of what was wrong on any rank
    log         lines of the log of `tuner`
    """

    ran: int
    skipped: int
    failed: dict[str, str]
    log: list[str]


def directory() -> Path:
    """Return where the tests are; raises FileNotFoundError, which says how to get them."""
    found = CACHE / f"mpi4py-{version('mpi4py')}" / "test"
    if not (found / "main.py").is_file():
        raise FileNotFoundError(f"{found} is not there: get it with `make test-mpi4py`")
    return found


def download() -> Path:
    """Return the same after a download, where that is needed; raises OSError without a network."""
    try:
        return directory()
    except FileNotFoundError:
        CACHE.mkdir(parents=True, exist_ok=True)
    wanted = f"mpi4py=={version('mpi4py')}"
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "mpi4py",
            "--dest",
            place,
            wanted,
        ]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        archives = [*Path(place).glob("*.tar.gz")]
        if done.returncode or not archives:
            last = (done.stderr.strip().splitlines() or ["no source distribution"])[-1]
            raise OSError(f"{wanted} cannot be downloaded: {last}")
        shutil.unpack_archive(archives[0], CACHE)
    return directory()


def run_suite(
    launcher: Launcher,
    ranks: int,
    table: Path | None,
    *arguments: str,
    timeout: float = patience(300),
    preload: Mapping[str, str] | None = None,
) -> Outcome:
    """Run tests on ranks, under the dispatcher where there is a table.

    arguments   as of the suite's own main program: `-i REGEX` for some modules, `-e REGEX` for all
                but some; without any, all but LEFT_OUT and, where cores lack, SPINNING
    preload     variables of ranks with the preloaded library; None: without it
    """
    way = ["-m", "mpi4py"] if table is None else ["-m", "tuner.run", "--table", str(table)]
    with tempfile.TemporaryDirectory(prefix="tuner-") as place:
        run = launcher.run(
            ranks,
            [*way, str(PROGRAM), str(directory()), place, *(arguments or _usual(launcher, ranks))],
            timeout=timeout,
            environment={**SHARED_CORES, **(preload or {})},
            check=False,
        )
        told = [json.loads(path.read_text()) for path in sorted(Path(place).glob("*.json"))]
    log = [line for line in run.stderr.splitlines() if line.startswith("tuner: ")]
    if len(told) != ranks or run.returncode not in (0, 1):
        raise AssertionError(
            f"{len(told)} of {ranks} ranks ended, status {run.returncode}: {run.stderr[-3000:]}"
        )
    failed = {name: reason for one in told for name, reason in one["failed"].items()}
    return Outcome(told[0]["ran"], told[0]["skipped"], failed, log)


def _usual(launcher: Launcher, ranks: int) -> tuple[str, str]:
    """Return the arguments that leave out what no run of so many ranks has time for."""
    spinning = launcher.version().startswith("mpich") and ranks > len(os.sched_getaffinity(0))
    return "-e", f"{LEFT_OUT}|{SPINNING}" if spinning else LEFT_OUT


@contextmanager
def written(table: TuningTable) -> Iterator[Path]:
    """Write a table for the time of a run."""
    with tempfile.TemporaryDirectory(prefix="tuner-") as place:
        path = Path(place, "table.json")
        write_table(table, path)
        yield path


def tables(library: str, ranks: int) -> dict[str, TuningTable]:
    """Return tables for 1 to `ranks` ranks by name, each with many choices for short messages.

    schedule    every call goes to a schedule of ours
    forced      every call that the library can be made to carry out by a given algorithm
    mixed       both, and the library's own choice, in turn
    """
    made: dict[str, dict[tuple[Collective, int, str], Rungs]] = {}
    for p in range(1, ranks + 1):
        for collective in Collective:
            for operators in ("any", "commutative") if collective.is_reduction else ("any",):
                ours = schedules(collective)
                forced = forced_choices(library, collective, p, operators) or [AlgorithmChoice()]
                mixed = [
                    one
                    for pair in zip(ours, _repeated(forced, len(ours)), strict=True)
                    for one in (*pair, AlgorithmChoice())
                ]
                key = (collective, p, operators)
                for name, choices in (("schedule", ours), ("forced", forced), ("mixed", mixed)):
                    made.setdefault(name, {})[key] = _rungs(choices, first=p)
    return {name: table_of(ladders, library=library) for name, ladders in made.items()}


def schedules(collective: Collective) -> list[AlgorithmChoice]:
    """Return our algorithms, with short segments; the default where none of ours runs the calls."""
    if collective.is_ragged:
        return [AlgorithmChoice()]
    found = []
    for name in algorithms.algorithm_names(collective):
        segmented = "segment" in algorithms.describe(collective, name).params
        found.append(AlgorithmChoice(name, {"segment": SEGMENT} if segmented else {}, SCHEDULE))
    return found


def forced_choices(
    library: str, collective: Collective, p: int, operators: str
) -> list[AlgorithmChoice]:
    """Return the library's algorithms that can be forced for such calls."""
    known, found = mpi_libraries.library_module(library), []
    for name in known.ALGORITHMS.get(collective, ()):
        segmented = (
            library.startswith("mpich") and known.ALGORITHMS[collective][name].segment_parameter
        )
        choice = AlgorithmChoice(name, {"segment": 64} if segmented else {})
        refused = known.unsupported_reason(collective, choice, p)
        if name == "default" or refused or (name == "neighbor_exchange" and p % 2):
            continue
        if operators == "any" and not known.preserves_operand_order(collective, choice):
            continue
        try:
            known.settings(collective, choice)
        except InputError:  # it gives wrong results in place
            continue
        found.append(choice)
    return found


def _rungs(choices: Sequence[AlgorithmChoice], first: int) -> Rungs:
    """A choice for each step of sizes; another first one for each number of ranks."""
    several = _repeated([*choices[first % len(choices) :], *choices], len(STEPS))
    return list(zip(STEPS, several, strict=True))


def _repeated(choices: Sequence[AlgorithmChoice], number: int) -> list[AlgorithmChoice]:
    return [choices[place % len(choices)] for place in range(number)]


if __name__ == "__main__":
    try:
        print(download())
    except OSError as reason:
        sys.exit(f"mpi4py's tests are left out: {reason}")
