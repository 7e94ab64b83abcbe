"""Calls on device buffers through pinned host memory, for MPI that takes host pointers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import IntFlag
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.core.path_classes import CUDA
from tuner.runtime.buffers import memory_behind, moved
from tuner.runtime.device_protocol import Device, buffer_of, memory_of

Result = TypeVar("Result")
MOST_IDLE = 256 << 20  # bytes of pinned memory kept for the next call
SMALLEST = 4096


class Access(IntFlag):
    """What a call does with an argument; on some ranks it does not look at it."""

    UNUSED = 0
    READ = 1
    WRITE = 2


UNUSED, READ, WRITE = Access.UNUSED, Access.READ, Access.WRITE


class PinnedPool:
    """Pinned host memory, reused: allocating it takes longer than most messages.

    Sizes are powers of two. At most `most` bytes lie idle; what would exceed that is freed.
    """

    def __init__(self, allocate: Callable[[int], NDArray[np.uint8]], most: int = MOST_IDLE) -> None:
        self._allocate, self._most = allocate, most
        self._idle: dict[int, list[NDArray[np.uint8]]] = {}
        self.idle_nbytes = 0

    @contextmanager
    def lend(self, nbytes: int) -> Iterator[NDArray[np.uint8]]:
        """Memory of `nbytes`, to be handed back with no copy under way."""
        capacity = max(SMALLEST, 1 << (nbytes - 1).bit_length()) if nbytes else SMALLEST
        shelf = self._idle.setdefault(capacity, [])
        if shelf:
            memory = shelf.pop()
            self.idle_nbytes -= capacity
        else:
            memory = self._allocate(capacity)
        try:
            yield memory[:nbytes]
        finally:
            if self.idle_nbytes + capacity <= self._most:
                shelf.append(memory)
                self.idle_nbytes += capacity


class Staging:
    """Makes calls with host copies of device buffers."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.pool = PinnedPool(device.pinned)

    def __call__(self, call: Callable[..., Result], *arguments: tuple[Any, Access]) -> Result:
        """`call(*specs)`, each device buffer replaced by a host copy of the same elements.

        arguments   (buffer argument as mpi4py takes it, what the call does with it); host buffers
                    and MPI's names for no memory pass as they are

        Written copies go back when the call has returned; when it raises, nothing is written.
        """
        with ExitStack() as lent:
            self.device.settle(*(buffer_of(spec) for spec, access in arguments if access))
            staged = [self._stage(spec, access, lent) for spec, access in arguments]
            self.device.synchronise()
            result = call(*(spec for spec, _ in staged))
            for _, bring_back in staged:
                bring_back()
            self.device.synchronise()
        return result

    def _stage(self, spec: Any, access: Access, lent: ExitStack) -> tuple[Any, Callable[[], None]]:
        """What stands for `spec` in the call, and what to do after the call."""
        if not access or memory_of(spec, self.device.pointers) != CUDA:
            return spec, _nothing
        array = self.device.over(memory_behind(spec, writable=bool(access & WRITE)))
        host = lent.enter_context(self.pool.lend(array.nbytes))
        # Counts, displacements and datatypes may leave items that the call must not change.
        if access & READ or isinstance(spec, list | tuple):
            self.device.to_host(array, host)

        def bring_back() -> None:
            if access & WRITE:
                self.device.to_device(host, array)

        return moved(spec, host), bring_back


def _nothing() -> None:
    pass
