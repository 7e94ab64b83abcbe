"""A C program on an emulated cluster: our table compared with the best one of an exhaustive search.

    sudo python -m tests.bench.program_on_cluster [--budget 3min] [--pairs 8] [--iterations 10]

On eight emulated hosts (`docs/examples/flat8.yaml`) it does what a user does: `tuner record` finds
the calls of `tests/support/training_mix.c`, `tuner tune --profile` makes a table for them, and
`tuner run` follows it. Then the program runs under every algorithm that was measured, twice in
random order, and the fastest one for each kind of call makes the best table. At last runs under our
table, the best one and none alternate. Prints the times of all kinds, and the ratio of our table's
time to the best one's with its interval.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean

from tests.support.ladders import Rungs, table_of
from tests.support.preload import compiled
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.speedup import paired_speedup
from tuner.core.table import RUNNER_OF_KIND, AlgorithmChoice, TuningTable, read_table, write_table
from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = ROOT / "docs" / "examples" / "flat8.yaml"
P = 8
HOSTS = ",".join(f"node{number}" for number in range(P))
TUNER = (sys.executable, "-m", "tuner.cli.main")
ROUNDS = 2  # runs under each algorithm
Kind = tuple[Collective, int]


class Bench:
    """A cluster, a program and a folder for its files."""

    def __init__(self, folder: Path, iterations: int) -> None:
        self.folder, self.launcher = folder, Launcher.find("openmpi")
        program = compiled(self.launcher, "training_mix.c", folder)
        mpirun = [str(self.launcher.executable), "--allow-run-as-root", "-n", str(P)]
        self.program = [*mpirun, str(program), str(iterations)]

    def on_hosts(self, *words: str) -> str:
        """Run a command of `tuner` on the first host; return what it prints."""
        done = subprocess.run(
            [*TUNER, "emulate", "run", str(TOPOLOGY), "--", *TUNER, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def times(self, table: TuningTable | None) -> dict[Kind | None, float]:
        """Run the program; return the seconds of each kind of call, and under None of all."""
        source = []
        if table is not None:
            write_table(table, self.folder / "tried.json")
            source = ["--table", "tried.json"]
        words = self.on_hosts("run", "--quiet", *source, "--", *self.program).split()
        rows = zip(words[::4], words[1::4], words[3::4], strict=True)
        return {
            None if name == "all" else (Collective(name), int(nbytes)): float(seconds)
            for name, nbytes, seconds in rows
        }


def table_for(choices: Mapping[Kind, AlgorithmChoice], library: str) -> TuningTable:
    """Return the table that has a choice for each kind of call, on eight hosts."""
    ladders: dict[tuple[Collective, int, str], Rungs] = {}
    for collective in {collective for collective, _ in choices}:
        known = sorted((n, choice) for (one, n), choice in choices.items() if one is collective)
        starts = [0, *(int(math.sqrt(a * b)) for (a, _), (b, _) in pairwise(known))]
        operators = "commutative" if collective.is_reduction else "any"
        ladders[collective, P, operators] = [
            (start, choice) for start, (_, choice) in zip(starts, known, strict=True)
        ]
    made = table_of(ladders, library=library)
    rules = tuple(replace(r, key=replace(r.key, nodes=P, ppn=1)) for r in made.rules)
    return TuningTable(made.cluster, library, rules)


def measured_choices(found: Measurements) -> dict[Collective, list[AlgorithmChoice]]:
    """Return all algorithms that were measured on all hosts."""
    choices: dict[Collective, list[AlgorithmChoice]] = defaultdict(list)
    for series in found.series:
        if series.kind in RUNNER_OF_KIND and series.nodes == P:
            choice = AlgorithmChoice(series.algorithm, series.params, RUNNER_OF_KIND[series.kind])
            if choice not in choices[series.collective]:
                choices[series.collective].append(choice)
    return choices


def search(bench: Bench, kinds: Sequence[Kind]) -> dict[Kind, AlgorithmChoice]:
    """Run the program under all algorithms that were measured; return the fastest for each kind."""
    found = read_measurements(bench.folder / "m.ndjson")
    choices = measured_choices(found)
    seconds: dict[Kind, dict[AlgorithmChoice, list[float]]] = {kind: {} for kind in kinds}
    turns = [*range(max(map(len, choices.values())))] * ROUNDS
    for turn in random.sample(turns, len(turns)):
        tried = {kind: choices[kind[0]][turn % len(choices[kind[0]])] for kind in kinds}
        times = bench.times(table_for(tried, found.library))
        for kind, choice in tried.items():
            seconds[kind].setdefault(choice, []).append(times[kind])
    best = {}
    for kind, tried_times in seconds.items():
        ranked = sorted(tried_times, key=lambda choice: mean(tried_times[choice]))
        best[kind] = ranked[0]
        shown = ", ".join(f"{choice} {mean(tried_times[choice]):.3f} s" for choice in ranked[:4])
        print(f"{kind[0]} {kind[1]} bytes, {len(ranked)} algorithms: {shown}", flush=True)
    return best


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="3min")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-program-") as scratch:
        bench = Bench(Path(scratch), options.iterations)
        profile = ["--no-guidelines", "--out", "mix.profile"]
        print(bench.on_hosts("record", *profile, "--", *bench.program))
        files = ["--measurements", "m.ndjson", "--calibration", "c.json", "--out", "table.json"]
        files += ["--topology", str(TOPOLOGY), "--profile", "mix.profile"]
        bench.on_hosts("tune", "--hosts", HOSTS, "--budget", options.budget, *files)
        kinds = [kind for kind in bench.times(None) if kind is not None]
        ours = read_table(bench.folder / "table.json")
        best = table_for(search(bench, kinds), ours.library)
        sides: dict[str, TuningTable | None] = {"none": None, "ours": ours, "best": best}
        times: dict[str, list[dict[Kind | None, float]]] = {name: [] for name in sides}
        for _ in range(options.pairs):
            for name in random.sample([*sides], len(sides)):
                times[name].append(bench.times(sides[name]))
        for kind in (*kinds, None):
            each = {name: [run[kind] for run in runs] for name, runs in times.items()}
            told = "all calls" if kind is None else f"{kind[0]} {kind[1]} bytes"
            seconds = ", ".join(f"{name} {mean(runs):.3f} s" for name, runs in each.items())
            print(f"{told}: {seconds}")
            for name in ("none", "ours"):
                ratio, low, high = paired_speedup(
                    [(run,) for run in each[name]], [(run,) for run in each["best"]]
                )
                print(f"  {name} over best: {ratio:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
