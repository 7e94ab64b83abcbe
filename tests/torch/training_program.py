"""Run by mpirun: train a small model on every rank's own data, gradients averaged by Allreduce.

training_program.py copied|given STEPS

copied      the program copies gradients to the host for MPI, and back
given       they are given as they are, on a GPU if there is one, under a table that takes a ring

Rank 0 prints one line of JSON: where the model was, the seconds of a step (median over steps of the
slowest rank), the first and the last loss, and how far the models of the ranks differ.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

import torch
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable
from tuner.runtime import tune
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
HIDDEN = 1024
BATCH = 64
RATE = 0.01


def device_of_this_rank() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", WORLD.rank % torch.cuda.device_count())


class Training:
    """A model whose gradients lie in one tensor, which is what Allreduce gets."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
        ).to(device)
        self.weights = list(self.model.parameters())
        self.flat = torch.zeros(sum(one.numel() for one in self.weights), device=device)
        begin = 0
        for one in self.weights:
            one.grad = self.flat[begin : begin + one.numel()].view_as(one)
            begin += one.numel()
        generator = torch.Generator().manual_seed(WORLD.rank)
        self.data = torch.randn(BATCH, HIDDEN, generator=generator).to(device)
        self.wanted = self.data.sum(1, keepdim=True) / HIDDEN**0.5

    def gradients(self) -> float:
        """Compute the gradients of this rank; return its loss."""
        self.flat.zero_()
        loss = (self.model(self.data) - self.wanted).square().mean()
        loss.backward()
        return float(loss.detach())

    def learn(self) -> None:
        """Move the weights by the mean of all ranks' gradients."""
        with torch.no_grad():
            for one in self.weights:
                assert one.grad is not None
                one -= RATE / WORLD.size * one.grad


def averaged(comm: Any, flat: torch.Tensor, how: str) -> None:
    if how == "given":
        comm.Allreduce(MPI.IN_PLACE, flat)
        return
    host = flat.cpu()
    comm.Allreduce(MPI.IN_PLACE, host)
    flat.copy_(host)


def table() -> TuningTable:
    ring = [(0, AlgorithmChoice()), (1 << 20, AlgorithmChoice("ring", {}, SCHEDULE))]
    return table_of({(Collective.ALLREDUCE, WORLD.size): ring}, library=library_name())


def main(how: str, steps: int) -> None:
    comm = tune(WORLD.Dup(), table()) if how == "given" else WORLD
    training = Training(device_of_this_rank())
    losses, seconds = [], []
    for _ in range(steps):
        comm.Barrier()
        begun = time.perf_counter()
        losses.append(training.gradients())
        averaged(comm, training.flat, how)
        training.learn()
        if training.flat.is_cuda:
            torch.cuda.synchronize()
        seconds.append(WORLD.allreduce(time.perf_counter() - begun, MPI.MAX))
    mine = torch.cat([one.detach().flatten() for one in training.weights]).cpu().numpy()
    models = WORLD.gather(mine)
    if models is not None:
        print(
            json.dumps(
                {
                    "device": str(training.flat.device),
                    "ranks": WORLD.size,
                    "bytes": training.flat.nbytes,
                    "seconds": median(seconds[1:]),
                    "losses": [losses[0], losses[-1]],
                    "apart": max(float(abs(one - models[0]).max()) for one in models),
                }
            )
        )


main(sys.argv[1], int(sys.argv[2]))
