"""How long our NCCL tuner plugin takes to decide: `python -m tests.bench.nccl_plugin`.

The compiled plugin is called as NCCL 2.28 calls it, for random sizes over all its rules and on the
communicator they are for; what the caller itself takes per call (a random number, the loop) is in
the figure. Medians of blocks of 200,000 calls. Also how long a communicator takes to be opened.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from tests.support.nccl import Caller, build

RULES = (0, 10, 100, 1000, 10_000)
BLOCKS = 21
WIDTH = 4096  # bytes of one rule
CEILING = 200.0  # nanoseconds
OPENED = 500


def rows(count: int) -> str:
    """So many rules of allreduce on 16 ranks, side by side."""
    ways = ("ring,ll", "tree,ll128", "ring,simple", "nvls_tree,simple")
    return "".join(
        f"allreduce,{i * WIDTH},{(i + 1) * WIDTH - 1},{ways[i % len(ways)]},-1,2,16\n"
        for i in range(count)
    )


def nanoseconds(caller: Caller, count: int) -> list[float]:
    """Of one decision, in each block."""
    caller.with_rows(rows(count))
    spread = max(count, 1) * WIDTH
    said = caller.run(["open 5 16 2 8 8", *[f"time 0 4 {spread}"] * BLOCKS])
    return [float(line) for line in said.results[1:]]


def milliseconds(caller: Caller) -> float:
    """What opening and closing one communicator takes, with the rules that are there."""
    commands = [line for i in range(OPENED) for line in ("open 5 16 2 8 8", f"close {i}")]
    times = []
    for some in ([], commands):
        begin = time.perf_counter()
        caller.run(some)
        times.append(time.perf_counter() - begin)
    return 1e3 * (times[1] - times[0]) / OPENED


def main() -> None:
    """Print one line per number of rules."""
    with tempfile.TemporaryDirectory() as folder:
        caller = build(Path(folder))
        for count in RULES:
            samples = nanoseconds(caller, count)
            met = "met" if median(samples) <= CEILING else "MISSED"
            print(
                f"{count:6} rules: {median(samples):6.1f} ns per decision (blocks"
                f" {min(samples):.1f} to {max(samples):.1f}), at most {CEILING:g}: {met};"
                f" a communicator opens in {milliseconds(caller):.2f} ms"
            )


if __name__ == "__main__":
    main()
