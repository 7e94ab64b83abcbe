"""Run by mpirun, torchrun or alone: rank 0 prints which ranks there are and what they add up to."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import tuner.torch

dist.init_process_group("tuner", pg_options=tuner.torch.Options(verbose=True))
total = torch.full((1000,), dist.get_rank() + 1.0)
dist.all_reduce(total)
listed = [None] * dist.get_world_size()
dist.all_gather_object(listed, (dist.get_rank(), os.environ["LOCAL_RANK"]))
if dist.get_rank() == 0:
    print(f"{listed} {float(total[0]):g}", flush=True)
dist.destroy_process_group()
