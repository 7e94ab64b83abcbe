"""Replay active design on measured grids and print what it saves.

    python -m tests.bench.active_design FILE... [--calibration F --topology F]

Each FILE is of a probe (.ndjson) or results that `tuner evaluate` reads. `Design`'s loop is
replayed on every set of comparable calls in it: what a batch asks for is taken from the file and
costs what measuring it costs. Prints, over several seeds, the share of the whole grid's seconds
after which the table was as good as that of the whole grid (within a point of regret) and
after which the bound was below the target; and how often the bound was above the true regret, over
all rounds. With --rounds every round of the first seed. A round takes a fiftieth of the grid's
seconds. With a calibration and its topology candidates are simulated as `tuner tune` would; what
MPICH's default runs itself is not measured beside it, as there.

With hindsight: the share after which a table is as good if all times are known beforehand and the
default and the winner alone are measured, call by call, what saves most regret per second first.
Every call: the share that measuring these two takes at all calls at which the default is not the
fastest, twelve times each: what showing of each of them that its choice is faster needs. One look:
the same, and every other choice once at every call: what it takes without any foresight.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support.replays import Grid, Stage, replay
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import read_calibration
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.table import AlgorithmChoice
from tuner.formats import mpich
from tuner.formats.mpich.default_algorithms import find_default_algorithms
from tuner.importers import read_results
from tuner.launch import find_interpreter, loaded_libmpi
from tuner.machines.topology_files import load_topology
from tuner.mpi_libraries.default_algorithms import (
    DefaultAlgorithms,
    PlacedCollective,
    default_algorithms_from_provenance,
    default_lookup,
)
from tuner.select.cases import (
    EvaluationCase,
    cases_from_measurements,
    cases_from_readings,
    group_cases,
)
from tuner.select.dataset import (
    CallPoint,
    Observation,
    SimulateFunction,
    group_by_point,
    no_simulation,
)
from tuner.select.experiment_design import REPETITIONS, measurement_cost
from tuner.select.simulated_times import Simulator

ROUNDS = 50  # of equal seconds, for the whole grid
TARGET = 0.02  # of the bound
AS_GOOD = 0.01  # regret more than that of the whole grid's table


def grids(
    path: Path, calibration: Path | None, topology: Path | None
) -> Iterator[tuple[str, Grid]]:
    """Every set of calls of a file; of several runs of one call the first, with the default."""
    simulate: SimulateFunction = no_simulation
    known: Sequence[DefaultAlgorithms] = ()
    library = ""
    if path.suffix == ".ndjson":
        measurements = read_measurements(path)
        library, known = measurements.library, decided(measurements)
        if calibration and topology:
            priced = read_calibration(calibration)
            simulate = Simulator(priced, load_topology(topology), known)
        cases: Sequence[EvaluationCase] = cases_from_measurements(measurements, simulate)
    else:
        cases = cases_from_readings(read_results(path))
    for name, own in group_cases(cases).items():
        first: dict[CallPoint, EvaluationCase] = {}
        for case in own:
            if AlgorithmChoice() in case.observations:
                first.setdefault(case.point, case)
        rows = [
            replace(row, samples={}) if len(row.samples) == 1 else row  # nobody measures it again
            for case in first.values()
            for row in case.observations.values()
        ]
        if len({row.choice for row in rows}) > 1:
            ran = {
                point: default_lookup(known, library)(called(point), point.nbytes)
                for point in first
                if known
            }
            yield name, Grid(rows, _known(rows, simulate), ran)


def decided(measurements: Measurements) -> Sequence[DefaultAlgorithms]:
    """What the default runs: as the file says, else as the MPICH of this environment does."""
    kept = default_algorithms_from_provenance(
        measurements.provenance, measurements.library, "measurements"
    )
    if kept or not measurements.library.startswith("mpich"):
        return kept
    generic = mpich.read_generic_trees(loaded_libmpi("mpich", find_interpreter("mpich", None)))
    series = [one for one in measurements.series if one.kind == "collective"]
    calls = {(Collective(one.subject), one.nodes, one.ppn, one.placement) for one in series}
    return find_default_algorithms(generic, sorted(calls), max(one.nbytes for one in series))


def called(point: CallPoint) -> PlacedCollective:
    """As decisions name it."""
    return Collective(point.collective), point.nodes, point.ppn, point.placement


def _known(rows: Sequence[Observation], simulate: SimulateFunction) -> SimulateFunction:
    """Simulated times are in the rows already, as far as anything is simulated."""
    times = {(row.point, row.choice): row.simulated_seconds for row in rows}
    return lambda point, choice: (
        times[point, choice] if (point, choice) in times else simulate(point, choice)
    )


def row(name: str, grid: Grid, seeds: int) -> tuple[str, ...]:
    """One line of the table."""
    whole = grid.design()
    whole.update(grid.rows)
    best = grid.regret(whole)
    runs = [replay(grid, grid.seconds / ROUNDS, ROUNDS, seed) for seed in range(1, seeds + 1)]
    covered = [stage.bound.upper >= stage.regret for run in runs for stage in run]
    last = [run[-1].bound.upper >= run[-1].regret for run in runs]
    good = [_share(run, grid, lambda s: s.regret <= best + AS_GOOD) for run in runs]
    stopped = [_share(run, grid, lambda s: s.bound.upper <= TARGET) for run in runs]
    at_stop = [next((s for s in run if s.bound.upper <= TARGET), None) for run in runs]
    kept = [s.regret <= s.bound.upper for s in at_stop if s is not None]
    return (
        name,
        str(len(grid.choices)),
        str(len(grid.rows)),
        f"{grid.seconds:.0f}",
        f"{100 * runs[0][0].regret:.1f}%",
        f"{100 * best:.2f}%",
        _percent(good),
        f"{100 * hindsight(grid, best + AS_GOOD):.1f}%",
        f"{100 * every_call(grid):.1f}%",
        f"{100 * one_look(grid):.1f}%",
        _percent(stopped),
        f"{100 * np.mean(covered):.0f}%",
        f"{sum(last)}/{len(last)}",
        f"{sum(kept)}/{len(kept)}",
    )


def pairs(grid: Grid) -> Iterator[tuple[float, float]]:
    """Seconds of the default and of the fastest at every call."""
    for point, own in group_by_point(grid.rows).items():
        times = {row.choice: row.seconds for row in own if row.choice in grid.choices[point]}
        yield times[AlgorithmChoice()], min(times.values())


def every_call(grid: Grid) -> float:
    """The share of the grid's seconds for both wherever the default is not the fastest."""
    shown = [
        measurement_cost(default) + measurement_cost(best)
        for default, best in pairs(grid)
        if best < default
    ]
    return sum(shown) / grid.seconds


def one_look(grid: Grid) -> float:
    """The share of the grid's seconds for these, and one repetition of all else."""
    shown = every_call(grid)
    return shown + (1 - shown) / REPETITIONS


def hindsight(grid: Grid, enough: float) -> float:
    """The share of the grid's seconds until the mean regret is that small."""
    saving = [
        (default / best - 1, measurement_cost(default) + measurement_cost(best))
        for default, best in pairs(grid)
    ]
    left, spent = sum(regret for regret, _ in saving), 0.0
    for regret, seconds in sorted(saving, key=lambda one: -one[0] / one[1]):
        if left <= enough * len(saving):
            break
        left, spent = left - regret, spent + seconds
    return spent / grid.seconds


def _share(run: Sequence[Stage], grid: Grid, good: object) -> float:
    """Of the grid's seconds, after which it is so for the first time; NaN if never."""
    spent = (stage.spent for stage in run if callable(good) and good(stage))
    return next(spent, math.nan) / grid.seconds


def _percent(shares: Sequence[float]) -> str:
    """The median; blank where half of them never came to that."""
    middle = float(np.median(np.nan_to_num(shares, nan=np.inf)))
    return "" if math.isinf(middle) else f"{100 * middle:.1f}%"


def print_rounds(grid: Grid) -> None:
    """Of one replay."""
    for stage in replay(grid, grid.seconds / ROUNDS, ROUNDS):
        bound = stage.bound
        print(
            f"  {100 * stage.spent / grid.seconds:5.1f}% of the seconds: regret"
            f" {100 * stage.regret:6.2f}%, expected {100 * bound.expected:6.2f}%, below"
            f" {100 * bound.upper:6.2f}%"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Replays active design on measured grids.")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--topology", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", action="store_true")
    options = parser.parse_args()
    rows = []
    for path in options.files:
        for name, grid in grids(path, options.calibration, options.topology):
            rows.append(row(name, grid, options.seeds))
            if options.rounds:
                print(name)
                print_rounds(grid)
    columns = (
        "set",
        "calls",
        "series",
        "grid, s",
        "default",
        "grid's table",
        "as good after",
        "with hindsight",
        "every call",
        "one look",
        "bound < 2 % after",
        "covered",
        "at the end",
        "at the stop",
    )
    print_table("active design", columns, rows, right=columns[1:])
