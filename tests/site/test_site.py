"""With a distribution's MPI, what the README says to type: doctor, quickstart, prove, run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.site.conftest import WHEEL
from tests.support.ladders import table_of
from tests.support.overlay import Overlay
from tests.support.prepared import AWKWARD, NAMES, SHOWS, compile_words
from tests.support.site import WORK, Site
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, table_record
from tuner.probe.probed_machine import local_cluster

PROGRAM = Path(__file__).parents[1] / "mpi" / "unmodified_program.py"
TUNES = """
import numpy as np
from mpi4py import MPI
from tuner.runtime import tune
comm, total = tune(MPI.COMM_WORLD), np.zeros(1000)
comm.Allreduce(np.ones(1000), total)
assert (total == comm.size).all()
print(type(comm).__name__, MPI.Get_library_version().split(",")[0].split(chr(10))[0])
"""
FORCED = {  # algorithms that old versions have, too, and that are no defaults of all of these sizes
    "openmpi": {Collective.BCAST: "chain", Collective.ALLREDUCE: "nonoverlapping"},
    "mpich": {Collective.BCAST: "scatter_allgather", Collective.ALLREDUCE: "rabenseifner"},
}
OPERATORS = {Collective.BCAST: "any", Collective.ALLREDUCE: "commutative"}
RANKS = 2


def told_by_doctor(site: Site) -> dict[str, Any]:
    ran = site.tuner("doctor", "--python", site.python, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def library_of(site: Site) -> str:
    """The library's name in tables, by its package."""
    package = {"openmpi": "openmpi-bin", "mpich": "mpich"}[site.base]
    ran = site.run("dpkg-query", "--show", "--showformat=${source:Upstream-Version}", package)
    return f"{site.base} {ran.stdout.strip()}"


def table_for(site: Site, choices: dict[Collective, str], name: str) -> str:
    """Write a table that forces these algorithms at all sizes from 1 kB to 1 MB."""
    ladders = {
        (collective, RANKS, OPERATORS[collective]): [
            (0, AlgorithmChoice()),
            (1000, AlgorithmChoice(algorithm)),
            (1_000_000, AlgorithmChoice()),
        ]
        for collective, algorithm in choices.items()
    }
    library = library_of(site)
    table = TuningTable(local_cluster(), library, table_of(ladders, (8000,), library).rules)
    file = f"{WORK}/{name}.json"
    site.overlay.write(file, json.dumps(table_record(table)))
    return file


def started(site: Site, *words: str) -> list[str]:
    """The command of a user who starts two ranks: with the launcher that doctor found."""
    launcher = told_by_doctor(site)["findings"]["launcher"][0].partition(" ")[0]
    root = ["--allow-run-as-root"] if site.base == "openmpi" else []
    return [launcher, *root, "-np", str(RANKS), site.python, *words]


def test_doctor_finds_what_is_there(site: Site) -> None:
    told = told_by_doctor(site)
    name, _, version = library_of(site).partition(" ")
    assert told["problems"] == []
    assert told["findings"]["MPI"][0].startswith(
        f"{ {'openmpi': 'Open MPI', 'mpich': 'MPICH'}[name] } {version}"
    )
    assert told["findings"]["launcher"][0].endswith(f"({version})")
    assert told["findings"]["ranks"][0].startswith("2 start and meet")
    assert "compiles and links a program" in told["findings"]["compiler"][1]
    assert f"table export --format {name}" in told["findings"]["works"][1]


def test_quickstart_measures_tunes_and_proves(site: Site) -> None:
    out = f"{WORK}/out"
    site.run("rm", "-rf", out)
    ran = site.tuner(
        "quickstart",
        "--python",
        site.python,
        "--ranks",
        str(RANKS),
        "--budget",
        "30s",
        "--sizes",
        "64,64KiB",
        "--out",
        out,
        timeout=patience(18),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(site.run("cat", f"{out}/report.json").stdout)
    found = report["libraries"][site.base]
    assert found["library"] == library_of(site)
    assert found["rules_confirmed"] == found["rules_total"] > 0
    measured = site.run("cat", f"{out}/{site.base}/measurements.ndjson").stdout
    assert FORCED[site.base][Collective.ALLREDUCE] in measured


def test_rules_are_seen_at_work(site: Site) -> None:
    file = table_for(site, FORCED[site.base], "forced")
    own = ["--commutative-only"] if site.base == "openmpi" else []
    ran = site.tuner("table", "validate", file, "--python", site.python, *own, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    departing = [one for one in json.loads(ran.stdout) if one["expected"] != "default"]
    executed = {one["executed"].partition("(")[0] for one in departing}
    assert executed == set(FORCED[site.base].values())


def test_an_unmodified_program_follows_a_table(site: Site) -> None:
    """Without a word: what could not be forced would be said on standard error."""
    file = table_for(site, FORCED[site.base], "forced")
    level = ["--thread-level", "serialized"]  # by which MPICH's algorithms can be forced
    words = ["-m", "tuner.run", *level, "--table", file, str(PROGRAM), "end"]
    ran = site.run(*started(site, *words))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"__main__ end TunedIntracomm {PROGRAM.parent}\n"
    assert "tuner:" not in ran.stderr


def test_what_cannot_be_forced_is_left_to_the_library(site: Site) -> None:
    """Open MPI 4.1.4 was not started for it; MPICH 4.0 lacks the algorithm."""
    choices = {
        **FORCED[site.base],
        **({Collective.ALLREDUCE: "ring"} if site.base == "mpich" else {}),
    }
    site.overlay.write(f"{WORK}/tunes.py", TUNES)
    tabled = replace(
        site, environment={**site.environment, "TUNER_TABLE": table_for(site, choices, "beyond")}
    )
    ran = tabled.run(*started(site, f"{WORK}/tunes.py"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("TunedIntracomm") == RANKS
    assert "Traceback" not in ran.stderr
    if library_of(site) in ("openmpi 4.1.4", "mpich 4.0.2"):
        assert "tuner: " in ran.stderr


def test_the_wheel_alone_says_what_mpich_is_called_here(overlay: Overlay) -> None:
    wheel = Site(overlay, "mpich", f"{WHEEL}/bin/python", {"MPI4PY_MPIABI": "mpich"})
    ran = wheel.tuner("quickstart", "--python", wheel.python, "--out", f"{WORK}/never")
    assert ran.returncode == 1
    assert "looks for libmpi.so.12, which is not there" in ran.stderr
    assert wheel.run("test", "-e", f"{WORK}/never").returncode == 1


def test_the_launcher_hands_a_preload_to_the_ranks_alone(site: Site) -> None:
    """The distribution's Open MPI wants the options in both contexts of the command."""
    record = f"{WORK}/record"
    library = f"{record}/library.so"
    site.run("rm", "-rf", record)
    site.run("mkdir", record)
    built = site.run(*compile_words(Path(library), Path(record)))
    assert built.returncode == 0, built.stderr
    values = dict(zip(NAMES, (library, AWKWARD, "1"), strict=True))
    one = started(site, str(SHOWS), *NAMES)
    one[one.index("-np") + 1] = "1"
    command = [*one, ":", *one[one.index("-np") :]]
    given = [f"{name}={value}" for name, value in values.items()]
    ran = site.run(sys.executable, "-m", "tests.support.prepared", *given, "--", *command)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [values] * RANKS
    loaded = site.run("ls", record).stdout.split()
    assert len(loaded) == RANKS + 1
    assert {name.partition(".")[0] for name in loaded} == {"library", Path(site.python).name}
