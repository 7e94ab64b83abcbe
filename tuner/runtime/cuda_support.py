"""The CUDA device of this process, the memory of its buffers, and its MPI library's support.

CUDA is used through CuPy, which is imported when the first device buffer is seen: programs without
device buffers never load it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime.control_variables import library_functions
from tuner.runtime.device_pointers import NO_DEVICE, PointerCache, find_device
from tuner.runtime.device_protocol import DeviceInterface
from tuner.runtime.nvidia import is_gpu_possible

# TUNER_CUDA_AWARE of a library whose collectives do not take device memory.
MESSAGES_ONLY = "messages"
_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA


def memory_kind_of(spec: Any, pointers: PointerCache | None = None) -> str:
    """Return the kind of memory of a buffer argument, HOST or CUDA; see `device_of`."""
    return HOST if device_of(spec, pointers) == NO_DEVICE else CUDA


def device_of(spec: Any, pointers: PointerCache | None = None) -> int:
    """Return the number of the device in whose memory a buffer is; NO_DEVICE for the host.

    pointers    cache of the driver's answers, by default that of `cuda_device()`. Without a CUDA
                device here, an object with CUDA's array interface counts as memory of device 0
                where the process can have a GPU at all
    """
    return find_device(spec, _device_of_pointer if pointers is None else pointers.device)


def _device_of_pointer(pointer: int, nbytes: int, owner: object) -> int:
    """Return what the cache of `cuda_device()` knows; see `device_of` for a process without it."""
    device = cuda_device_or_none()
    if device is None:
        return 0 if is_gpu_possible() else NO_DEVICE
    return device.pointer_cache.device(pointer, nbytes, owner)


@cache
def cuda_device() -> DeviceInterface:
    """Return this process's CUDA device, current in CuPy; raises InputError without one."""
    try:
        from tuner.runtime.cuda import CupyDevice
    except ImportError as reason:
        raise InputError(
            f"no NVIDIA GPU: CuPy cannot be imported ({reason}): pip install"
            " '.[cuda12]' or '.[cuda13]' where tuner was unpacked"
        ) from None
    return CupyDevice()


@cache
def cuda_device_or_none() -> DeviceInterface | None:
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
