"""Buffers of a GPU for collectives and messages (rank side)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.runtime.device_protocol import Device, DeviceArray
from tuner.runtime.dispatch_table import METHODS
from tuner.runtime.staging import BufferAccess, Staging


class DeviceBuffers:
    """See Buffers: a GPU's, given to MPI as they are if it is CUDA-aware, else staged."""

    def __init__(self, device: Device, direct: bool) -> None:
        self._device, self._direct = device, direct
        self._staging = Staging(device)

    def ones(self, nbytes: int) -> DeviceArray:
        """See Buffers."""
        return self._device.upload(np.ones(nbytes // 4, np.float32))

    def from_numpy(self, values: AnyArray) -> DeviceArray:
        """See Buffers."""
        return self._device.upload(values)

    def to_numpy(self, buffer: DeviceArray) -> AnyArray:
        """See Buffers."""
        values = np.empty(buffer.size, buffer.dtype)
        self._device.download(buffer, values)
        return values

    def bind_collective(
        self,
        comm: Any,
        collective: Collective,
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        """See Buffers; with what the dispatcher does around the call."""
        return self.bind_method(
            getattr(comm, METHODS[collective]), *buffers, trailing_args=trailing_args
        )

    def bind_method(
        self,
        method: Callable[..., object],
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        """A call of MPI on buffers of the device."""
        device = self._device

        def direct() -> None:
            device.synchronise()
            method(*(buffer for buffer, _ in buffers), *trailing_args)

        def staged() -> None:
            self._staging(lambda *host: method(*host, *trailing_args), *buffers)

        return direct if self._direct else staged
