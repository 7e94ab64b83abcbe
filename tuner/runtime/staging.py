"""Calls with device buffers through pinned host memory, for MPI that takes only host pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import IntFlag
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.core.path_classes import CUDA
from tuner.runtime.buffers import replace_memory, underlying_bytes
from tuner.runtime.cuda_support import memory_kind_of
from tuner.runtime.device_pointers import buffer_of
from tuner.runtime.device_protocol import DeviceInterface

Result = TypeVar("Result")
MAX_IDLE_PINNED_BYTES = 256 << 20  # kept for later calls unless one call needs more
MIN_PINNED_BYTES = 4096


class BufferAccess(IntFlag):
    """The access of a call to a buffer argument; UNUSED where this rank's argument is ignored."""

    UNUSED = 0
    READ = 1
    WRITE = 2


UNUSED, READ, WRITE = BufferAccess.UNUSED, BufferAccess.READ, BufferAccess.WRITE


class PinnedPool:
    """A pool of pinned host memory, whose allocation takes longer than most messages.

    Sizes are powers of two. As much is kept idle as was lent at one time, and at least
    `max_idle_bytes`; of further memory what was used longest ago is freed.
    """

    def __init__(
        self,
        allocate: Callable[[int], NDArray[np.uint8]],
        max_idle_bytes: int = MAX_IDLE_PINNED_BYTES,
    ) -> None:
        self._allocate, self._max_idle_bytes = allocate, max_idle_bytes
        self._idle: list[NDArray[np.uint8]] = []  # what was used last comes last
        self._lent_nbytes = 0

    @property
    def idle_nbytes(self) -> int:
        return sum(memory.nbytes for memory in self._idle)

    @contextmanager
    def lend(self, nbytes: int) -> Iterator[NDArray[np.uint8]]:
        """Lend memory of `nbytes`; copies must have ended when the context ends."""
        memory = self._take(max(MIN_PINNED_BYTES, 1 << max(nbytes - 1, 0).bit_length()))
        self._lent_nbytes += memory.nbytes
        self._max_idle_bytes = max(self._max_idle_bytes, self._lent_nbytes)
        try:
            yield memory[:nbytes]
        finally:
            self._lent_nbytes -= memory.nbytes
            self._idle.append(memory)
            while self.idle_nbytes > self._max_idle_bytes:
                del self._idle[0]

    def _take(self, capacity: int) -> NDArray[np.uint8]:
        for place, memory in enumerate(self._idle):
            if memory.nbytes == capacity:
                return self._idle.pop(place)
        return self._allocate(capacity)


class Staging:
    """A caller of functions with host copies of device buffers."""

    def __init__(self, device: DeviceInterface) -> None:
        self.device = device
        self.pool = PinnedPool(device.allocate_pinned)

    def __call__(self, call: Callable[..., Result], *arguments: tuple[Any, BufferAccess]) -> Result:
        """Run `call(*specs)` with each device buffer replaced by a host copy.

        arguments   pairs of a buffer argument, as mpi4py takes it, and its access; host buffers and
                    MPI's constants without memory are passed as they are

        Written copies are copied back after the call; when it raises, nothing is written.
        """
        with ExitStack() as lent:
            self.device.synchronise_buffers(
                *(buffer_of(spec) for spec, access in arguments if access)
            )
            staged = [self._stage(spec, access, lent) for spec, access in arguments]
            self.device.synchronise()
            result = call(*(spec for spec, _ in staged))
            for _, bring_back in staged:
                bring_back()
            self.device.synchronise()
        return result

    def _stage(
        self, spec: Any, access: BufferAccess, lent: ExitStack
    ) -> tuple[Any, Callable[[], None]]:
        """Return the argument that replaces `spec`, and a function to call after the call."""
        if not access or memory_kind_of(spec, self.device.pointer_cache) != CUDA:
            return spec, _do_nothing
        array = self.device.device_array(underlying_bytes(spec, writable=bool(access & WRITE)))
        host = lent.enter_context(self.pool.lend(array.nbytes))
        # The call must not change items that count, displacement and datatype leave out.
        if access & READ or isinstance(spec, list | tuple):
            self.device.copy_to_host_async(array, host)

        def bring_back() -> None:
            if access & WRITE:
                self.device.copy_to_device_async(host, array)

        return replace_memory(spec, host), bring_back


def _do_nothing() -> None:
    pass
