"""An exact simulator's table on both engines: python -m tests.bench.oracle FILE.csv [TRANSFERS]

Prints the worst relative error and the seconds taken, per engine and algorithm; exits with 1 when
any row is off by more than 1e-9. The reference engine gets the rows of at most TRANSFERS messages
(default 200,000; 10,000,000 for all rows, half an hour); those it does not get are named.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.support import simgrid
from tuner.sim import ENGINES

TOLERANCE = 1e-9
MOST_TRANSFERS = 200_000


def transfers(algorithm: str, p: int, nbytes: int) -> int:
    """Roughly how many messages a row has."""
    if algorithm == "lr":
        return 2 * p * p
    if algorithm in ("rab1", "scatter_LR_allgather"):
        return p * p
    if algorithm.startswith("NTSL"):
        return p * -(-nbytes // 8192)
    if algorithm == "ompi_pipeline":
        return p * -(-nbytes // (128 << 10))
    return 20 * p


def main(path: Path, most: int) -> int:
    """The exit status."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    wrong = 0
    for engine in ENGINES:
        worst, taken = defaultdict[str, float](float), defaultdict[str, float](float)
        played = defaultdict[str, int](int)
        left_out: list[str] = []
        for row in rows:
            name, p, nbytes = row["algorithm"], int(row["ranks"]), int(row["bytes"])
            if engine == "events" and transfers(name, p, nbytes) > most:
                left_out.append(f"{name} p={p} {nbytes} B")
                continue
            begun = time.perf_counter()
            uplinks = int(row.get("uplinks_per_leaf") or 0)
            ours = simgrid.seconds(name, p, nbytes, engine, uplinks)
            taken[name] += time.perf_counter() - begun
            error = abs(ours / float(row["simulated_s"]) - 1)
            worst[name], played[name] = max(worst[name], error), played[name] + 1
            wrong += error > TOLERANCE
        for name in sorted(played):
            print(
                f"{engine:7} {name:22} {played[name]:3} rows  worst relative error"
                f" {worst[name]:.1e}  {taken[name]:7.2f} s",
                flush=True,
            )
        print(f"{engine:7} {sum(played.values())} of {len(rows)} rows", flush=True)
        for text in left_out:
            print(f"{engine:7} not run, too many transfers: {text}")
    print(f"{wrong} rows off by more than {TOLERANCE:g}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MOST_TRANSFERS))
