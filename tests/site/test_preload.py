"""Programs in C and Fortran follow a table with the MPI of a distribution."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.overlay import Overlay
from tests.support.site import HOME, WORK, Site
from tests.support.waiting import patience

SUPPORT = Path(__file__).parents[1] / "support"
RANKS = 3
BINDINGS = {1: "mpif.h", 2: "mpi", 3: "mpi_f08"}
BUILD = f"""
import sys
from pathlib import Path
from tests.support.mpich_suite import preload_tables
from tuner.preload.compilation import build_library
from tuner.preload.flat_table import write_flat_table
built = build_library(Path("/usr/bin", sys.argv[1]))
table = preload_tables(built.library, {RANKS})[sys.argv[2]]
assert write_flat_table(table, Path(sys.argv[3])) == []
print(built.path)
"""
COUNT = """
import sys
from collections import Counter
from pathlib import Path
from tuner.preload.report import flat_rules, read_counts
counts, calls = read_counts(Path(sys.argv[2])), Counter()
for rule in flat_rules(Path(sys.argv[1]).read_bytes()):
    calls[rule.key.collective.value] = max(calls[rule.key.collective.value], counts[rule.number])
print(*(name for name, number in calls.items() if number))
"""


def compiled(site: Site) -> dict[str, str]:
    """Compile the programs; return the path of each, by language."""
    flags = ["-O1", "-w"]
    source = SUPPORT / "collectives_program.c"
    commands = {"C": [f"mpicc.{site.base}", *flags, str(source)]}
    for number, binding in BINDINGS.items():
        commands[binding] = [
            *(f"mpifort.{site.base}", *flags, "-fallow-argument-mismatch"),
            *(f"-DBINDING={number}", str(SUPPORT / "fortran_program.F90")),
        ]
    made = {}
    for place, (language, command) in enumerate(commands.items()):
        made[language] = f"{WORK}/{site.base}-{place}"
        done = site.run(*command, "-o", made[language])
        assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("name", ["schedule", "forced"])
@pytest.mark.parametrize("base", ["openmpi", "mpich"])
def test_programs_of_each_language_follow(overlay: Overlay, base: str, name: str) -> None:
    site = Site(overlay, base, sys.executable)
    flat, report = f"{WORK}/{base}-{name}.flat", f"{WORK}/{base}-{name}.report"
    built = site.run(sys.executable, "-c", BUILD, f"mpicc.{base}", name, flat, timeout=patience(30))
    assert built.returncode == 0, built.stderr
    following = {
        "LD_PRELOAD": built.stdout.strip(),
        "TUNER_FLAT_TABLE": flat,
        "TUNER_REPORT": report,
        "TUNER_TUNE_AFTER_US": "0",
        "TUNER_QUIET": "1",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    follower = replace(site, environment={**SHARED_CORES, **following, "HOME": HOME})
    root = ["--allow-run-as-root"] if base == "openmpi" else []
    for language, program in compiled(site).items():
        site.run("rm", "-f", report)
        ran = follower.run(f"mpirun.{base}", *root, "-n", str(RANKS), program, timeout=patience(30))
        assert (ran.returncode, ran.stdout.strip()) == (0, "No Errors"), (language, ran.stderr)
        assert "tuner:" not in ran.stderr
        seen = site.run(sys.executable, "-c", COUNT, flat, report).stdout.split()
        wanted = (
            {"allreduce"}
            if (base, name) == ("mpich", "forced")
            else {"allreduce", "bcast", "barrier"}
        )
        assert {*seen} >= wanted, (language, seen)
