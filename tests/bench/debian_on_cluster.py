"""A program of Debian on an emulated cluster: our table compared with the best one of a search.

    sudo python -m tests.bench.debian_on_cluster [petsc-cg] [--budget 3min] [--pairs 8]
        [--without-search]

The program and Debian's Open MPI are installed in an overlay of the file system. On eight emulated
hosts (`docs/examples/flat8.yaml`) it does what a user does: `tuner record` finds the calls of the
program, `tuner tune --profile` makes a table for them, and `tuner run` follows it. Then the program
runs under every algorithm that was measured, twice in random order, for each kind of call that is
at least a twentieth of the calls, with all others left to the library; the fastest ones make the
best table. At last runs under our table, the best one and none alternate. Prints the seconds of the
whole program, the ratios of none and of ours to the best table with their intervals, and by how
much the results differ from those without a table. `--without-search` leaves out the best table,
and gives the ratio of none to ours.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tests.bench.program_on_cluster import (
    HOSTS,
    ROUNDS,
    TOPOLOGY,
    Kind,
    P,
    measured_choices,
    table_for,
)
from tests.programs.programs import PROGRAMS, Program
from tests.programs.results import largest_difference
from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.site import ROOT, WORK, Site, install, project_overlay
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.speedup import paired_speedup
from tuner.core.table import AlgorithmChoice, TuningTable, table_from_record, table_record

PACKAGES = (
    *("openmpi-bin", "libopenmpi-dev", "python3-mpi4py", "python3-numpy", "gcc", "libc6-dev"),
    "time",
)
ENVIRONMENT = {
    **SHARED_CORES,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}
PYTHON = "/usr/bin/python3"  # its mpi4py has Debian's Open MPI
LEAST_SHARE = 0.05  # of the calls, from which on the algorithms of a kind are searched
LIMIT_S = 1800.0
TRIED = "tried.json"


@dataclass(frozen=True)
class TimedRun:
    """The seconds of a run of a program, and its results as text."""

    seconds: float
    results: str


@dataclass(frozen=True)
class Bench:
    """A program on emulated hosts, with its files in `folder` of the overlay."""

    site: Site
    program: Program
    folder: str

    def prepare(self) -> None:
        """Install the program and its input."""
        install(self.site.overlay, self.program.packages)
        inputs = ROOT / "tests" / "programs" / "inputs" / self.program.inputs
        copied = f"cp -r {inputs}/. ." if self.program.inputs else "true"
        shell = f"mkdir -p {self.folder} && cd {self.folder} && {copied}"
        self._run("sh", "-c", f"{shell} && {self.program.prepare or 'true'}", folder=WORK)

    @property
    def command(self) -> list[str]:
        timed = ["time", "--format=%e", "--output=seconds"]
        return [*timed, "mpirun", "-n", str(P), *self.program.command]

    def on_hosts(self, *words: str) -> str:
        """Run a command of `tuner` on the first host; return what it prints."""
        tuner = [sys.executable, "-m", "tuner.cli.main"]
        return self._run(*tuner, "emulate", "run", str(TOPOLOGY), "--", *tuner, *words)

    def run(self, table: TuningTable | None) -> TimedRun:
        """Run the program under a table; exit where its results do not pass its own check."""
        source = []
        if table is not None:
            self.site.overlay.write(f"{self.folder}/{TRIED}", json.dumps(table_record(table)))
            source = ["--table", TRIED]
        if self.program.output:
            self._run("rm", "-f", self.program.output)
        printed = self.on_hosts("run", "--quiet", *source, "--", *self.command)
        results = self.read(self.program.output) if self.program.output else printed
        if not re.search(self.program.passes, results, re.MULTILINE):
            sys.exit(f"the results have no {self.program.passes!r}:\n{results[-3000:]}")
        return TimedRun(float(self.read("seconds")), results)

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return self._run("cat", name)

    def _run(self, *words: str, folder: str = "") -> str:
        done = self.site.run(*words, timeout=LIMIT_S, folder=folder or self.folder)
        if done.returncode:
            sys.exit(f"{' '.join(words)} fails:\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout


def kinds_of(profile: str) -> list[Kind]:
    """Return the kinds of calls that are frequent in a profile, the most frequent ones first."""
    calls = Counter[Kind]()
    for one in json.loads(profile)["calls"]:
        calls[Collective(one["collective"]), one["nbytes"]] += one["calls"]
    return [kind for kind, n in calls.most_common() if n >= LEAST_SHARE * calls.total()]


def measurements_of(bench: Bench) -> Measurements:
    """Return what `tuner tune` measured in the overlay."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "m.ndjson")
        path.write_text(bench.read("m.ndjson"))
        return read_measurements(path)


def search(bench: Bench, kinds: Sequence[Kind]) -> TuningTable:
    """Run the program under every algorithm for each kind of call; return the best table."""
    found = measurements_of(bench)
    library, choices = found.library, measured_choices(found)
    kinds = [kind for kind in kinds if choices[kind[0]]]  # of which nothing was measured
    trials = [(kind, choice) for kind in kinds for choice in choices[kind[0]]] * ROUNDS
    seconds: dict[Kind, dict[AlgorithmChoice, list[float]]] = {kind: {} for kind in kinds}
    for kind, choice in random.sample(trials, len(trials)):
        taken = bench.run(table_for({kind: choice}, library)).seconds
        seconds[kind].setdefault(choice, []).append(taken)
    best = {}
    for kind, tried in seconds.items():
        ranked = sorted(tried, key=lambda choice: mean(tried[choice]))
        best[kind] = ranked[0]
        shown = ", ".join(f"{choice} {mean(tried[choice]):.2f} s" for choice in ranked[:5])
        print(f"{kind[0]} {kind[1]} bytes, {len(ranked)} algorithms: {shown}", flush=True)
    return table_for(best, library)


def compare(bench: Bench, others: Mapping[str, TuningTable | None], pairs: int) -> None:
    """Run the program under our table and others in turn; print the times, ratios and results.

    others      name -> table; all are compared with the last of them, or none with ours
    """
    ours, program = table_from_record(json.loads(bench.read("table.json"))), bench.program
    sides = {"none": None, "ours": ours, **others}
    runs: dict[str, list[TimedRun]] = {name: [] for name in sides}
    for _ in range(pairs):
        for name in random.sample([*sides], len(sides)):
            runs[name].append(bench.run(sides[name]))
    times = {name: [(run.seconds,) for run in some] for name, some in runs.items()}
    print(", ".join(f"{name} {mean(run for (run,) in some):.2f} s" for name, some in times.items()))
    *names, last = sides
    for name in names:
        ratio, low, high = paired_speedup(times[name], times[last])
        print(f"{name} over {last}: {ratio:.3f} ({low:.3f} to {high:.3f})")
    first, *again = runs.pop("none")
    for name, some in {**runs, "none again": again}.items():
        found = (largest_difference(first.results, one.results, program.compared) for one in some)
        print(f"results with {name}: different by at most {max(found):.1e}")


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = {program.name: program for program in PROGRAMS}
    parser.add_argument("program", nargs="?", choices=known, default="petsc-cg")
    parser.add_argument("--budget", default="3min")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--without-search", action="store_true")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("--pairs must be at least 2, for intervals and for results without a table")
    with (
        tempfile.TemporaryDirectory(prefix="tuner-debian-") as scratch,
        project_overlay(Path(scratch), PACKAGES) as overlay,
    ):
        site = Site(overlay, "openmpi", PYTHON, ENVIRONMENT)
        bench = Bench(site, known[options.program], f"{WORK}/{options.program}")
        bench.prepare()
        profile = ["--no-guidelines", "--out", "program.profile"]
        print(bench.on_hosts("record", *profile, "--", *bench.command), flush=True)
        files = ["--measurements", "m.ndjson", "--calibration", "c.json", "--out", "table.json"]
        files += ["--topology", str(TOPOLOGY), "--profile", "program.profile", "--python", PYTHON]
        bench.on_hosts("tune", "--hosts", HOSTS, "--budget", options.budget, *files)
        others = {}
        if not options.without_search:
            others["best"] = search(bench, kinds_of(bench.read("program.profile")))
        compare(bench, others, options.pairs)


if __name__ == "__main__":
    main()
