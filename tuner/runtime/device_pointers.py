"""The device whose memory a buffer is in, by its pointer.

Nothing here loads CuPy: who knows the driver passes a function that asks it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from tuner.runtime.dlpack import HOST_DEVICE_TYPES

NO_DEVICE = -1  # device number that stands for host memory
_MAX_POINTERS = 1024

PointerQuery = Callable[[int, int, object], int]  # (pointer, nbytes, owner): device number


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


def buffer_of(spec: Any) -> Any:
    """Return the object with the memory in a buffer argument: itself or its first item."""
    return spec[0] if isinstance(spec, list | tuple) and spec else spec


def find_device(spec: Any, query: PointerQuery) -> int:
    """Return the number of the device in whose memory a buffer is; NO_DEVICE for the host.

    spec    a buffer argument
    query   asked for the device of a pointer, of objects with CUDA's array interface
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
        return query(pointer, nbytes, buffer if base is None else base)
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
