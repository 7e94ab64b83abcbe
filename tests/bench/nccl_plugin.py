"""How long our NCCL tuner plugin takes to decide: `python -m tests.bench.nccl_plugin`.

The compiled plugin is called as NCCL calls it by interface v5 and v7, and asked by a program
through tuner_nccl.h, for random sizes over all its rules and on the communicator they are for; what
the caller itself takes per call (a random number, the loop) is in the figure. Medians of blocks of
200,000 calls. Also how long a communicator takes to be opened.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.support.nccl import Asker, Caller, build, build_asker
from tuner.formats.nccl.plugin import LIBRARY_FILE

VERSIONS = (5, 7)
RULES = (0, 10, 100, 1000, 10_000)
BLOCKS = 21
WIDTH = 4096  # bytes of one rule
CEILING = 50.0  # nanoseconds
OPENED = 500


def rows(count: int) -> str:
    """So many rules of allreduce on 16 ranks, side by side."""
    ways = ("ring,ll", "tree,ll128", "ring,simple", "nvls_tree,simple")
    return "".join(
        f"allreduce,{i * WIDTH},{(i + 1) * WIDTH - 1},{ways[i % len(ways)]},-1,2,16\n"
        for i in range(count)
    )


def nanoseconds(folder: Path, count: int) -> Iterator[tuple[str, list[float]]]:
    """Yield who asks, and the time of one decision in each block."""
    timed = [f"time 0 4 {max(count, 1) * WIDTH}"] * BLOCKS
    caller, asker = Caller(folder / "caller", folder / LIBRARY_FILE), Asker(folder / "asker")
    caller.with_rows(rows(count))
    for version in VERSIONS:
        said = caller.run([f"open {version} 16 2 8 8", *timed])
        yield f"v{version}", list(map(float, said.results[1:]))
    answers, _ = asker.run_as_it_is(["follow 0 16 2", *timed])
    yield "program", list(map(float, answers[1:]))


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
    """Print a line for each number of rules and each way of asking."""
    with tempfile.TemporaryDirectory() as folder:
        caller = build(Path(folder))
        build_asker(Path(folder))
        for count in RULES:
            for who, samples in nanoseconds(Path(folder), count):
                met = "met" if median(samples) <= CEILING else "MISSED"
                print(
                    f"{count:6} rules, {who:7}: {median(samples):6.1f} ns per decision (blocks"
                    f" {min(samples):.1f} to {max(samples):.1f}), at most {CEILING:g}: {met}"
                )
            print(f"{count:6} rules, a communicator opens in {milliseconds(caller):.2f} ms")


if __name__ == "__main__":
    main()
