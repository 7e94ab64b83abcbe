"""Time a sweep of training: 100 machines like a DGX A100 cluster.

    python -m tests.bench.sweep_time [cores] [default | best]

Runs `tuner training sweep` as a user does, with CSV, and prints seconds and configurations per
second.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tuner.cli.main import main
from tuner.cli.terminal.output import print_text

SWEEP = {
    "model": "resnet50",
    "batch": 64,
    "framework": "horovod",
    "topology": "preset:dgx-a100",
    "vary": {
        "ranks": [8, 16, 32, 64, 128],
        "bandwidth": ["100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s", "1600Gb/s"],
        "nics": [1, 2, 4, 8],
    },
    "epoch": 1_281_167,
    "cost": {"gpu_hour": 2.5},
}


def bench(cores: int, algorithms: str) -> None:
    """Run the sweep once."""
    with tempfile.TemporaryDirectory() as folder:
        path, table = Path(folder) / "sweep.yaml", Path(folder) / "sweep.csv"
        path.write_text(json.dumps({**SWEEP, "algorithms": algorithms}))
        begun = time.perf_counter()
        words = ["training", "sweep", str(path), "--csv", str(table), "--jobs", str(cores)]
        if main(words) != 0:
            raise SystemExit("the sweep failed")
        took = time.perf_counter() - begun
        number = len(table.read_text().splitlines()) - 1
    print_text(
        f"{number} configurations in {took:.1f} s on {cores} cores: {number / took:.1f} per s"
    )


if __name__ == "__main__":
    bench(
        int(sys.argv[1]) if len(sys.argv) > 1 else 2,
        sys.argv[2] if len(sys.argv) > 2 else "default",
    )
