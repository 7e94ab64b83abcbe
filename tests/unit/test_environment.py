"""`environment.sh`, which sets up what `make` uses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "environment.sh"
PYTHON = """#!/bin/sh
[ "$2" = pip ] || { pwd; exit; }
echo "Collecting mpich"
echo "  Downloading mpich-5.0.2.whl (13.3 MB)"
echo "Installing collected packages: mpich"
exit %d
"""


@pytest.mark.parametrize("status", [0, 1])
def test_what_is_downloaded_is_said(status: int, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON % status)
    python.chmod(0o755)
    words = ["sh", str(SCRIPT), "venv", "requirements.lock"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status
    assert done.stdout.splitlines() == [
        "setting up venv from requirements.lock",
        "  venv: downloading mpich-5.0.2.whl (13.3 MB)",
        "  venv: installing",
    ]
    assert ("could not be completed" in done.stderr) == bool(status)
