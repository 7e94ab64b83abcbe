"""`all_reduce` of PyTorch on several hosts: gloo, the backend `tuner` without and with a table.

    tuner emulate run docs/examples/flat8.yaml -- python -m tests.bench.torch_allreduce TABLE
        [--ranks P] [--sizes 64KiB,1MiB] [--turns N] [--device cuda]
        [--dtype bfloat16] [--python FILE]

One launch makes all calls, of the three in turn. A time is that of the slowest rank; printed are
medians over the turns, the ratio to gloo's, and the geometric means of the ratios. Tensors on GPUs
(`--device cuda`) are also reduced by NCCL where each rank has a GPU of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from tuner.base.units import format_size, format_time, parse_size

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
SIZES = "64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
LONG_BYTES = 8 << 20
LONG_TURNS = 3


def main(table: str, turns: int, sizes: Sequence[int], device: str, dtype: str) -> None:
    """Time the calls on each rank; rank 0 prints one line of JSON per size."""
    import torch
    import torch.distributed as dist

    import tuner.torch

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("tuner", pg_options=tuner.torch.Options(table))
    groups = {
        "gloo": dist.new_group(backend="gloo"),
        "default": dist.new_group(backend="tuner", pg_options=tuner.torch.Options()),
        "table": dist.group.WORLD,
    }
    if device == "cuda" and torch.cuda.device_count() >= dist.get_world_size():
        groups["nccl"] = dist.new_group(backend="nccl")
    for nbytes in sizes:
        kind = getattr(torch, dtype)
        tensor = torch.ones(nbytes // kind.itemsize, device=device, dtype=kind)
        times: dict[str, list[float]] = {name: [] for name in groups}
        for turn in range(1 + (turns if nbytes < LONG_BYTES else LONG_TURNS)):
            for name, group in groups.items():
                spent = slowest(partial(reduce, tensor, group))
                times[name] += [spent] * (turn > 0)  # the first one connects and sets up
                tensor.fill_(1.0)
        if dist.get_rank() == 0:
            print(json.dumps({"bytes": nbytes, "s": times}), flush=True)
    dist.destroy_process_group()


def reduce(tensor: Any, group: Any) -> None:
    """Reduce a tensor, and wait until the result is there."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(tensor, group=group)
    if tensor.is_cuda:
        torch.cuda.synchronize()


def slowest(call: Callable[[], object]) -> float:
    """Return the seconds of a call on the rank where it takes longest."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    call()
    spent = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return float(spent)


def report(lines: Sequence[str]) -> None:
    """Print medians and ratios of all sizes."""
    ratios: dict[str, list[float]] = {}
    for line in lines:
        told = json.loads(line)
        middle = {name: median(some) for name, some in told["s"].items()}
        for name in middle.keys() - {"gloo"}:
            ratios.setdefault(name, []).append(middle["gloo"] / middle[name])
        shown = ", ".join(f"{name} {format_time(value)}" for name, value in middle.items())
        faster = ", ".join(f"{name} {known[-1]:.2f}x" for name, known in ratios.items())
        print(f"{format_size(told['bytes'])}: {shown}; against gloo: {faster}")
    means = ", ".join(f"{name} {geometric_mean(known):.3f}x" for name, known in ratios.items())
    print(f"geometric mean against gloo: {means}")


def drive(argv: Sequence[str]) -> None:
    """Start the ranks and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--python", type=Path, default=PYTHON)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args(argv)
    sizes = [parse_size(word) for word in given.sizes.split(",")]
    table, kind = str(given.table.resolve()), (given.device, given.dtype)
    call = f"main({table!r}, {given.turns}, {sizes}, *{kind})"
    mpirun = given.python.with_name("mpirun")
    words = ["--allow-run-as-root"] * (os.geteuid() == 0) + ["-n", str(given.ranks)]
    for variable in ("PYTHONPATH", "OMP_NUM_THREADS"):
        words += ["-x", variable]
    program = ["-c", f"from tests.bench.torch_allreduce import main; {call}"]
    run = subprocess.run(
        [str(mpirun), *words, str(given.python), *program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report([line for line in run.stdout.splitlines() if line.startswith("{")])


if __name__ == "__main__":
    drive(sys.argv[1:])
