"""The backend `tuner` with tensors in the memory of a GPU; ranks that share one are enough."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.torch.test_backend import CHECKS, PYTHON, run
from tuner.base.errors import ProbeError
from tuner.launch import Launcher

TOLERANCE = 1e-3  # of the largest weight: a GPU adds in another order, which 100 steps amplify


@pytest.fixture(scope="module")
def gpu_launcher() -> Launcher:
    try:
        launcher = Launcher.find(python=PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))
    asked = [str(PYTHON), "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"]
    if subprocess.run(asked, check=False).returncode:
        pytest.skip("PyTorch sees no GPU")
    return launcher


@pytest.fixture(scope="module", params=[2, 3])
def said(request: pytest.FixtureRequest, gpu_launcher: Launcher) -> dict[str, str]:
    lines = run(gpu_launcher, request.param, "backend_program.py", "cuda").stdout.splitlines()
    return dict(line.split(": ", 1) for line in lines if line.startswith("check_"))


@pytest.mark.parametrize("check", CHECKS)
def test_calls_on_a_gpu_do_what_gloo_does(said: dict[str, str], check: str) -> None:
    assert said[check] == "fine"


@pytest.fixture(scope="module")
def steps(gpu_launcher: Launcher) -> dict[str, Any]:
    lines = run(gpu_launcher, 3, "steps_program.py", "100", "cuda").stdout.splitlines()
    return {told["way"]: told for told in map(json.loads, lines)}


@pytest.mark.parametrize("way", ["ddp", "accumulated", "joined", "hooked", "zero", "fsdp", "fsdp2"])
def test_a_hundred_steps_on_a_gpu_train_as_on_the_host(steps: dict[str, Any], way: str) -> None:
    told = steps[way]
    assert told["same"]
    assert told["apart"] < TOLERANCE
    assert told["losses"][1] < told["losses"][0] / 10
