"""PyTorch's own tensors in collectives under a table, on hosts without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import ProbeError
from tuner.runtime.launch import Launcher

PROGRAM = Path(__file__).with_name("torch_program.py")
ROOT = PROGRAM.parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
CHECKS = [
    line.removeprefix("def ").partition("(")[0]
    for line in PROGRAM.read_text().splitlines() if line.startswith("def check_")
]  # fmt: skip


@pytest.fixture(scope="module", params=[2, 3])
def said(request: pytest.FixtureRequest) -> dict[str, str]:
    try:
        launcher = Launcher.find("openmpi", PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))
    run = launcher.run(
        request.param, [str(PROGRAM)], timeout=120.0, environment={"PYTHONPATH": str(ROOT)}
    )
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


@pytest.mark.parametrize("check", CHECKS)
def test_tensors_are_like_under_the_plain_communicator(said: dict[str, str], check: str) -> None:
    assert said[check] == "fine"
