"""Run by mpirun or torchrun: a rank ends while the others call a collective.

failing_program.py HOW SECONDS [CALL]

HOW         killed, raises, exits or is late (for ever): what rank 1 does
SECONDS     time limit of the process group; 0: PyTorch's default
CALL        time limit of each call in seconds; 0: that of the group

Every other rank prints one line with what it got.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import tuner.torch  # noqa: F401 - registers the backend
from tests.support.waiting import be_slow


def main(how: str, seconds: float, of_call: float = 0) -> None:
    limit = {"timeout": timedelta(seconds=seconds)} if seconds else {}
    dist.init_process_group("tuner", **limit)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise ValueError("broken data")
        if how == "exits":
            sys.exit(0)
        be_slow(600)
    begun = time.monotonic()
    try:
        works = [call(tensor, of_call) for _ in range(3)]
        works[-1].wait()
    except dist.DistBackendError as failure:
        print(
            f"{type(failure).__name__} after {time.monotonic() - begun:.0f} s: {failure}",
            flush=True,
        )
        sys.exit(3)


def call(tensor: torch.Tensor, seconds: float) -> Any:
    if not seconds:
        return dist.all_reduce(tensor, async_op=True)
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=seconds)
    return dist.group.WORLD.allreduce([tensor], options)


main(sys.argv[1], *map(float, sys.argv[2:]))
