"""PyTorch's own tensors in collectives under a table, on hosts without a GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import patience
from tuner.base.errors import ProbeError
from tuner.launch import Launcher

PROGRAM = Path(__file__).with_name("torch_program.py")
ROOT = PROGRAM.parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
CHECKS = [
    line.removeprefix("def ").partition("(")[0]
    for line in PROGRAM.read_text().splitlines()
    if line.startswith("def check_")
]


@pytest.fixture(scope="module")
def torch_launcher() -> Launcher:
    try:
        return Launcher.find("openmpi", PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=[2, 3])
def said(request: pytest.FixtureRequest, torch_launcher: Launcher) -> dict[str, str]:
    run = torch_launcher.run(
        request.param, [str(PROGRAM)], timeout=patience(), environment={"PYTHONPATH": str(ROOT)}
    )
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


@pytest.mark.parametrize("check", CHECKS)
def test_tensors_are_like_under_the_plain_communicator(said: dict[str, str], check: str) -> None:
    assert said[check] == "fine"


def test_a_model_learns_alike_with_copied_and_with_given_gradients(
    torch_launcher: Launcher,
) -> None:
    def trained(how: str) -> Any:
        program = PROGRAM.with_name("training_program.py")
        environment = {"PYTHONPATH": str(ROOT)}
        run = torch_launcher.run(
            2, [str(program), how, "10"], timeout=patience(), environment=environment
        )
        return json.loads(run.stdout)

    copied, given = trained("copied"), trained("given")
    for run in (copied, given):
        assert run["apart"] == 0.0
        assert run["losses"][1] < run["losses"][0]
    assert given["losses"] == pytest.approx(copied["losses"], rel=1e-5)
