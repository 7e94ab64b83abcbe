"""Measure the preloaded dispatcher: `python -m tests.bench.preload [MEASUREMENT]`.

calls           nanoseconds that it adds to an 8-byte Allreduce on one rank; sides alternate in one
                process
create          split, duplicate, one call and free on two ranks, with over without: 10th
                percentile of batches; launches alternate
collectives     our schedules over the library's algorithms of the same names, 4 and 8 ranks
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median

from tests.support.ladders import Rungs, table_of
from tests.support.preload import compiled, preload_environment
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.mpi_libraries import library_module

DEFAULT = AlgorithmChoice()
FORCED = AlgorithmChoice("recursive_doubling")
SELF = (Collective.ALLREDUCE, 1, "any")
TABLES: dict[str, dict[tuple[Collective, int, str], Rungs]] = {
    "no rules for it": {(Collective.BCAST, 1, "any"): [(0, AlgorithmChoice("binomial"))]},
    "one of 16 rules": {
        SELF: [(0, DEFAULT), *((1 << k, (DEFAULT, FORCED)[k % 2]) for k in range(4, 19))]
    },
    "forced": {SELF: [(0, FORCED)]},
    "schedule": {SELF: [(0, AlgorithmChoice("recursive_doubling", {}, "schedule"))]},
}
LAUNCHES = 9
SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
ALGORITHMS = (
    (Collective.BCAST, "binomial"),
    (Collective.BCAST, "scatter_allgather_ring"),
    (Collective.ALLREDUCE, "recursive_doubling"),
    (Collective.ALLREDUCE, "ring"),
    (Collective.ALLREDUCE, "rabenseifner"),
)


def run(
    launcher: Launcher, program: Path, environment: Mapping[str, str], ranks: int, *words: str
) -> list[float]:
    """Return the numbers that the program prints."""
    done = launcher.run(
        ranks, list(words), program=program, environment={**environment, "TUNER_QUIET": "1"}
    )
    return [float(word) for word in done.stdout.split()]


def calls(launcher: Launcher, program: Path, folder: Path) -> None:
    for name, ladders in TABLES.items():
        table = table_of(ladders, library=launcher.version())
        environment = preload_environment(launcher, table, folder, TUNER_TUNE_AFTER_US="0")
        own, ours, own_low, ours_low = run(launcher, program, environment, 1, "call", "3000")
        print(
            f"{launcher.version():16} {name:16} library {own:5.1f} ns, more:"
            f" {ours - own:5.1f} ns (least), {ours_low - own_low:5.1f} ns (5th percentile)"
        )


def create(launcher: Launcher, program: Path, folder: Path) -> None:
    for name, p in (("rules for the shape", 2), ("rules for others", 3)):
        schedule = AlgorithmChoice("recursive_doubling", {}, "schedule")
        table = table_of(
            {(Collective.ALLREDUCE, p, "any"): [(0, schedule)]}, library=launcher.version()
        )
        environment = preload_environment(launcher, table, folder, TUNER_TUNE_AFTER_US="0")
        pairs = [
            [run(launcher, program, side, 2, "create", "200")[0] for side in ({}, environment)]
            for _ in range(LAUNCHES)
        ]
        ratios = sorted(ours / own for own, ours in pairs)
        print(
            f"{launcher.version():16} {name:20} plain {median(own for own, _ in pairs):6.2f} us,"
            f" ratio {median(ratios):.3f} ({ratios[1]:.3f} to {ratios[-2]:.3f})"
        )


def collectives(launcher: Launcher, program: Path, folder: Path) -> None:
    """Each algorithm by the library and by us, in turn; the algorithms that the library has."""
    known = library_module(launcher.version()).ALGORITHMS
    for p in (4, 8):
        ratios = []
        for (collective, name), nbytes in product(ALGORITHMS, SIZES):
            if name not in known[collective]:
                continue
            times: dict[str, list[float]] = {"library": [], "schedule": []}
            for _, runner in product(range(LAUNCHES // 2), times):
                choice = AlgorithmChoice(name, {}, runner)
                table = table_of(
                    {
                        (collective, p, "commutative" if collective.is_reduction else "any"): [
                            (0, choice)
                        ]
                    },
                    library=launcher.version(),
                )
                environment = preload_environment(launcher, table, folder, TUNER_TUNE_AFTER_US="0")
                words = ("collective", collective.value, str(nbytes), "21")
                times[runner].append(run(launcher, program, environment, p, *words)[0])
            ratios.append(median(times["schedule"]) / median(times["library"]))
            print(
                f"{launcher.version():16} {p} ranks {collective.value:10} {name:24} {nbytes:8}"
                f" {ratios[-1]:.3f}",
                flush=True,
            )
        print(f"{launcher.version():16} {p} ranks: geometric mean {geometric_mean(ratios):.3f}")


MEASUREMENTS = {"calls": calls, "create": create, "collectives": collectives}


def main() -> None:
    launchers = [Launcher.find("openmpi"), Launcher.find("mpich", Path(".venv-mpich/bin/python"))]
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or MEASUREMENTS:
            for launcher in launchers:
                place = Path(folder) / launcher.library
                place.mkdir(exist_ok=True)
                program = compiled(launcher, "../bench/preload_cost.c", place)
                MEASUREMENTS[name](launcher, program, place)


if __name__ == "__main__":
    main()
