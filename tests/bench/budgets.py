"""Check that `tuner tune --hosts` ends with a table, and in time, whatever its budget is:

    sudo python -m tests.bench.budgets RESULTS.ndjson [--for 4min] [--loads 1,8] [--numbers 3,9]

Emulated clusters of 2 to 8 hosts with one or two ranks each, 10 to 400 Mbit/s, 20 to 400 us, under
Open MPI and MPICH, with budgets of half a minute to ten minutes, most of them short: a
space-filling design of 40 runs with a fixed seed. A run is good if it ends with a table file within
its budget, a tenth of it and five seconds. Runs that RESULTS.ndjson holds are not repeated, so the
bench may be done in pieces: `--for` begins no run that may end later. `--loads` repeats the runs
beside so many processes that compute all the time. `--cold` begins without a compiled simulation.
One line is printed for each run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import qmc

from tests.conftest import MPICH_PYTHON
from tests.emulation.topologies import private_cluster
from tuner.base.units import parse_duration
from tuner.core.measurement import read_measurements
from tuner.core.table import read_table
from tuner.emulation import launch

SEED = 46
RUNS = 40
HOSTS = (2, 8)
BANDWIDTH = (10.0, 400.0)
LATENCY = (20.0, 400.0)
BUDGET = (30.0, 600.0)
SHORT = 4.0  # exponent: half of the budgets are below 40 s
ALLOWED = 1.1, 5.0  # times the budget, and seconds more
STARTING = 15.0  # seconds of a run beside its budget: bringing up the cluster, and taking it down
LOAD = [sys.executable, "-c", "import time\nend = time.time() + 900\nwhile time.time() < end: pass"]


@dataclass(frozen=True)
class Run:
    """One run: cluster and budget (Mbit/s, us, s)."""

    number: int
    library: str
    hosts: int
    ppn: int
    bandwidth: float
    latency: float
    budget: float
    load: int
    cold: bool = False

    @property
    def topology(self) -> str:
        """Return the topology file."""
        return (
            f"{{name: budget{self.number}, nodes: {self.hosts}, latency: {self.latency:g}us,"
            f" bandwidth: {self.bandwidth:g}Mbit/s}}"
        )

    def __str__(self) -> str:
        load = f" load {self.load}" * (self.load > 0) + " cold" * self.cold
        return (
            f"{self.number:2} {self.library:7} {self.hosts}x{self.ppn} {self.bandwidth:3.0f} Mbit/s"
            f" {self.latency:3.0f} us{load}: budget {self.budget:3.0f} s"
        )


def runs(cold: bool) -> list[Run]:
    """Return the design."""
    design = qmc.LatinHypercube(6, seed=SEED, optimization="random-cd").random(RUNS)
    return [
        Run(
            number,
            ("openmpi", "mpich")[int(2 * library)],
            HOSTS[0] + int(hosts * (HOSTS[1] - HOSTS[0] + 1)),
            1 + int(2 * ppn),
            round(_between(BANDWIDTH, bandwidth)),
            round(_between(LATENCY, latency)),
            round(_between(BUDGET, budget**SHORT)),
            0,
            cold,
        )
        for number, (library, hosts, ppn, bandwidth, latency, budget) in enumerate(design)
    ]


def _between(bounds: tuple[float, float], part: float) -> float:
    """Return what lies so far between two bounds, on a logarithmic scale."""
    low, high = bounds
    return float(low * (high / low) ** part)


@contextmanager
def loaded(number: int) -> Iterator[None]:
    """Have so many processes compute all the time."""
    busy = [subprocess.Popen(LOAD) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def carried_out(run: Run, folder: Path) -> dict[str, Any]:
    """Tune the emulated cluster; return what came of it."""
    (folder / "topology.yaml").write_text(run.topology)
    hosts = ",".join(f"node{number}" for number in range(run.hosts))
    python = [] if run.library == "openmpi" else ["--python", str(MPICH_PYTHON)]
    words = [
        sys.executable,
        "-m",
        "tuner.cli.main",
        "tune",
        "--library",
        run.library,
        *python,
        "--hosts",
        hosts,
        "--ppn",
        str(run.ppn),
        "--topology",
        "topology.yaml",
        "--budget",
        f"{run.budget}s",
        "--measurements",
        "m.ndjson",
        "--out",
        "t.json",
    ]
    script = f"cd {folder}; {' '.join(words)} > out.txt 2> said.txt; echo $? > status"
    if run.cold:
        script = f"export NUMBA_CACHE_DIR={folder}/cache; {script}"
    cluster = private_cluster(run.topology)
    try:
        cluster.up()
        with loaded(run.load):
            begun = time.monotonic()
            launch.run(cluster, ["sh", "-c", script], timeout=3 * run.budget + 120)
            wall = time.monotonic() - begun
    finally:
        cluster.down()
    return {**asdict(run), "wall": round(wall, 1), **found(folder)}


def found(folder: Path) -> dict[str, Any]:
    """Read what the run left."""
    said = (folder / "said.txt").read_text()
    status = int((folder / "status").read_text())
    record: dict[str, Any] = {"status": status, "error": "", "calls": 0, "messages": 0}
    if status or not (folder / "t.json").exists():
        return record | {"error": said[-400:], "rules": 0, "borrowed": []}
    table = read_table(folder / "t.json")
    if (folder / "m.ndjson").exists():
        series = read_measurements(folder / "m.ndjson").series
        calls = {(one.launch, one.point) for one in series if one.kind == "collective"}
        messages = {
            (one.kind, one.subject, one.nodes, one.ppn, one.params.get("of", 0))
            for one in series
            if one.kind != "collective"
        }
        record |= {"calls": len(calls), "messages": len(messages)}
    rules = sum(not rule.choice.is_default for rule in table.rules)
    return record | {"rules": rules, "borrowed": table.provenance.get("borrowed", [])}


def line(record: dict[str, Any]) -> str:
    """Return what is printed of a run."""
    run = Run(**{name: record[name] for name in Run.__dataclass_fields__})
    good = "ok " if is_good(record) else "BAD"
    if record["error"] or record["status"]:
        return f"{good} {run}, took {record['wall']:5.1f} s: {record['error']}"
    rules = f"{record['rules']} rules" if record["rules"] else "nothing gained"
    borrowed = "; ".join(record["borrowed"])
    return (
        f"{good} {run}, took {record['wall']:5.1f} s: {record['messages']} kinds of messages,"
        f" {record['calls']} calls, {rules}{borrowed and f' ({borrowed})'}"
    )


def is_good(record: dict[str, Any]) -> bool:
    """Return whether there is a table, in time."""
    times, more = ALLOWED
    in_time = record["wall"] <= times * record["budget"] + more
    return in_time and record["status"] == 0 and not record["error"]


def main() -> int:
    """Carry out what is not done yet, as far as there is time; return 1 if a run was bad."""
    options = _options()
    done = [json.loads(text) for text in _lines(options.results)]
    known = {(one["number"], one["load"], one["cold"]) for one in done}
    begun = time.monotonic()
    wanted = [
        replace(run, load=load)
        for load in options.loads
        for run in runs(options.cold)
        if run.number in (options.numbers or range(RUNS))
    ]
    for run in wanted:
        ends = time.monotonic() - begun + ALLOWED[0] * run.budget + ALLOWED[1] + STARTING
        if (run.number, run.load, run.cold) in known or ends > options.seconds:
            continue
        with tempfile.TemporaryDirectory(prefix="budgets-", dir=Path.home()) as folder:
            record = carried_out(run, Path(folder))
        with options.results.open("a") as file:
            file.write(json.dumps(record) + "\n")
        done.append(record)
        print(line(record), flush=True)
    own = {(run.number, run.load, run.cold) for run in wanted}
    ours = [one for one in done if (one["number"], one["load"], one["cold"]) in own]
    good = sum(map(is_good, ours))
    print(f"{good} of {len(ours)} runs are good; {len(wanted) - len(ours)} are left")
    return int(good < len(ours))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--for", dest="seconds", type=parse_duration, default=1e5)
    parser.add_argument("--loads", type=_numbers, default=[0])
    parser.add_argument("--numbers", type=_numbers, default=[])
    parser.add_argument("--cold", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    sys.exit(main())
