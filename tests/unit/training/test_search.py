"""The search for settings finds the best ones, and never makes an iteration slower."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.workloads import RECORD, workload
from tuner.training import groups
from tuner.training.framework_arguments import framework_arguments
from tuner.training.frameworks.fusion import MIB, Ddp, Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.parameter_server import ParameterServer
from tuner.training.frameworks.sharded import Zero
from tuner.training.iteration import predict_iteration
from tuner.training.models import build_model
from tuner.training.policies import FastestKnown
from tuner.training.search import TOLERANCE, TrainingSearch, setting_grid, tune_training
from tuner.training.tuned_workload import tuned_workload_text
from tuner.training.workload import read_workload

DDP_GRID = {"bucket": (MIB, 8 * MIB, 64 * MIB), "first_bucket": (64 << 10, MIB)}
HOROVOD_GRID = {"fusion_threshold": (2 * MIB, 64 * MIB), "cycle_time": (1e-3, 5e-3, 2e-2)}


@pytest.mark.parametrize(
    ("framework", "grid"),
    [
        ({"name": "ddp", "bucket": "2MiB"}, DDP_GRID),
        ({"name": "horovod", "cycle_time": "20ms"}, HOROVOD_GRID),
        ({"name": "zero", "stage": 1}, {"bucket": (MIB, 32 * MIB)}),
        ({"name": "parameter-server"}, {"servers": (1, 4), "shard": (0, 4 * MIB)}),
    ],
    ids=["ddp", "horovod", "zero", "servers"],
)
def test_it_finds_what_exhaustive_search_finds(framework: Any, grid: Any) -> None:
    asked = workload(framework=framework)
    search = TrainingSearch(asked, 8)
    every = [dict(zip(grid, one, strict=True)) for one in product(*grid.values())]
    best = min(search.seconds(one, policy) for one in every for policy in (0, -1))
    found = tune_training(asked, 8, grid=grid)
    assert found.after.seconds <= best * (1 + TOLERANCE)
    assert found.after.seconds <= found.before.seconds
    assert found.before.seconds == predict_iteration(asked, 8).seconds
    assert predict_iteration(found.workload, 8).seconds == pytest.approx(found.after.seconds)


@settings(max_examples=10, deadline=None)
@given(
    bucket=st.integers(1, 64),
    first=st.integers(1, 16),
    batch=st.integers(1, 64),
    order=st.sampled_from(["forward", "backward"]),
)
def test_it_is_never_worse_than_the_given_settings(
    bucket: int, first: int, batch: int, order: str
) -> None:
    framework = {
        "name": "ddp",
        "bucket": f"{bucket}MiB",
        "first_bucket": f"{first}MiB",
        "order": order,
    }
    asked = workload(framework=framework, batch=batch)
    found = tune_training(asked, 4, grid={"bucket": (MIB, 16 * MIB), "order": ("backward",)})
    assert found.after.seconds <= found.before.seconds
    assert found.speedup >= 1.0


def test_a_call_of_one_signature_is_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = []
    own = groups.simulate_groups

    def counted(*arguments: Any) -> float:
        simulated.append(arguments[:2])
        return own(*arguments)

    monkeypatch.setattr("tuner.training.call_times.simulate_groups", counted)
    found = tune_training(workload(), 4)
    assert found.tried > 50
    assert len(simulated) == len(set(simulated))


def test_what_makes_no_difference_stays_as_given() -> None:
    asked = workload(framework={"name": "ddp", "bucket": "37MiB"})
    found = tune_training(asked, 1)
    assert not found.changed
    assert found.workload.framework == asked.framework
    assert found.speedup == 1.0


def test_the_algorithms_are_chosen_with_the_settings() -> None:
    asked = workload(algorithms=["linear"], framework={"name": "ddp"})
    search = TrainingSearch(workload(algorithms=["linear"]), 8)
    assert search.policy(0) is search.policy(-1)
    assert tune_training(asked, 8).after.calls[0].algorithm == "linear via schedule"
    freely = workload(defaults=None, algorithms="best")
    assert isinstance(tune_training(freely, 4, grid={}).workload.policy, FastestKnown)


def test_every_framework_has_values_worth_trying() -> None:
    horovod = setting_grid(Horovod(), 8, 2)
    assert horovod["hierarchical"] == (False, True)
    assert setting_grid(Horovod(), 8, 8)["hierarchical"] == (False,)
    assert {64 * MIB, 128 * MIB} <= set(horovod["fusion_threshold"])
    assert set(setting_grid(Ddp(), 8, 2)) == {"bucket", "first_bucket", "order"}
    assert setting_grid(Zero(stage=1), 8, 2)["prefetch"] == (1,)
    assert len(setting_grid(Zero(stage=3), 8, 2)["prefetch"]) > 1
    assert setting_grid(ParameterServer(), 8, 8)["servers"] == (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("framework", "lines"),
    [
        (
            Horovod(32 * MIB, 2.5e-3, hierarchical=True),
            [
                "export HOROVOD_FUSION_THRESHOLD=33554432",
                "export HOROVOD_CYCLE_TIME=2.5",
                "export HOROVOD_HIERARCHICAL_ALLREDUCE=1",
            ],
        ),
        (
            Ddp(48 * MIB, 2 * MIB),
            [
                "torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 2097152",
                "DistributedDataParallel(model, bucket_cap_mb=48, find_unused_parameters=False)",
            ],
        ),
        (
            Zero(2, 64 * MIB),
            [
                '{"zero_optimization": {"stage": 2, "reduce_bucket_size": 16777216,'
                ' "overlap_comm": true}}'
            ],
        ),
        (
            Zero(3, 64 * MIB, 2),
            [
                "size_based_auto_wrap_policy(min_num_params=16777216)",
                "FullyShardedDataParallel(model, auto_wrap_policy=..., forward_prefetch=True)",
            ],
        ),
        (ParameterServer(4), ["--num_ps=4"]),
        (
            ModelParallel(tensor=8, pipeline=16, distributed=True),
            [
                "--tensor-model-parallel-size 8",
                "--pipeline-model-parallel-size 16",
                "--account-for-embedding-in-pipeline-split",
                "--account-for-loss-in-pipeline-split",
                "--use-distributed-optimizer",
            ],
        ),
        (
            ModelParallel(pipeline=8, first_blocks=14, last_blocks=4),
            [
                "--tensor-model-parallel-size 1",
                "--pipeline-model-parallel-size 8",
                "--decoder-first-pipeline-num-layers 14",
                "--decoder-last-pipeline-num-layers 4",
            ],
        ),
        (
            ModelParallel(pipeline=2, interleaved=2, first_blocks=4, last_blocks=122),
            [
                "--tensor-model-parallel-size 1",
                "--pipeline-model-parallel-size 2",
                "--num-virtual-stages-per-pipeline-rank 2",
                "--decoder-first-pipeline-num-layers 4",
                "--decoder-last-pipeline-num-layers 122",
            ],
        ),
        (
            ModelParallel(pipeline=4, recompute=True),
            [
                "--tensor-model-parallel-size 1",
                "--pipeline-model-parallel-size 4",
                "--account-for-embedding-in-pipeline-split",
                "--account-for-loss-in-pipeline-split",
                "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            ],
        ),
        (
            ModelParallel(
                pipeline=2, first_blocks=64, schedule="gpipe", rank_order="tensor-pipeline-data"
            ),
            [
                "--tensor-model-parallel-size 1",
                "--pipeline-model-parallel-size 2",
                "--decoder-first-pipeline-num-layers 64",
                "# schedule gpipe: Megatron-LM has 1f1b alone",
                "--use-tp-pp-dp-mapping",
            ],
        ),
        (
            ModelParallel(tensor=8, rank_order="data-tensor-pipeline"),
            [
                "--tensor-model-parallel-size 8",
                "--pipeline-model-parallel-size 1",
                "# rank_order data-tensor-pipeline: Megatron-LM has tensor-data-pipeline and"
                " tensor-pipeline-data",
            ],
        ),
        (
            ModelParallel(pipeline=5),
            [
                "--tensor-model-parallel-size 1",
                "--pipeline-model-parallel-size 5",
                f'--pipeline-model-parallel-layout "E{"t" * 24}|{"t" * 26}|{"t" * 26}'
                f'|{"t" * 26}|{"t" * 24}L"',
            ],
        ),
    ],
    ids=[
        *("horovod", "ddp", "zero", "fsdp", "servers"),
        *("llama", "ends", "chunks", "fewer stages", "order", "other order", "layout"),
    ],
)
def test_settings_are_said_as_frameworks_take_them(framework: Any, lines: list[str]) -> None:
    assert framework_arguments(framework, build_model("llama3_405b"), 4) == lines


def test_the_tuned_workload_is_a_workload(tmp_path: Path) -> None:
    path, target = tmp_path / "own" / "given.yaml", tmp_path / "there" / "tuned.yaml"
    path.parent.mkdir()
    target.parent.mkdir()
    (path.parent / "flat.yaml").write_text(yaml.safe_dump(RECORD["topology"]))
    framework = {"name": "horovod", "cycle_time": "40ms"}
    record = {**RECORD, "topology": "flat.yaml", "framework": framework}
    path.write_text(yaml.safe_dump(record))
    found = tune_training(read_workload(path), 8, grid=HOROVOD_GRID)
    assert found.speedup > 1.0
    target.write_text(tuned_workload_text(path, found, target))
    again = read_workload(target)
    assert again.framework == found.workload.framework
    assert again.ranks == (1, 4, 8)
    assert predict_iteration(again, 8).seconds == found.after.seconds
