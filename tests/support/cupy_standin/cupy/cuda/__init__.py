"""See `cupy.cuda`: as much of it as is used here."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cupy import _driver
from cupy.cuda import device, runtime

__all__ = [
    "Device",
    "Event",
    "Memory",
    "MemoryPointer",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "Stream",
    "UnownedMemory",
    "device",
    "get_current_stream",
    "malloc_managed",
    "runtime",
]

Device = device.Device
_streams: list[Stream] = []  # that are current, the last one first


class Memory:
    """Past the pool."""

    def __init__(self, size: int) -> None:
        self.block = _driver.Block(size, runtime.getDevice())
        self.ptr, self.size, self.device_id = self.block.address, size, self.block.device


class UnownedMemory:
    """Somebody else's. Asks the driver for the device unless that is given."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        if device_id < 0:
            device_id = runtime.pointerGetAttributes(ptr).device
        self.ptr, self.size, self.device_id, self._owner = ptr, size, device_id, owner


class MemoryPointer:
    """A place in memory. Copies are begun on the current stream, or on `run_streaming`."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def copy_from_device_async(
        self, src: MemoryPointer, size: int, stream: Stream | None = None
    ) -> None:
        target, source = (_driver.content_at(one.ptr, size) for one in (self, src))
        _queue(stream).put(lambda: target.__setitem__(..., source))

    def copy_to_host(self, mem: int, size: int) -> None:
        """Wait for the default stream, as cudaMemcpy does."""
        runtime.streamSynchronize(_driver.LEGACY)
        ctypes.memmove(mem, _driver.content_at(self.ptr, size).ctypes.data, size)

    def copy_to_host_async(self, mem: int, size: int, stream: Stream | None = None) -> None:
        source = _driver.content_at(self.ptr, size)
        _queue(stream).put(lambda: ctypes.memmove(mem, source.ctypes.data, size))

    def copy_from_host_async(self, mem: int, size: int, stream: Stream | None = None) -> None:
        target = _driver.content_at(self.ptr, size)
        _queue(stream).put(lambda: ctypes.memmove(target.ctypes.data, mem, size))


class PinnedMemory:
    """The host's, known to the driver."""

    def __init__(self, size: int, flags: int = 0) -> None:
        self.content = np.empty(max(size, 1), np.uint8)
        self.ptr, self.size = self.content.ctypes.data, size
        runtime.hostRegister(self.ptr, size, flags)

    def __del__(self) -> None:
        runtime.hostUnregister(self.ptr)


def PinnedMemoryPointer(mem: PinnedMemory, offset: int) -> Any:
    """Return what lies there as bytes, which keep it alive."""
    found: Any = (ctypes.c_ubyte * (mem.size - offset)).from_address(mem.ptr + offset)
    found.mem, found.ptr = mem, mem.ptr + offset
    return found


class Stream:
    """Work in order. `null`: the default stream."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        usual = null or ptds
        self._queue = (
            _driver.queue_at(_driver.LEGACY)
            if usual
            else _driver.new_queue(blocking=not non_blocking)
        )
        self.ptr = self._queue.pointer

    @property
    def done(self) -> bool:
        return not self._queue.pending

    def synchronize(self) -> None:
        runtime.streamSynchronize(self.ptr)

    def wait_event(self, event: Event) -> None:
        queue, upto = event.place
        self._queue.put(lambda: queue.wait(upto))

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _streams.pop()

    def use(self) -> Stream:
        _streams[:] = [self]
        return self


class Event:
    """A place in a stream's work."""

    def __init__(self, *_: object, **__: object) -> None:
        self.place = _driver.queue_at(_driver.LEGACY), 0
        self.ptr = id(self)
        _driver.events[self.ptr] = self

    def record(self, stream: Stream | None = None) -> None:
        queue = _queue(stream)
        self.place = queue, queue.last

    def synchronize(self) -> None:
        _driver.waits += 1
        queue, upto = self.place
        queue.wait(upto)


Stream.null = Stream(null=True)  # type: ignore[attr-defined]


def get_current_stream() -> Stream:
    return _streams[-1] if _streams else Stream.null  # type: ignore[attr-defined]


def malloc_managed(size: int) -> MemoryPointer:
    memory = Memory.__new__(Memory)
    memory.block = _driver.Block(size, runtime.getDevice(), "managed")
    memory.ptr, memory.size = memory.block.address, size
    memory.device_id = memory.block.device
    return MemoryPointer(memory, 0)


def _queue(stream: Stream | None) -> _driver.Queue:
    return _driver.queue_at((stream or get_current_stream()).ptr)
