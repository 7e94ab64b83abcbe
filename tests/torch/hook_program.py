"""Run by mpirun or torchrun: gradients by the hook beside gloo, for all ranks and for two of them.

hook_program.py [TURNS]

TURNS   how often, each time in process groups that are new

Rank 0 prints one line of JSON: the gradients that it gets, and those expected.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tuner.torch


def gradient(group: Any, state: Any) -> float:
    """Return the gradient of a weight that is the number of each rank before the average."""
    module = torch.nn.Linear(1000, 1, bias=False)
    parallel = DistributedDataParallel(module, process_group=group)
    parallel.register_comm_hook(state, tuner.torch.allreduce_hook)
    parallel(torch.full((1, 1000), float(dist.get_rank()))).sum().backward()
    return float(module.weight.grad[0, 0])


def main(turns: int = 1) -> None:
    told: dict[str, Any] = {"found": [], "expected": []}
    for _ in range(turns):
        dist.init_process_group("gloo")
        size = dist.get_world_size()
        told["found"].append(gradient(dist.group.WORLD, tuner.torch.Options(verbose=True)))
        told["expected"].append((size - 1) / 2)
        pair = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            told["found"].append(gradient(pair, tuner.torch.HookState(pair)))
            told["expected"].append(0.5)
        rank = dist.get_rank()
        dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    if rank == 0:
        print(json.dumps(told), flush=True)


main(*map(int, sys.argv[1:]))
