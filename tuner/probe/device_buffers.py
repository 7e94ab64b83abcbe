"""Buffers of a GPU for collectives and messages (rank side)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.runtime.device_protocol import DeviceArray, DeviceInterface
from tuner.runtime.staging import BufferAccess, Staging


class DeviceBuffers:
    """Buffers of a GPU, passed to MPI directly if it is CUDA-aware, else staged.

    See `tuner.probe.collectives.CallBuffers`.
    """

    def __init__(self, device: DeviceInterface, direct: bool) -> None:
        self._device, self._direct = device, direct
        self._staging = Staging(device)

    def ones(self, nbytes: int) -> DeviceArray:
        """Return a float32 device buffer of ones."""
        return self._device.upload(np.ones(nbytes // 4, np.float32))

    def from_numpy(self, values: AnyArray) -> DeviceArray:
        return self._device.upload(values)

    def to_numpy(self, buffer: DeviceArray) -> AnyArray:
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
        """Return the call on these buffers, with all that the dispatcher does around it."""
        return self.bind_method(
            getattr(comm, collective.spec.mpi), *buffers, trailing_args=trailing_args
        )

    def bind_method(
        self,
        method: Callable[..., object],
        *buffers: tuple[Any, BufferAccess],
        trailing_args: tuple[Any, ...],
    ) -> Callable[[], object]:
        device = self._device

        def direct() -> None:
            device.synchronise()
            method(*(buffer for buffer, _ in buffers), *trailing_args)

        def staged() -> None:
            self._staging(lambda *host: method(*host, *trailing_args), *buffers)

        return direct if self._direct else staged
