"""The ranks of `tests.bench.torch_training`: `python -m tests.bench.torch_training_ranks PLAN`.

PLAN is JSON: table, turns, steps, batch, width, bucket (MiB). The same model learns the same data
over each of three process groups, which take turns of some steps. Rank 0 prints one line of JSON:
by group the seconds of the steps, on the rank where they took longest, the losses over all ranks,
and how far the weights are from those of gloo, as a part of the largest one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import tuner.torch

CLASSES = 10
CHANNELS = 3
SIDE = 16
NOISE = 1.0  # standard deviation of a pixel about the pattern of its class
RATE = 0.02
MOMENTUM = 0.9
MODEL_SEED = 1
PATTERN_SEED = 2
DATA_SEED = 1000
WARM_UP_TURNS = 1


def network(width: int) -> nn.Module:
    """Return a small convolutional network, its weights the same on all ranks."""
    torch.manual_seed(MODEL_SEED)
    return nn.Sequential(
        nn.Conv2d(CHANNELS, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (SIDE // 4) ** 2, 16 * width),
        nn.ReLU(),
        nn.Linear(16 * width, CLASSES),
    )


class Training:
    """The training of the model over one process group; the data depend on rank and step alone."""

    def __init__(self, group: Any, batch: int, width: int, bucket: float) -> None:
        self.module = DistributedDataParallel(
            network(width), process_group=group, bucket_cap_mb=bucket
        )
        self._optimizer = torch.optim.SGD(self.module.parameters(), RATE, MOMENTUM)
        self._batch = batch
        drawn = torch.Generator().manual_seed(PATTERN_SEED)
        self._patterns = torch.randn(CLASSES, CHANNELS, SIDE, SIDE, generator=drawn)
        self._data = torch.Generator().manual_seed(DATA_SEED + dist.get_rank())
        self.seconds, self.losses = list[float](), list[float]()

    def step(self) -> None:
        """Make one step on new images, and keep its time and its loss."""
        labels = torch.randint(CLASSES, (self._batch,), generator=self._data)
        noise = torch.randn(self._batch, CHANNELS, SIDE, SIDE, generator=self._data)
        images = self._patterns[labels] + NOISE * noise
        begin = time.perf_counter()
        self._optimizer.zero_grad()
        loss = cross_entropy(self.module(images), labels)
        loss.backward()
        self._optimizer.step()
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())

    def weights(self) -> torch.Tensor:
        """Return all weights in one tensor."""
        return torch.cat([one.detach().flatten() for one in self.module.parameters()])


def over_ranks(values: list[float], op: Any) -> list[float]:
    """Reduce a list of numbers over all ranks."""
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    found: list[float] = tensor.tolist()
    return found


def trained(plan: dict[str, Any]) -> dict[str, Any]:
    """Train over the groups in turn; return what rank 0 has to say."""
    groups = {
        "gloo": dist.new_group(backend="gloo"),
        "default": dist.new_group(backend="tuner", pg_options=tuner.torch.Options()),
        "table": dist.new_group(
            backend="tuner", pg_options=tuner.torch.Options(plan["table"], verbose=True)
        ),
    }
    sizes = (plan["batch"], plan["width"], plan["bucket"])
    trainings = {name: Training(group, *sizes) for name, group in groups.items()}
    names = list(trainings)
    for turn in range(WARM_UP_TURNS + plan["turns"]):
        for place in range(len(names)):
            dist.barrier()  # of gloo: the groups have no other calls than those of DDP
            training = trainings[names[(turn + place) % len(names)]]
            for _ in range(plan["steps"]):
                training.step()
    return record(trainings, WARM_UP_TURNS * plan["steps"])


def record(trainings: dict[str, Training], skipped: int) -> dict[str, Any]:
    """Return the record of all trainings; the first steps' times do not count."""
    known = trainings["gloo"].weights()
    told = {}
    for name, training in trainings.items():
        told[name] = {
            "seconds": over_ranks(training.seconds, dist.ReduceOp.MAX)[skipped:],
            "losses": [
                total / dist.get_world_size()
                for total in over_ranks(training.losses, dist.ReduceOp.SUM)
            ],
            "apart": float((training.weights() - known).abs().max() / known.abs().max()),
        }
    return {"parameters": len(known), "groups": told}


def main(plan: dict[str, Any]) -> None:
    """Train and print the line of rank 0."""
    dist.init_process_group("gloo")
    told = trained(plan)
    if dist.get_rank() == 0:
        print(json.dumps(told), flush=True)
    gc.collect()  # gloo's threads end with its groups; at the end of Python they would crash
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
