"""Run faulty programs under the preloaded dispatcher: `python -m tests.bench.preload_faults`.

Each run draws an MPI, 2 to 4 ranks, a table, what is wrong with the table on one rank, and how the
program ends (`tests/support/preload_endings.c`). It must end within its time, with a status that
such a program also has without the dispatcher (some depend on which rank's end the launcher hears
of first). Prints the runs by ending; fails with the seed of a run
that differs.

    python -m tests.bench.preload_faults [RUNS] [--seed SEED] [--launcher openmpi|mpich]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.mpich_suite import preload_tables
from tests.support.preload import compiled, preload_environment
from tests.support.waiting import patience
from tuner.base.errors import LaunchTimeoutError
from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = {"openmpi": ROOT / ".venv/bin/python", "mpich": ROOT / ".venv-mpich/bin/python"}
RUNS = 1000
RANKS = (2, 3, 4)
ENDINGS = ("none", "returned", "kill", "crash", "abort", "exit", "fatal", "session")
TABLES = ("schedule", "forced", "mixed")
FAULTS = {  # shell commands of rank 1
    "none": ":",
    "no library": "unset LD_PRELOAD",
    "no table": "unset TUNER_FLAT_TABLE",
    "missing table": "TUNER_FLAT_TABLE=/no/such",
    "other table": "TUNER_FLAT_TABLE=$TUNER_OTHER",
    "damaged table": "TUNER_FLAT_TABLE=$TUNER_DAMAGED",
    "no memory": "ulimit -v 400000",
}
HUNG = -1
REPEATS = 100  # runs alone before a status counts as different: MPICH ends 1 in 20 with another


class Side:
    """An MPI with its program and tables."""

    def __init__(self, library: str, folder: Path) -> None:
        self.launcher = Launcher.find(library, PYTHONS[library])
        self.program = compiled(self.launcher, "preload_endings.c", folder)
        self.environments: dict[tuple[int, str], Mapping[str, str]] = {}
        for ranks in RANKS:
            for name, table in preload_tables(self.launcher.version(), ranks).items():
                place = folder / f"{ranks}-{name}"
                place.mkdir()
                self.environments[ranks, name] = preload_environment(
                    self.launcher, table, place, TUNER_TUNE_AFTER_US="0"
                )
        self.damaged = folder / "damaged"
        self.alone: dict[tuple[int, str], set[int]] = {}

    def ends_alone(self, ranks: int, ending: str, status: int) -> set[int]:
        """Return how such a program ends without us, once or until it has the same status."""
        seen = self.alone.setdefault((ranks, ending), set())
        for seed in range(1 if seen else 0, REPEATS):
            if status in seen:
                break
            seen.add(self.run(ranks, ending, seed, {}, "none"))
        return seen

    def run(
        self, ranks: int, ending: str, seed: int, environment: Mapping[str, str], fault: str
    ) -> int:
        """Return the status of a run, HUNG where it did not end."""
        draw = random.Random(seed)
        words = [ending, str(draw.randrange(ranks)), str(draw.randrange(1, 40)), str(seed % 2**31)]
        rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
        begin = f'if [ "{rank}" = 1 ]; then {FAULTS[fault]}; fi; exec "$@"'
        try:
            done = self.launcher.run(
                ranks,
                ["-c", begin, "sh", str(self.program), *words],
                program=Path("/bin/sh"),
                environment={**SHARED_CORES, "TUNER_START_WITHIN_S": "2", **environment},
                check=False,
                timeout=patience(12),
            )
        except LaunchTimeoutError:
            return HUNG
        if ending in ("none", "returned", "session") and done.stdout.strip() != "No Errors":
            return done.returncode or 1000
        return done.returncode

    def faulty(self, seed: int) -> tuple[str, str]:
        """Return the ending of a run and what was different, "" for nothing."""
        draw = random.Random(f"fault {seed}")
        ranks, ending = draw.choice(RANKS), draw.choice(ENDINGS)
        fault, name = draw.choice([*FAULTS]), draw.choice(TABLES)
        own = self.environments[ranks, name]
        other = self.environments[ranks, draw.choice([one for one in TABLES if one != name])]
        content = bytearray(Path(own["TUNER_FLAT_TABLE"]).read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        self.damaged.write_bytes(content)
        added = {"TUNER_OTHER": other["TUNER_FLAT_TABLE"], "TUNER_DAMAGED": str(self.damaged)}
        status = self.run(ranks, ending, seed, {**own, **added}, fault)
        alone = self.ends_alone(ranks, ending, status)
        if status in alone:
            return ending, ""
        said = "did not end" if status == HUNG else f"status {status}"
        return ending, f"{ending}, {fault}, {name}, seed {seed}: {said}, alone {sorted(alone)}"


def main() -> int:
    """Run them; return 1 if one ended differently, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=int, nargs="?", default=RUNS)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--launcher", choices=PYTHONS, action="append")
    options = parser.parse_args()
    runs, wrong = Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="tuner-faults-") as scratch:
        sides = []
        for library in options.launcher or PYTHONS:
            folder = Path(scratch, library)
            folder.mkdir()
            sides.append(Side(library, folder))
        for number in range(options.runs):
            side, seed = sides[number % len(sides)], options.seed + number
            ending, difference = side.faulty(seed)
            runs[ending] += 1
            if difference:
                wrong += 1
                print(f"{side.launcher.version()}: {difference}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1} runs, {wrong} differ", flush=True)
    print("; ".join(f"{ending} {n}" for ending, n in sorted(runs.items())))
    print(f"{options.runs} runs from seed {options.seed}: {wrong} ended differently")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
