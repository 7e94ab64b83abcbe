"""A device whose memory is the host's: what staging and folding do, seen without a GPU.

Copies are carried out when somebody waits for them, so code that looks before it has waited sees
old contents.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray
from tuner.runtime.device_pointers import NO_DEVICE, PointerCache
from tuner.runtime.device_protocol import Kernel


class Resident(np.ndarray[Any, np.dtype[Any]]):
    """An array that shows CUDA's array interface, as device arrays do."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3, "stream": None}


def resident(content: AnyArray) -> Resident:
    """The same memory, said to be the device's."""
    return content.view(Resident)


class FakeDevice:
    """Everything a DeviceInterface does, counted. Pointers in `foreign` are registered host memory.

    count   devices of the host; ranks get them in turn
    """

    def __init__(self, count: int = 1) -> None:
        self._count, self.number, self.pci_bus_id, self.nccl_version = count, 0, "bus0", ""
        self.foreign: set[int] = set()
        self.queries = 0
        self.allocated: list[int] = []
        self.kernels_run = 0
        self.brought_to_host = 0
        self.pointer_cache = PointerCache(self._query)
        self._pending: list[Callable[[], None]] = []
        self.streams: dict[Any, list[Callable[[], None]]] = {}  # other libraries', by number

    def _query(self, pointer: int) -> int:
        self.queries += 1
        return NO_DEVICE if pointer in self.foreign else self.number

    def select(self, number: int) -> None:
        self.pci_bus_id = f"bus{number % self._count}"

    def has_nvlink(self, one: str, other: str) -> bool:
        return one != other and {one, other} <= {"bus0", "bus1"}

    def provenance(self) -> dict[str, str]:
        return {"name": "pretended", "bus": self.pci_bus_id}

    def allocate_shared(self, nbytes: int) -> tuple[NDArray[np.uint8], bytes]:
        handle = os.memfd_create("shared")  # open as long as somebody may look for it
        os.ftruncate(handle, nbytes)
        path = Path(f"/proc/{os.getpid()}/fd/{handle}")
        return np.memmap(path, np.uint8, "r+", shape=(nbytes,)), str(path).encode()

    def open_shared(self, handle: bytes, nbytes: int) -> NDArray[np.uint8]:
        return np.memmap(Path(handle.decode()), np.uint8, "r+", shape=(nbytes,))

    def device_array(self, elements: AnyArray) -> AnyArray:
        return resident(elements)

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        return np.full(nbytes, 0xA5, np.uint8)

    def copy_async(self, source: AnyArray, target: AnyArray) -> None:
        self._pending.append(lambda: np.copyto(target, source))

    def empty_like(self, like: AnyArray) -> AnyArray:
        return np.empty_like(like)

    def upload(self, array: AnyArray) -> AnyArray:
        return resident(array.copy())

    def download(self, source: AnyArray, target: AnyArray) -> None:
        self.synchronise()
        target[...] = source

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        self.allocated.append(nbytes)
        return np.full(nbytes, 0xA5, np.uint8)

    def copy_to_host_async(self, source: AnyArray, target: AnyArray) -> None:
        self.brought_to_host += 1
        self._pending.append(lambda: np.copyto(target, source))

    def copy_to_device_async(self, source: AnyArray, target: AnyArray) -> None:
        self._pending.append(lambda: np.copyto(target, source))

    def synchronise(self) -> None:
        while self._pending:
            self._pending.pop(0)()

    def synchronise_buffers(self, *buffers: Any) -> None:
        self.synchronise()
        for buffer in buffers:
            stream = getattr(buffer, "__cuda_array_interface__", {}).get("stream")
            for act in self.streams.pop(stream, []):
                act()

    def kernel(self, op: MPI.Op, dtype: np.dtype[Any]) -> Kernel | None:
        return self._add if op == MPI.SUM and dtype.kind in "iuf" else None

    def _add(self, first: AnyArray, second: AnyArray) -> None:
        self.kernels_run += 1

        def add() -> None:
            np.add(first, second, out=second)

        self._pending.append(add)
