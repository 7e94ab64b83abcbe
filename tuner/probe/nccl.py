"""NCCL's algorithms and protocols, each on a communicator of its own (rank side).

NCCL reads NCCL_ALGO and NCCL_PROTO when a communicator is made, and keeps using them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.probe.device_buffers import DeviceBuffers
from tuner.runtime.nccl import NcclComm, Unavailable, connect
from tuner.runtime.staging import BufferAccess


@dataclass(frozen=True)
class NcclVariant:
    """NCCL under given settings, in place of MPI's communicator."""

    rank: int
    size: int
    nccl: NcclComm

    @classmethod
    def connect(
        cls, comm: MPI.Intracomm, settings: Mapping[str, int | str]
    ) -> NcclVariant | Unavailable:
        """Make an NCCL communicator over the ranks of `comm` under `settings`; collective.

        All ranks get the same kind of answer. `comm` stays in use until NCCL is released.
        """
        with environment_variables(settings):
            made = connect(comm)
        return made if isinstance(made, Unavailable) else cls(comm.rank, comm.size, made)


@contextmanager
def environment_variables(settings: Mapping[str, int | str]) -> Iterator[None]:
    """Set these variables inside the context and restore them after it, for C libraries too."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update({name: str(value) for name, value in settings.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class NcclBuffers(DeviceBuffers):
    """Buffers of a GPU for NCCL; see `CallBuffers`."""

    def bind_collective(
        self,
        comm: Any,
        collective: Collective,
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        method = getattr(comm.nccl, collective.value)
        return partial(method, *(buffer for buffer, _ in buffers), *trailing_args)
