"""Builds of the preloaded library that observe it, and runs of C programs under them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.preload import SUPPORT, compiled, device_driver
from tests.support.waiting import patience
from tuner.launch import Launcher
from tuner.launch.failures import CompletedRun
from tuner.preload.compilation import SOURCES, compile_library

FAILING = (
    *("malloc", "calloc", "aligned_alloc", "PMPI_Comm_split", "PMPI_Comm_split_type"),
    *("PMPI_Comm_dup_with_info", "PMPI_Comm_set_attr", "MPI_T_cvar_write", "PMPI_Wtime"),
    *("MPI_T_init_thread", "fclose"),
)  # functions that tests/support/failing_calls.c wraps


def built(launcher: Launcher, folder: Path, *flags: str) -> Path:
    """Return the library, compiled with further flags, whose own calls can be made to fail."""
    assert launcher.compiler is not None
    wraps = ["-Wl," + ",".join(f"--wrap={name}" for name in FAILING)]
    folder.mkdir()
    target = folder / "libtuner.so"
    failing = str(SUPPORT / "failing_calls.c")
    compile_library(launcher.compiler, folder, target, ("-Werror", *flags, *wraps, failing))
    return target


def lines_reached(folder: Path) -> Counter[tuple[str, int]]:
    """Return how often each line of the library's sources was reached, by file and number.

    folder      that of a library which was compiled with `--coverage`
    """
    reached = Counter[tuple[str, int]]()
    for data in sorted(folder.glob("*.gcda")):
        command = ["gcov", "--json-format", "--stdout", str(data)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        for file in json.loads(done.stdout)["files"]:
            path = folder / file["file"]
            if path.parent in (SOURCES, folder):
                for line in file["lines"]:
                    reached[path.name, line["line_number"]] += line["count"]
    return reached


TableWriter = Callable[[str, int, Path], None]
"""Takes a library, a number of ranks and the path at which to write a flat file."""

VALGRIND = (
    *("valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect"),
    *("--xml=yes", "--xml-file=FOLDER/valgrind.%p.xml"),
)
SHORT = """\
bcast 64 0
bcast 63 0
allreduce 8 1
allreduce 8 0
reduce 8 1
allgather 6 0
allgather 8 0
barrier 0 0
"""


@dataclass(frozen=True)
class Situation:
    """A run of a program of this folder under the library.

    arguments       FOLDER in them and in the environment is that of the run
    write_table     None: there is no table
    on_rank_1       shell commands that rank 1 begins with
    prints          what is in the program's output
    says            what is on standard error
    libraries       those in which it makes a difference
    driver          name of a driver of devices, which is FOLDER/driver.so
    """

    program: str
    arguments: tuple[str, ...] = ()
    ranks: int = 3
    write_table: TableWriter | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    on_rank_1: str = ""
    prints: str = "No Errors"
    says: str = ""
    libraries: tuple[str, ...] = ("openmpi", "mpich")
    driver: str = ""

    def run(
        self, launcher: Launcher, preload: str, folder: Path, under: tuple[str, ...] = ()
    ) -> CompletedRun:
        """Run it; raise AssertionError where the program's results are not right.

        under       command that each rank is an argument of
        """

        def filled(text: str) -> str:
            return text.replace("FOLDER", str(folder))

        if self.driver:
            device_driver(folder, self.driver)
        command = [*map(filled, under), str(compiled(launcher, self.program, folder))]
        command += map(filled, self.arguments)
        if self.on_rank_1:
            first = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ]'
            begin = f'{first} || {{ {filled(self.on_rank_1)}; }}; exec "$@"'
            command = ["/bin/sh", "-c", begin, "sh", *command]
        (folder / "calls").write_text(SHORT)
        (folder / "many").write_text("".join(f"bcast {n} 0\n" for n in range(3000)))
        if self.write_table:
            self.write_table(launcher.version(), self.ranks, folder / "flat")
        done = launcher.run(
            self.ranks,
            command[1:],
            program=Path(command[0]),
            environment={
                **SHARED_CORES,
                "LD_PRELOAD": preload,
                "TUNER_FLAT_TABLE": str(folder / "flat") if self.write_table else "",
                "TUNER_REPORT": str(folder / "report"),
                **launcher.profile.environment(launcher.profile.start_settings(launcher.version())),
                "TUNER_TUNE_AFTER_US": "0",
                **{name: filled(value) for name, value in self.environment.items()},
            },
            timeout=patience(120),
            check=False,
        )
        said = f"{self}: {done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        assert self.prints in done.stdout, said
        assert filled(self.says) in done.stderr, said
        return done


@dataclass(frozen=True)
class Finding:
    """Keep the findings of Valgrind about a program.

    stacks      functions and objects, from the innermost one on, of where it is and of where the
                memory was allocated
    """

    what: str
    stacks: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def is_ours(self) -> bool:
        """Return whether an innermost function is the library's, but for Valgrind's own."""
        objects = (
            next((file for _, file in stack if "vgpreload" not in file), "")
            for stack in self.stacks
        )
        return any(file.endswith("libtuner.so") for file in objects)


def findings(folder: Path) -> list[Finding]:
    """Return those in the files that `VALGRIND` writes into a folder, one for each process."""
    found = []
    for path in sorted(folder.glob("valgrind.*.xml")):
        root = ElementTree.parse(path).getroot()
        assert root.findtext("status[last()]/state") == "FINISHED"
        for error in root.iter("error"):
            what = error.findtext("what") or error.findtext("xwhat/text")
            stacks = (
                tuple((one.findtext("fn", ""), one.findtext("obj", "")) for one in stack)
                for stack in error.iter("stack")
            )
            found.append(Finding(f"{error.findtext('kind')}: {what}", tuple(stacks)))
    return found
