"""The two kinds of memory that a schedule runs on, and all that differs between them.

Memory is handed around as arrays of bytes. A device's hold an address and a length alone: MPI, when
it is CUDA-aware, takes them like the host's, and nobody but this module looks into either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mpi4py import MPI

from tuner.runtime.buffers import ByteArray, elements_of
from tuner.runtime.device_protocol import cuda_device
from tuner.runtime.staging import Staging

if TYPE_CHECKING:
    from tuner.runtime.device_reduction import DeviceReducer


class Memory(Protocol):
    """Makes, copies and reduces memory of its kind.

    Copies and reductions happen in the order of the calls, but on a device not at once.
    """

    @property
    def wait_functions(self) -> tuple[Callable[[], None], ...]:
        """What to call before MPI or the program looks at what was copied or reduced."""

    def empty(self, nbytes: int) -> ByteArray:
        """Uninitialised memory, which lives as long as the array."""

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        """Copy all of `source` to `target`, which is as long."""

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        """`second = first op second` for `count` elements, as MPI's Reduce_local computes it."""


class HostMemory:
    """See Memory."""

    wait_functions = ()

    def empty(self, nbytes: int) -> ByteArray:
        """See Memory."""
        return np.empty(nbytes, np.uint8)

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        """See Memory."""
        target[...] = source

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        """See Memory."""
        op.Reduce_local([first, count, datatype], [second, count, datatype])


class DeviceMemory:
    """See Memory. The device is asked for by the first use."""

    @cached_property
    def staging(self) -> Staging:
        """For whatever must go through the host; raises InputError where there is no device."""
        return Staging(cuda_device())

    @cached_property
    def _reducer(self) -> DeviceReducer:
        from tuner.runtime.device_reduction import (
            DeviceReducer,  # costs, which programs of the host do without
        )

        return DeviceReducer(self.staging)

    @property
    def wait_functions(self) -> tuple[Callable[[], None], ...]:
        """See Memory."""
        return (self.staging.device.synchronise,)

    def empty(self, nbytes: int) -> ByteArray:
        """See Memory."""
        return self.staging.device.allocate(nbytes)

    def copy(self, source: ByteArray, target: ByteArray) -> None:
        """See Memory."""
        device = self.staging.device
        device.copy_async(device.device_array(source), device.device_array(target))

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, count: int, first: ByteArray, second: ByteArray
    ) -> None:
        """See Memory; by a kernel or on the host, whichever is faster."""
        over = self.staging.device.device_array
        one, two = (over(elements_of(part, count, datatype)) for part in (first, second))
        self._reducer.reduce(op, datatype, one, two)


HOST_MEMORY = HostMemory()
