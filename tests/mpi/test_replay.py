"""Replays of small workloads by real ranks of Open MPI and MPICH."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.replay.__main__ import main
from tests.support.ladders import CLUSTER
from tests.support.launches import ROOT
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import (
    SCHEDULE,
    AlgorithmChoice,
    Evidence,
    Rule,
    RuleKey,
    TuningTable,
    write_table,
)
from tuner.launch import CompletedRun, Launcher

ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
LIBRARIES = [("launcher", 3), ("mpich_launcher", 2)]
FRAMEWORKS = {
    "ddp": {"name": "ddp", "bucket": "32KiB", "first_bucket": "4KiB"},
    "zero": {"name": "zero", "stage": 3, "bucket": "32KiB"},
    "horovod": {"name": "horovod", "fusion_threshold": "32KiB", "cycle_time": "2ms"},
    "cached": {"name": "horovod", "cycle_time": "2ms", "cache": True, "hierarchical": True},
}


def workload(folder: Path, ranks: int, framework: str, **changes: Any) -> Path:
    """Write a workload and its table; return the file."""
    ring = AlgorithmChoice("ring", runner=SCHEDULE)
    reduces = {"operators": "commutative"}
    rules = tuple(
        Rule(RuleKey(one, 1, ranks, **own), 0, math.inf, ring, Evidence("measured"))
        for one, own in (
            (Collective.ALLREDUCE, reduces),
            (Collective.REDUCE_SCATTER, reduces),
            (Collective.ALLGATHER, {}),
        )
    )
    write_table(TuningTable(CLUSTER, "openmpi 5.0.11", rules), folder / "table.json")
    link = {"latency": "20us", "bandwidth": "1Gbit/s"}
    node = {"name": "one", "nodes": 1, "local": link, **link}
    record = {
        "name": "small",
        "model": {
            "kind": "gpt",
            "layers": 2,
            "width": 32,
            "heads": 2,
            "sequence": 16,
            "vocabulary": 100,
        },
        "batch": 1,
        "rate": 50,
        "framework": FRAMEWORKS[framework],
        "topology": node,
        "ppn": ranks,
        "ranks": ranks,
        "algorithms": "table.json",
        **changes,
    }
    path = folder / "small.yaml"
    path.write_text(json.dumps(record))
    return path


def replayed(launcher: Launcher, ranks: int, *words: str, check: bool = True) -> CompletedRun:
    return launcher.run(
        ranks,
        ["-m", "tests.replay", *words],
        timeout=patience(),
        environment=ENVIRONMENT,
        check=check,
    )


@pytest.mark.representative("ddp-openmpi", "cached-mpich")
@pytest.mark.parametrize(("fixture", "ranks"), LIBRARIES, ids=["openmpi", "mpich"])
@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_a_plan_is_replayed(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, ranks: int, framework: str
) -> None:
    """Replay on ranks that have no simulator: MPICH's environment lacks its packages."""
    path, plan = workload(tmp_path, ranks, framework), tmp_path / "plan.json"
    assert main([str(path), "--ranks", str(ranks), "--write-plan", str(plan)]) == 0
    words = (str(plan), "--iterations", "3", "--rounds", "2", "--json")
    run = replayed(request.getfixturevalue(fixture), ranks, *words)
    found = json.loads(run.stdout.splitlines()[-1])
    (one,) = found["replays"]
    assert found["hosts"] == 1
    assert len(one["seconds"]) == 6
    assert min(one["seconds"]) > 0.98 * one["compute_seconds"]
    assert one["compute_seconds"] == pytest.approx(0.02, rel=0.01)  # ZeRO divides the update
    assert one["tuned"]


@pytest.mark.extended
def test_a_workload_is_replayed_as_it_is(launcher: Launcher, tmp_path: Path) -> None:
    path = workload(tmp_path, 2, "ddp", noise="5%")
    run = replayed(launcher, 2, str(path), str(path), "--iterations", "3", "--compute", "spin")
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("small, 2 ranks: ") for line in lines)


@pytest.mark.extended
def test_another_number_of_ranks_is_one_sentence(launcher: Launcher, tmp_path: Path) -> None:
    path = workload(tmp_path, 3, "ddp")
    run = replayed(launcher, 2, str(path), check=False)
    assert run.returncode != 0
    assert f"{path}: 2 ranks were started, and the workload is for 3\n" in run.stderr
    assert "Traceback" not in run.stderr


DYING = """
import os, signal, sys
from mpi4py import MPI
from tests.replay import replaying_ranks
from tests.replay.__main__ import main

def dies(self, *_):
    if MPI.COMM_WORLD.rank == 1:
        {way}
    return original(self, *_)

original = replaying_ranks.ReplayingRank._slowdown
replaying_ranks.ReplayingRank._slowdown = dies
sys.exit(main())
"""


@pytest.mark.parametrize(
    "way", ["os.kill(os.getpid(), signal.SIGKILL)", "raise OSError('lost')"], ids=["kill", "raise"]
)
@pytest.mark.representative("openmpi-raise")
@pytest.mark.parametrize(("fixture", "ranks"), LIBRARIES, ids=["openmpi", "mpich"])
def test_a_rank_that_dies_ends_the_others(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, ranks: int, way: str
) -> None:
    path, plan = workload(tmp_path, ranks, "ddp"), tmp_path / "plan.json"
    assert main([str(path), "--ranks", str(ranks), "--write-plan", str(plan)]) == 0
    program = tmp_path / "dying.py"
    program.write_text(DYING.format(way=way))
    launcher: Launcher = request.getfixturevalue(fixture)
    words = [str(program), str(plan)]
    run = launcher.run(ranks, words, timeout=patience(), environment=ENVIRONMENT, check=False)
    assert run.returncode != 0
    assert "an iteration" not in run.stdout
