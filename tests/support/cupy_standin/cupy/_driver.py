"""The driver under the stand-in: memory that the host cannot touch, and work that waits.

Device memory is one file mapped twice: at the address that programs see nobody may read or write,
so whoever passes it to the host's code dies; the other mapping is this module's own. Work is done
when somebody waits for the stream that it was given to, so whoever looks before sees old contents.
Times and speeds mean nothing here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

# Whether MPI may touch device memory at any time, as CUDA-aware MPI does.
OPEN = os.environ.get("CUPY_STANDIN_ADDRESSES") == "open"
DEVICES = int(os.environ.get("CUPY_STANDIN_DEVICES", "1"))
LEGACY = 0  # the default stream, which waits for all others but those that do not block
NONE = 0
USUAL = mmap.PROT_READ | mmap.PROT_WRITE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype, _libc.munmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)

queries = waits = 0  # how often the driver was asked about a pointer, and waited for
blocks: dict[int, weakref.ref[Block]] = {}  # by address
events: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by number
_addresses: list[int] = []
_numbers, _streams = count(1), count(16)


class IllegalAddressError(RuntimeError):
    """What a kernel would end with."""


class Block:
    """Memory of one device; it goes when nobody has it any more.

    protection  of the addresses that programs see
    path        of the file, for another process
    """

    def __init__(
        self, nbytes: int, device: int, kind: str = "device", path: Path | None = None
    ) -> None:
        self.nbytes, self.device, self.kind = nbytes, device, kind
        size = max(-(-nbytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self.file = os.memfd_create("device") if path is None else os.open(path, os.O_RDWR)
        if path is None:
            os.ftruncate(self.file, size)
        self._own = mmap.mmap(self.file, size)
        self.content = np.frombuffer(self._own, np.uint8)
        protection = USUAL if kind == "managed" or OPEN else NONE
        self.address: int = _libc.mmap(None, size, protection, mmap.MAP_SHARED, self.file, 0)
        blocks[self.address] = weakref.ref(self)
        _addresses.insert(bisect_right(_addresses, self.address), self.address)
        weakref.finalize(self, _unmap, self.address, size, self.file).atexit = False


def _unmap(address: int, size: int, file: int) -> None:
    del blocks[address]
    _addresses.remove(address)
    _libc.munmap(address, size)
    os.close(file)


@contextmanager
def opened() -> Iterator[None]:
    """Let the host touch all memory of devices meanwhile, as messages do in some MPI libraries."""
    _protect(USUAL)
    try:
        yield
    finally:
        _protect(NONE)


def _protect(protection: int) -> None:
    for block in [found for each in blocks.values() if (found := each()) is not None]:
        if block.kind != "managed":
            _libc.mprotect(block.address, len(block.content), protection)


def block_at(pointer: int) -> Block | None:
    """Return what lies there; None for what is no device's."""
    place = bisect_right(_addresses, pointer)
    if place == 0:
        return None
    found = blocks[_addresses[place - 1]]()
    if found is None or pointer >= found.address + len(found.content):
        return None
    return found


def content_at(pointer: int, nbytes: int) -> Any:
    """Return the device's memory there as bytes; raises IllegalAddressError where there is none."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    block = block_at(pointer)
    if block is None or pointer + nbytes > block.address + len(block.content):
        raise IllegalAddressError(f"{nbytes} bytes at {pointer:#x} are not the device's")
    return block.content[pointer - block.address :][:nbytes]


class Queue:
    """The work of one stream, by numbers that rise with time over all streams.

    blocking    what is given to the default stream waits for what was given to this one before, and
                the other way round
    """

    def __init__(self, pointer: int, *, blocking: bool) -> None:
        self.pointer, self.blocking = pointer, blocking
        self.pending: dict[int, Callable[[], object]] = {}

    def put(self, work: Callable[[], object]) -> None:
        """Give it work."""
        self.pending[next(_numbers)] = work

    @property
    def last(self) -> int:
        """The number of the last work that is not done; 0 for none."""
        return max(self.pending, default=0)

    def wait(self, upto: int | None = None) -> None:
        """Do its work up to a number, by default all, and before that what this waits for."""
        upto = self.last if upto is None else upto
        for number in [n for n in self.pending if n <= upto]:
            if number in self.pending:  # else what waited for it has done it
                self._wait_for_others(number)
                self.pending.pop(number)()

    def _wait_for_others(self, number: int) -> None:
        if self.pointer == LEGACY:
            others = [one for one in queues.values() if one.blocking and one is not self]
        else:
            others = [queues[LEGACY]] * self.blocking
        for other in others:
            other.wait(number)


queues: dict[int, Queue] = {LEGACY: Queue(LEGACY, blocking=True)}


def new_queue(*, blocking: bool) -> Queue:
    """Return one more stream."""
    made = Queue(next(_streams) * 256, blocking=blocking)
    queues[made.pointer] = made
    return made


def queue_at(pointer: int) -> Queue:
    """Return the stream with this number; 1 and 2 are the default ones."""
    return queues[LEGACY if pointer in (1, 2) else pointer]


def wait_for_all() -> None:
    """Do all that was ever begun."""
    for queue in [*queues.values()]:
        queue.wait()
