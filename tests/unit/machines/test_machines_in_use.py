"""Simulate calls, study and train on machines known by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli.main import main
from tuner.machines import PRESETS

MODEL = {
    "kind": "llama",
    "layers": 2,
    "width": 512,
    "heads": 8,
    "sequence": 256,
    "vocabulary": 1000,
    "feed_forward": 1024,
}


def written(path: Path, **record: object) -> str:
    path.write_text(json.dumps(record))
    return str(path)


@pytest.mark.parametrize("name", PRESETS)
def test_calls_of_gpus_are_simulated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = f"--topology preset:{name}:2 --memory cuda --collective allreduce --sizes 1MiB"
    assert main(["simulate", *told.split(), "--algorithm", "ring", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert 0 < found["seconds"] < 1


@pytest.mark.parametrize("name", PRESETS)
def test_nodes_are_studied(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = written(
        tmp_path / "study.yaml",
        name="two nodes",
        topology=f"preset:{name}",
        vary={"nodes": [2], "ppn": [1]},
        collectives=["allreduce"],
        sizes=["1MiB"],
        algorithms=["ring", "recursive_doubling"],
    )
    assert main(["study", study, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"]


@pytest.mark.parametrize(
    "name", ["dgx-b300", "gb300-nvl72", "alps", "l40s", "rtx-pro-6000", "frontier", "mi355x"]
)
def test_a_transformer_is_trained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Find a rate of computing for their GPUs."""
    workload = written(
        tmp_path / "workload.yaml",
        name="small",
        model=MODEL,
        batch=1,
        precision="amp",
        framework={"name": "fsdp"},
        topology=f"preset:{name}",
        ranks=[2],
        algorithms="best",
    )
    assert main(["training", "run", workload]) == 0
    assert "share as on H100" in capsys.readouterr().out
