"""Score cut-offs of all-reduce on GPUs that were not measured.

    python -m tests.bench.allreduce_backends [CSV...]

CSV has times of engines and NCCL as `tuner nccl backends` reads them; the default is the reference
data (TUNER_SHARED, else ../shared), from ai-dynamo/aiconfigurator. Each kind of GPU is held out in
turn, and takes the cut-offs of the nearest other one. Prints for each engine in how many of (GPU,
number of GPUs, size) the back end that runs is within 5 % of the faster one; beside it what always
and never calling NCCL reach, and cut-offs from the GPU itself. The last line chooses among all back
ends, other engines' kernels among them, which no engine can do.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.cli.terminal.output import print_table, print_text
from tuner.formats.inference_engines import NCCL, CutOff, cut_offs, for_gpu, newest_curves
from tuner.importers.backend_times import BackendTime, read_backend_times

SHARED = Path(os.environ.get("TUNER_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = SHARED / "data/aiconfigurator"
DEFAULT_DATA = (FOLDER / "custom_allreduce.csv", FOLDER / "nccl_one_node.csv")
CLOSE = 1.05  # time of the chosen back end over that of the best one
TARGET = 0.9  # of all calls


@dataclass(frozen=True)
class Trial:
    """Record whether choices of an engine are close to the faster of own kernels and NCCL."""

    engine: str
    held_out: bool
    measured: bool
    own: bool
    nccl: bool


def held_out(times: Sequence[BackendTime], gpu: str) -> list[CutOff]:
    """Return the cut-offs that a kind of GPU gets from all others."""
    return for_gpu(cut_offs([one for one in times if one.gpu != gpu]), gpu)


def trials(times: Sequence[BackendTime]) -> Iterator[Trial]:
    """Yield one trial for each engine, kind and number of GPUs and size."""
    curves = newest_curves(times)
    for gpu in {one.gpu for one in times}:
        others = {(one.engine, one.gpus): one for one in held_out(times, gpu)}
        for own in (one for one in cut_offs(times) if one.gpu == gpu):
            engine, gpus = own.engine, own.gpus
            mine, nccl = curves[gpu, gpus, engine][1], curves[gpu, gpus, NCCL][1]
            for size in mine.keys() & nccl.keys():
                best = CLOSE * min(mine[size], nccl[size])
                yield Trial(
                    engine,
                    (mine if others[engine, gpus].runs_own(size) else nccl)[size] <= best,
                    (mine if own.runs_own(size) else nccl)[size] <= best,
                    mine[size] <= best,
                    nccl[size] <= best,
                )


def of_all_back_ends(times: Sequence[BackendTime]) -> tuple[int, int]:
    """Return close choices, and all, where the nearest GPU's fastest back end is taken."""
    curves, found = newest_curves(times), Counter[bool]()
    for gpu in {one.gpu for one in times}:
        nearest = held_out(times, gpu)[0].gpu
        for gpus in {one.gpus for one in times if one.gpu == gpu}:
            here = {
                back: curve for (g, n, back), (_, curve) in curves.items() if (g, n) == (gpu, gpus)
            }
            there = {back: curves[nearest, gpus, back][1] for back in here}
            for size in set.intersection(*(set(one) for one in (*here.values(), *there.values()))):
                taken = min(there, key=lambda back: there[back][size])
                best = min(curve[size] for curve in here.values())
                found[here[taken][size] <= CLOSE * best] += 1
    return found[True], found.total()


def main() -> int:
    """Print the shares; return 1 where an engine misses the target."""
    times, _ = read_backend_times([*map(Path, sys.argv[1:])] or DEFAULT_DATA)
    found = list(trials(times))
    rows, missed = [], 0
    for engine in sorted({one.engine for one in found}):
        mine = [one for one in found if one.engine == engine]
        shares = [
            sum(getattr(one, name) for one in mine) / len(mine)
            for name in ("held_out", "measured", "own", "nccl")
        ]
        missed += shares[0] < TARGET
        rows.append((engine, str(len(mine)), *(f"{share:.1%}" for share in shares)))
    titles = ("engine", "calls", "held out", "own times", "always own", "always NCCL")
    print_table("Back end within 5 % of the faster one", titles, rows, right=titles[1:])
    close, calls = of_all_back_ends(times)
    print_text(f"all back ends, held out: {close} of {calls} ({close / calls:.1%})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
