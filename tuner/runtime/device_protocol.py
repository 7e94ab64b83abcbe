"""The interface of a device: its memory, copies and reduction kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray
from tuner.runtime.buffers import ByteArray
from tuner.runtime.device_pointers import PointerCache

DeviceArray = Any  # cupy.ndarray: CuPy has no type hints
Kernel = Callable[[DeviceArray, DeviceArray], None]  # (first, second): second = first op second


class DeviceInterface(Protocol):
    """An interface to a device: its memory, copies and reduction kernels.

    Copies and kernels are started in order and run asynchronously; `synchronise` waits for all.
    """

    pointer_cache: PointerCache

    @property
    def number(self) -> int:
        """The number of the host's GPU that is current in this process."""

    def select(self, number: int) -> None:
        """Make a GPU of the host current; the number is taken modulo the number of GPUs."""

    @property
    def pci_bus_id(self) -> str:
        """The PCI bus address of this process's GPU on its host."""

    @property
    def nccl_version(self) -> str:
        """The version of NCCL; empty where it is not available."""

    def has_nvlink(self, one: str, other: str) -> bool:
        """Return whether NVLink connects the GPUs at two bus addresses of this host.

        False where it is not known.
        """

    def provenance(self) -> dict[str, str]:
        """Return names and versions of the GPU, its driver and libraries, for provenance."""

    def device_array(self, elements: AnyArray) -> DeviceArray:
        """Return the device array for a numpy array that holds only a device address."""

    def allocate(self, nbytes: int) -> ByteArray:
        """Return uninitialised device memory for `device_array`.

        It lives as long as the array.
        """

    def allocate_shared(self, nbytes: int) -> tuple[ByteArray, bytes]:
        """Return device memory and the handle by which another process on this host opens it.

        Raises InputError where processes cannot share memory of the device.
        """

    def open_shared(self, handle: bytes, nbytes: int) -> ByteArray:
        """Open another process's shared memory, which must outlive the returned array.

        Raises InputError as `allocate_shared` does.
        """

    def empty_like(self, like: DeviceArray) -> DeviceArray:
        """Return an uninitialised device array with the shape and dtype of `like`."""

    def copy_async(self, source: DeviceArray, target: DeviceArray) -> None:
        """Start copying all of `source` to `target` on the device, which has as many bytes."""

    def upload(self, array: AnyArray) -> DeviceArray:
        """Copy a host array to a new device array and wait for the copy."""

    def download(self, source: DeviceArray, target: AnyArray) -> None:
        """Copy all of `source` to any host memory of as many bytes and wait for the copy."""

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Return pinned host memory, which the device copies from and to at full speed."""

    def copy_to_host_async(self, source: DeviceArray, target: AnyArray) -> None:
        """Start copying all of `source` to as many bytes of host memory.

        To memory that is not pinned the copy is slower and may be synchronous.
        """

    def copy_to_device_async(self, source: AnyArray, target: DeviceArray) -> None:
        """Start copying all of `source` to as many bytes of device memory.

        From memory that is not pinned the copy is slower and may be synchronous.
        """

    def synchronise(self) -> None:
        """Wait for all work on the current stream, including the program's.

        It is called before MPI or the host accesses device memory.
        """

    def synchronise_buffers(self, *buffers: object) -> None:
        """Call `synchronise` and wait for all work that may still write to these buffers.

        It waits for the stream that another library names for its buffer, and for the whole device
        where it names none or the buffer is on another device.
        """

    def kernel(self, op: MPI.Op, dtype: np.dtype[Any]) -> Kernel | None:
        """Return an element-wise kernel with exactly the host's result; None without one."""
