"""Run by mpirun: 100 steps of training on the backend `tuner` and on gloo, held against each other.

steps_program.py STEPS [cuda]

With `cuda` the model of the backend is in the memory of a GPU, that of gloo on the host. Rank 0
prints one line of JSON per way of training: how far the weights are apart afterwards, as a part of
the largest weight, and the first and the last loss.
"""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tuner.torch

BATCH = 16
WIDTH = 64
RATE = 1e-2
DEVICE = torch.device(*sys.argv[2:] or ["cpu"])
HOST = torch.device("cpu")


def device_of(group: Any) -> torch.device:
    return HOST if group is gloo() else DEVICE


def model(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 128),
        torch.nn.GELU(),
        torch.nn.Linear(128, 128),
        torch.nn.GELU(),
        torch.nn.Linear(128, 1),
    )
    return layers.to(device)


def train(
    step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], steps: int, device: torch.device
) -> tuple[float, float]:
    """Make steps on data that each rank has of its own; return the first and the last loss."""
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(steps):
        data = torch.randn(BATCH, WIDTH, generator=generator)
        wanted = data.sum(1, keepdim=True) / WIDTH**0.5
        losses.append(float(step(data.to(device), wanted.to(device))))
    return losses[0], losses[-1]


def trained(module: Any, optimizer: Any, steps: int) -> tuple[float, float]:
    def step(data: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (module(data) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train(step, steps, next(module.parameters()).device)


def weights_of(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in module.parameters()])


def parallel(group: Any, of_module: Any) -> Any:
    """Return the model under DDP on the device of a group, with many buckets.

    of_module   the process group that DDP itself uses
    """
    return DistributedDataParallel(
        model(device_of(group)), process_group=of_module, bucket_cap_mb=0.01
    )


def ddp(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    module = DistributedDataParallel(
        model(device_of(group)), process_group=group, bucket_cap_mb=0.01
    )
    losses = trained(module, torch.optim.Adam(module.parameters(), RATE), steps)
    return weights_of(module), losses


def accumulated(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    """Gradients are summed up over two batches, of which the first one is not reduced."""
    module = DistributedDataParallel(
        model(device_of(group)), process_group=group, bucket_cap_mb=0.01
    )
    optimizer = torch.optim.Adam(module.parameters(), RATE)

    def step(data: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        losses = []
        for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
            with module.no_sync() if half.start == 0 else contextlib.nullcontext():
                losses.append((module(data[half]) - wanted[half]).square().mean() / 2)
                losses[-1].backward()
        optimizer.step()
        return sum(losses).detach()

    losses = train(step, steps, device_of(group))
    return weights_of(module), losses


def joined(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    """Each rank has two batches more than the one before; the others wait for the last."""
    module = DistributedDataParallel(
        model(device_of(group)), process_group=group, bucket_cap_mb=0.01
    )
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    with Join([module]):
        losses = trained(module, optimizer, steps + 2 * dist.get_rank())
    return weights_of(module), losses


def hooked(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    """Gradients by the communication hook, all else by gloo."""
    module = DistributedDataParallel(
        model(device_of(group)), process_group=gloo(), bucket_cap_mb=0.01
    )
    if group is not gloo():
        module.register_comm_hook(None, tuner.torch.allreduce_hook)
    losses = trained(module, torch.optim.Adam(module.parameters(), RATE), steps)
    return weights_of(module), losses


def zero(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    module = DistributedDataParallel(model(device_of(group)), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), torch.optim.Adam, process_group=group, lr=RATE
    )
    losses = trained(module, optimizer, steps)
    return weights_of(module), losses


def fsdp(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    module = FullyShardedDataParallel(
        model(device_of(group)),
        process_group=group,
        device_id=device_of(group),
        use_orig_params=True,
    )
    losses = trained(module, torch.optim.Adam(module.parameters(), RATE), steps)
    with FullyShardedDataParallel.summon_full_params(module):
        return weights_of(module).clone(), losses


def fsdp2(group: Any, steps: int) -> tuple[torch.Tensor, Any]:
    module = model(device_of(group))
    mesh = DeviceMesh.from_group(group, device_of(group).type)
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    losses = trained(module, torch.optim.Adam(module.parameters(), RATE), steps)
    full: Any = [one.full_tensor().detach().flatten() for one in module.parameters()]
    return torch.cat(full), losses


_gloo: list[Any] = []


def gloo() -> Any:
    if not _gloo:
        _gloo.append(dist.new_group(backend="gloo"))
    return _gloo[0]


def main(steps: int) -> None:
    dist.init_process_group("tuner")
    for way in (ddp, accumulated, joined, hooked, zero, fsdp, fsdp2):
        expected, _ = way(gloo(), steps)
        found, losses = way(dist.group.WORLD, steps)
        expected = expected.to(found.device)
        apart = float((found - expected).abs().max() / expected.abs().max())
        others = copy.deepcopy(found)
        dist.broadcast(others, 0)
        same = torch.tensor([torch.equal(others, found)], device=DEVICE)
        dist.all_reduce(same, dist.ReduceOp.MIN)
        if dist.get_rank() == 0:
            told = {"way": way.__name__, "apart": apart, "losses": losses, "same": bool(same)}
            print(json.dumps(told), flush=True)
    dist.destroy_process_group()


main(int(sys.argv[1]))
