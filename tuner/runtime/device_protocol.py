"""Where a buffer lives, and what a device must be able to do.

CUDA is reached through CuPy, which is imported when the first device buffer is seen: programs
without one never load it.
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

NO_DEVICE = -1  # the number of the device of host memory
MESSAGES_ONLY = (
    "messages"  # TUNER_CUDA_AWARE of a library whose collectives do not take device memory
)
_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_MAX_POINTERS = 1024

DeviceArray = Any  # cupy.ndarray: CuPy ships no types
Kernel = Callable[[DeviceArray, DeviceArray], None]  # (first, second): second = first op second


class PointerCache:
    """Answers the driver has given about pointers, so that it is asked once.

    An answer, kept under (pointer, nbytes), holds as long as the object that owned the memory
    lives. CuPy's pool and every other allocator give memory back to the driver only after its
    owner has died; so whatever comes to lie at the same address later has another owner, and the
    driver is asked again. The oldest answer goes when there are too many.
    """

    def __init__(self, query: Callable[[int], int], max_pointers: int = _MAX_POINTERS) -> None:
        self.query, self._max_pointers = query, max_pointers
        self._answers: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        self._lock = Lock()  # all communicators share the cache, and threads may call on each

    def device(self, pointer: int, nbytes: int, owner: object) -> int:
        """Return the number of the device whose memory this is; NO_DEVICE for the host's."""
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
    """Memory that only CUDA-aware MPI may be given, and what computes there.

    Copies and kernels are started in order and not waited for; `synchronise` waits for all.
    """

    pointer_cache: PointerCache

    @property
    def number(self) -> int:
        """Return the number of the host's GPU that is current in this process."""

    def select(self, number: int) -> None:
        """Make this GPU of the host this process's own; numbers go round."""

    @property
    def pci_bus_id(self) -> str:
        """The address of this process's GPU on its host's bus."""

    @property
    def nccl_version(self) -> str:
        """NCCL's version; empty where there is none."""

    def has_nvlink(self, one: str, other: str) -> bool:
        """Whether NVLink joins the GPUs at two addresses of this host, as far as is known."""

    def provenance(self) -> dict[str, str]:
        """What the GPU is and what drives it, for provenance: names and versions."""

    def device_array(self, elements: AnyArray) -> DeviceArray:
        """The device's array for a host array that holds but an address of the device."""

    def allocate(self, nbytes: int) -> ByteArray:
        """Uninitialised device memory, to be given to `device_array`; it lives as long as the
        array.
        """

    def allocate_shared(self, nbytes: int) -> tuple[ByteArray, bytes]:
        """Scratch memory, and what another process on this host opens it with.

        Raises InputError where processes cannot share memory of the device.
        """

    def open_shared(self, handle: bytes, nbytes: int) -> ByteArray:
        """Another process's shareable memory, which must not go before this array does.

        Raises InputError as `allocate_shared` does.
        """

    def empty_like(self, like: DeviceArray) -> DeviceArray:
        """Uninitialised elements, as many and of the kind of `with_calibration`."""

    def copy_async(self, source: DeviceArray, target: DeviceArray) -> None:
        """Start copying all of `source` to as many bytes elsewhere on the device."""

    def upload(self, array: AnyArray) -> DeviceArray:
        """A new device array with the contents of a host array; waits for the copy."""

    def download(self, source: DeviceArray, target: AnyArray) -> None:
        """Copy all of `source` to as many bytes of any host memory; waits for the copy."""

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Host memory that the device copies from and to at full speed."""

    def copy_to_host_async(self, source: DeviceArray, target: AnyArray) -> None:
        """Start copying all of `source` to as many bytes of the host.

        To memory that is not pinned it is slower, and may have ended when this returns.
        """

    def copy_to_device_async(self, source: AnyArray, target: DeviceArray) -> None:
        """Start copying all of `source` to as many bytes of the device; pinned as for
        `copy_to_host_async`.
        """

    def synchronise(self) -> None:
        """Wait for what was started, by the program too: before MPI or the host looks."""

    def synchronise_buffers(self, *buffers: object) -> None:
        """The same, and wait for all that may still fill these: on the streams that other libraries
        name, and on all of a device where they name none, or where it is another one.
        """

    def kernel(self, op: MPI.Op, dtype: np.dtype[Any]) -> Kernel | None:
        """An element-wise kernel with exactly the host's result; None where there is none."""


def buffer_of(spec: Any) -> Any:
    """What has the memory in a buffer argument, which may be a list that says more of it."""
    return spec[0] if isinstance(spec, list | tuple) and spec else spec


def memory_kind_of(spec: Any, pointers: PointerCache | None = None) -> str:
    """Where the memory of a buffer argument is: HOST or CUDA; see `device_of`."""
    return HOST if device_of(spec, pointers) == NO_DEVICE else CUDA


def device_of(spec: Any, pointers: PointerCache | None = None) -> int:
    """Return the number of the device in whose memory a buffer is; NO_DEVICE for the host.

    pointers    whose answers to use, by default those of `cuda()`; without one nobody can be
                asked, and what shows CUDA's array interface is taken at its word where a GPU can be
    """
    buffer = buffer_of(spec)
    if type(buffer) is np.ndarray:
        return NO_DEVICE
    place = _pointer_and_nbytes(buffer)
    if place is not None:
        pointer, nbytes = place
        if nbytes == 0:  # lies nowhere, and the driver rejects its pointer
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
    """Return CUDA's array interface of an object; None where it shows none.

    PyTorch's raises for elements that it cannot name, and for tensors that need a gradient: mpi4py
    takes the former by DLPack, and refuses the latter itself.
    """
    try:
        return getattr(buffer, "__cuda_array_interface__", None)
    except Exception:  # noqa: BLE001 - whatever a property raises
        return None


def _pointer_and_nbytes(buffer: Any) -> tuple[int, int] | None:
    """Pointer and bytes of what shows CUDA's array interface."""
    if type(buffer).__module__ == "cupy":  # the interface would be a new dictionary every time
        return buffer.data.ptr, buffer.nbytes
    interface = cuda_array_interface_of(buffer)
    if interface is None:
        return None
    item = int(interface["typestr"][2:])
    return interface["data"][0], math.prod(interface["shape"]) * item


@cache
def cuda_device() -> Device:
    """This process's CUDA device, the one current in CuPy; raises InputError without one."""
    try:
        from tuner.runtime.cuda import CupyDevice
    except ImportError as reason:
        raise InputError(
            f"no NVIDIA GPU: CuPy cannot be imported ({reason}): pip install"
            " '.[cuda12]' or '.[cuda13]' where tuner was unpacked"
        ) from None
    return CupyDevice()


@cache
def cuda_device_or_none() -> Device | None:
    """The same; None without one."""
    try:
        return cuda_device()
    except InputError:
        return None


@cache
def is_cuda_aware() -> bool:
    """Whether the loaded MPI library takes device pointers; MPI must be initialised.

    Open MPI and MPICH each have a function that tells. Where there is none, the answer is no, but
    for a user who knows better: TUNER_CUDA_AWARE=1, or 0, is believed instead; `messages` says that
    messages take them and collectives do not (Open MPI without CUDA over a UCX with it).
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
    """Return whether the library's messages take device pointers, which is all that our schedules
    need.
    """
    return is_cuda_aware() or os.environ.get("TUNER_CUDA_AWARE") == MESSAGES_ONLY
