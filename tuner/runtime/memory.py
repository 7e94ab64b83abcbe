"""The two kinds of memory that a schedule runs on, host and device, and their operations.

Memory is passed as arrays of bytes. Arrays of device memory hold only an address and a length:
CUDA-aware MPI takes them like host memory, and only this module accesses their contents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mpi4py import MPI

from tuner.runtime.buffers import ByteArray, elements_of
from tuner.runtime.cuda_support import cuda_device
from tuner.runtime.staging import Staging

if TYPE_CHECKING:
    from tuner.runtime.device_reduction import DeviceReducer


class Memory(Protocol):
    """An interface that allocates, copies and reduces memory of one kind.

    Copies and reductions run in the order of the calls; on a device they are asynchronous.
    """

    @property
    def wait_functions(self) -> tuple[Callable[[], None], ...]:
        """Functions to call before MPI or the program accesses copied or reduced memory."""

    def empty(self, nbytes: int) -> ByteArray:
        """Return uninitialised memory, which lives as long as the array."""

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        """Copy all of `source` to `target`, which has the same length."""

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        """Compute `second = first op second` for `count` elements as MPI's Reduce_local does."""


class HostMemory:
    """The memory of the host; see Memory."""

    wait_functions = ()

    def empty(self, nbytes: int) -> ByteArray:
        return np.empty(nbytes, np.uint8)

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        target[...] = source

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        op.Reduce_local([first, count, datatype], [second, count, datatype])


class DeviceMemory:
    """The memory of this process's device, which is looked up on first use; see Memory."""

    @cached_property
    def staging(self) -> Staging:
        """The staging of buffers through the host; raises InputError without a device."""
        return Staging(cuda_device())

    @cached_property
    def _reducer(self) -> DeviceReducer:
        from tuner.runtime.device_reduction import (
            DeviceReducer,  # takes time to import: only for devices
        )

        return DeviceReducer(self.staging)

    @property
    def wait_functions(self) -> tuple[Callable[[], None], ...]:
        return (self.staging.device.synchronise,)

    def empty(self, nbytes: int) -> ByteArray:
        return self.staging.device.allocate(nbytes)

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        device = self.staging.device
        device.copy_async(device.device_array(source), device.device_array(target))

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        # A kernel runs, or the host reduces, whichever is faster.
        over = self.staging.device.device_array
        one, two = (over(elements_of(part, count, datatype)) for part in (first, second))
        self._reducer.reduce(op, datatype, one, two)


HOST_MEMORY = HostMemory()
