"""Starting the programs of tests/gpu on ranks."""

from pathlib import Path

from tuner.runtime.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0  # seconds: kernels are compiled once per rank


def printed(launcher: Launcher, ranks: int, program: str, argument: str) -> str:
    """What a program of tests/gpu prints; it must succeed."""
    path = ROOT / "tests" / "gpu" / program
    return launcher.run(
        ranks, [str(path), argument], environment={"PYTHONPATH": str(ROOT)}, timeout=PATIENCE
    ).stdout
