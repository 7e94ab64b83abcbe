"""Run by mpirun: the program works while a call waits for a late rank.

Rank 0 prints how long issuing took, what it had done before the call was complete, and the result.
"""

from __future__ import annotations

import json
import time

import torch
import torch.distributed as dist

import tuner.torch  # noqa: F401 - registers the backend
from tests.support.waiting import be_slow

DELAY_S = 1.0


def main() -> None:
    dist.init_process_group("tuner")
    tensor = torch.ones(100_000)
    dist.barrier()
    if dist.get_rank() == 1:
        be_slow(DELAY_S)
    begun = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    issued = time.monotonic() - begun
    done = 0
    while not work.is_completed():
        torch.ones(1000).sum()
        done += 1
    work.wait()
    if dist.get_rank() == 0:
        print(json.dumps({"issued": issued, "done": done, "first": float(tensor[0])}))
    dist.destroy_process_group()


main()
