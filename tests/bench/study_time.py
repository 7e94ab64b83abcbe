"""How long a large study takes: every candidate at 27 sizes on 1..64 nodes of a DGX H100 cluster.

    python -m tests.bench.study_time [bcast,allreduce | all] [cores]

Runs `tuner study` as a user does, with CSV, and prints seconds and simulations per second: one
simulation is one candidate at one size on one machine.
"""

from __future__ import annotations

import csv
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from tuner.cli.main import main
from tuner.cli.terminal.output import print_table
from tuner.core.collective import Collective

SIZES = [4 << i for i in range(27)]  # 4 B .. 256 MiB
NODES = list(range(1, 65))
PPN = 8


def seconds_and_simulations(collectives: list[str], cores: int, folder: Path) -> tuple[float, int]:
    """Run one study with as many processes as cores."""
    study, table = folder / "study.yaml", folder / "study.csv"
    study.write_text(
        json.dumps(
            {
                "name": "DGX H100",
                "topology": "preset:dgx-h100:64",
                "vary": {"nodes": NODES, "ppn": [PPN]},
                "collectives": collectives,
                "sizes": SIZES,
            }
        )
    )
    begun = time.perf_counter()
    if main(["study", str(study), "--csv", str(table), "--jobs", str(cores)]) != 0:
        raise SystemExit("the study failed")
    took = time.perf_counter() - begun
    with table.open() as file:
        return took, sum(1 for _ in csv.reader(file)) - 1


def bench(collectives: list[str], cores: int) -> None:
    """One line for each collective, all together in one study when there are several."""
    with tempfile.TemporaryDirectory() as folder:
        took, number = seconds_and_simulations(collectives, cores, Path(folder))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print_table(
        f"{len(NODES)} machines x {len(SIZES)} sizes, {cores} cores",
        ("collectives", "seconds", "simulations", "per second", "MiB per process"),
        [
            (
                ", ".join(collectives),
                f"{took:.1f}",
                f"{number:,}",
                f"{number / took:,.0f}",
                f"{memory:.0f}",
            )
        ],
        right=("seconds", "simulations", "per second", "MiB per process"),
    )


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else "bcast,allreduce"
    every = [collective.value for collective in Collective]
    bench(every if asked == "all" else asked.split(","), int((sys.argv + [""] * 2)[2] or 2))
