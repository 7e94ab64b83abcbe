"""Starting the programs of tests/gpu on ranks."""

import os
from pathlib import Path

from tests.support.waiting import patience
from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]


def printed(
    launcher: Launcher, ranks: int, program: str, *arguments: str, **environment: str
) -> str:
    """What a program of tests/gpu prints; it must succeed."""
    path = ROOT / "tests" / "gpu" / program
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [ROOT, *(Path(one).resolve() for one in given if one)]
    return launcher.run(
        ranks,
        [str(path), *arguments],
        timeout=patience(24),
        environment={**environment, "PYTHONPATH": os.pathsep.join(map(str, found))},
    ).stdout
