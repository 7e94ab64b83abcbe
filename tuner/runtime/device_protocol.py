"""The location of buffers, host or device, and the interface of a device.

CUDA is used through CuPy, which is imported when the first device buffer is seen: programs without
device buffers never load it.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray
from tuner.base.errors import InputError
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime.buffers import ByteArray
from tuner.runtime.control_variables import library_functions
from tuner.runtime.dlpack import HOST_DEVICE_TYPES
from tuner.runtime.nvidia import is_gpu_possible

NO_DEVICE = -1  # device number that stands for host memory
MESSAGES_ONLY = (
    "messages"  # TUNER_CUDA_AWARE of a library whose collectives do not take device memory
)
_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_MAX_POINTERS = 1024

DeviceArray = Any  # cupy.ndarray: CuPy has no type hints
Kernel = Callable[[DeviceArray, DeviceArray], None]  # (first, second): second = first op second


class PointerCache:
    """A cache of the driver's answers about pointers.

    query           asks the driver for the device number of a pointer
    max_pointers    number of cached answers; the oldest are dropped

    An answer, cached under (pointer, nbytes), is valid while the object that owned the memory
    lives. CuPy's pool and every other allocator return memory to the driver only after its owner
    has died. So other memory at the same address later has another owner, and the driver is asked
    again.
    """

    def __init__(self, query: Callable[[int], int], max_pointers: int = _MAX_POINTERS) -> None:
        self.query, self._max_pointers = query, max_pointers
        self._answers: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        self._lock = Lock()  # all communicators share the cache, and threads may call on each

    def device(self, pointer: int, nbytes: int, owner: object) -> int:
        """Return the number of the device that has this memory; NO_DEVICE for host memory."""
        known = self._answers.get((pointer, nbytes))
        if known is not None and known[0]() is owner:
            return known[1]
        number = self.query(pointer)
        if type(owner).__weakrefoffset__:
            with self._lock:
                if len(self._answers) >= self._max_pointers:
                    del self._answers[next(iter(self._answers))]
                self._answers[pointer, nbytes] = weakref.ref(owner), number
        return number


class Device(Protocol):
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


def buffer_of(spec: Any) -> Any:
    """Return the object with the memory in a buffer argument: itself or its first item."""
    return spec[0] if isinstance(spec, list | tuple) and spec else spec


def memory_kind_of(spec: Any, pointers: PointerCache | None = None) -> str:
    """Return the kind of memory of a buffer argument, HOST or CUDA; see `device_of`."""
    return HOST if device_of(spec, pointers) == NO_DEVICE else CUDA


def device_of(spec: Any, pointers: PointerCache | None = None) -> int:
    """Return the number of the device in whose memory a buffer is; NO_DEVICE for the host.

    pointers    cache of the driver's answers, by default that of `cuda_device()`. Without a CUDA
                device here, an object with CUDA's array interface counts as memory of device 0
                where the process can have a GPU at all
    """
    buffer = buffer_of(spec)
    if type(buffer) is np.ndarray:
        return NO_DEVICE
    place = _pointer_and_nbytes(buffer)
    if place is not None:
        pointer, nbytes = place
        if nbytes == 0:  # without memory: the driver rejects its pointer
            return NO_DEVICE
        base = getattr(buffer, "base", None)
        owner = buffer if base is None else base
        if pointers is None:
            device = cuda_device_or_none()
            if device is None:
                return 0 if is_gpu_possible() else NO_DEVICE
            pointers = device.pointer_cache
        return pointers.device(pointer, nbytes, owner)
    tensor = getattr(buffer, "__dlpack_device__", None)
    if tensor is None:
        return NO_DEVICE
    kind, number = tensor()
    return NO_DEVICE if kind in HOST_DEVICE_TYPES else int(number)


def cuda_array_interface_of(buffer: Any) -> Any:
    """Return CUDA's array interface of an object; None where it has none.

    PyTorch's raises for elements that it cannot describe and for tensors that require a gradient:
    mpi4py takes the former by DLPack, and refuses the latter itself.
    """
    try:
        return getattr(buffer, "__cuda_array_interface__", None)
    except Exception:  # noqa: BLE001 - whatever a property raises
        return None


def _pointer_and_nbytes(buffer: Any) -> tuple[int, int] | None:
    """Return pointer and bytes of an object with CUDA's array interface; None for others."""
    if type(buffer).__module__ == "cupy":  # faster: the interface is a new dictionary every time
        return buffer.data.ptr, buffer.nbytes
    interface = cuda_array_interface_of(buffer)
    if interface is None:
        return None
    item = int(interface["typestr"][2:])
    return interface["data"][0], math.prod(interface["shape"]) * item


@cache
def cuda_device() -> Device:
    """Return this process's CUDA device, current in CuPy; raises InputError without one."""
    try:
        from tuner.runtime.cuda import CupyDevice
    except ImportError as reason:
        raise InputError(
            f"no NVIDIA GPU: CuPy cannot be imported ({reason}): pip install 'tuner[cuda12]'"
            " or 'tuner[cuda13]'"
        ) from None
    return CupyDevice()


@cache
def cuda_device_or_none() -> Device | None:
    """Return this process's CUDA device; None without one."""
    try:
        return cuda_device()
    except InputError:
        return None


@cache
def is_cuda_aware() -> bool:
    """Return whether the loaded MPI library takes device pointers; MPI must be initialised.

    Open MPI and MPICH each have a function that tells; without it the answer is no. The variable
    TUNER_CUDA_AWARE overrides it: 1 for yes, 0 for no, and `messages` where messages take device
    pointers and collectives do not (Open MPI without CUDA over a UCX with it).
    """
    said = os.environ.get("TUNER_CUDA_AWARE", "")
    if said:
        return said not in ("0", MESSAGES_ONLY)
    mpi = library_functions()
    if hasattr(mpi, "MPIX_Query_cuda_support"):
        return bool(mpi.MPIX_Query_cuda_support())
    if hasattr(mpi, "MPIX_GPU_query_support"):
        answer = ctypes.c_int()
        code = mpi.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(answer))
        return code == MPI.SUCCESS and bool(answer.value)
    return False


@cache
def has_cuda_messages() -> bool:
    """Return whether the library's messages take device pointers, as our schedules need."""
    return is_cuda_aware() or os.environ.get("TUNER_CUDA_AWARE") == MESSAGES_ONLY
