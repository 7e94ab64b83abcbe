"""Run by a probe in place of its ranks: the same, on devices that are pretended.

    TUNER_TEST_DEVICES="[aware] [nccl] [two]" probe_program.py PLAN RESULTS BUDGET LIMIT

aware   MPI takes the devices' memory, as it really does
nccl    there is a library like NCCL, whose trees give wrong results in protocol LL
two     devices on every host, joined; else one, which all ranks share
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.device import FakeDevice
from tuner.runtime import cuda_support, nccl


class PretendedNccl:
    """Keeps to what the environment says when it is made."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        said = os.environ.get("NCCL_ALGO"), os.environ.get("NCCL_PROTO")
        self._comm, self._wrong = comm, said == ("Tree", "LL")

    def bcast(self, buffer: Any, root: int) -> None:
        self._comm.Bcast(np.asarray(buffer), root)

    def allreduce(self, send: Any, receive: Any, op: MPI.Op) -> None:
        self._comm.Allreduce(np.asarray(send), np.asarray(receive), op)
        if self._wrong:
            receive[:1] += 1

    def release(self) -> None:
        pass


def main(plan: str, results: str, budget: str, limit: str) -> None:
    how = os.environ["TUNER_TEST_DEVICES"].split()
    os.environ["TUNER_CUDA_AWARE"] = str(int("aware" in how))
    cuda_support.cuda_device = cache(lambda: FakeDevice(2 if "two" in how else 1))
    if "nccl" in how:
        pretended: Any = PretendedNccl
        nccl.connect = pretended
    from tuner.rank_programs import probe

    probe.main(plan, results, budget, limit)


main(*sys.argv[1:])
