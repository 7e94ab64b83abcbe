"""Buffers of a GPU for collectives and messages (rank side)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.runtime.device_protocol import Device, DeviceArray
from tuner.runtime.dispatch_table import METHODS
from tuner.runtime.staging import Access, Staging


class DeviceBuffers:
    """See Buffers: a GPU's, given to MPI as they are if it is CUDA-aware, else staged."""

    def __init__(self, device: Device, direct: bool) -> None:
        self._device, self._direct = device, direct
        self._staging = Staging(device)

    def ones(self, nbytes: int) -> DeviceArray:
        """See Buffers."""
        return self._device.copied(np.ones(nbytes // 4, np.float32))

    def put(self, values: AnyArray) -> DeviceArray:
        """See Buffers."""
        return self._device.copied(values)

    def get(self, buffer: DeviceArray) -> AnyArray:
        """See Buffers."""
        values = np.empty(buffer.size, buffer.dtype)
        self._device.fetch(buffer, values)
        return values

    def bound(
        self, comm: Any, collective: Collective, *given: tuple[Any, Access], last: tuple[Any, ...]
    ) -> Callable[[], object]:
        """See Buffers; with what the dispatcher does around the call."""
        return self.around(getattr(comm, METHODS[collective]), *given, last=last)

    def around(
        self, method: Callable[..., object], *given: tuple[Any, Access], last: tuple[Any, ...]
    ) -> Callable[[], object]:
        """A call of MPI on buffers of the device."""
        device = self._device

        def direct() -> None:
            device.synchronise()
            method(*(buffer for buffer, _ in given), *last)

        def staged() -> None:
            self._staging(lambda *host: method(*host, *last), *given)

        return direct if self._direct else staged
