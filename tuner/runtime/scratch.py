"""Memory that the schedules of one communicator need beside the program's buffers.

A communicator has one call at a time, so all its calls share the same memory. It grows with the
calls. Requests are bound to its address, so they are freed before it is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.runtime.buffers import ByteArray
from tuner.runtime.memory import Memory

MAX_ROUNDED_BYTES = 64 << 20  # bytes; larger sizes are not rounded up


class ScratchBuffer:
    """A buffer for one purpose, as large as the largest call has needed.

    release_callbacks   functions to call before the memory is replaced
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._content: ByteArray | None = None
        self.release_callbacks: list[Callable[[], None]] = []

    @property
    def nbytes(self) -> int:
        return 0 if self._content is None else len(self._content)

    def reserve(self, nbytes: int) -> ByteArray:
        """Return `nbytes` of memory, the same until the callbacks are called."""
        if self._content is None or len(self._content) < nbytes:
            self.release()  # free the old memory before allocating more
            self._content = self._memory.empty(_capacity(nbytes))
        return self._content[:nbytes]

    def release(self) -> None:
        """Call the callbacks and free the memory."""
        for leave in self.release_callbacks:
            leave()
        self._content = None


class ScratchPool:
    """The scratch buffers of one kind of memory.

    workspace   for data that passes through a rank
    scratch     for the scratch elements and arrivals of schedules
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.workspace, self.scratch = ScratchBuffer(memory), ScratchBuffer(memory)

    def on_release(self, callback: Callable[[], None]) -> None:
        """Register a function to call before either buffer is replaced."""
        self.workspace.release_callbacks.append(callback)
        self.scratch.release_callbacks.append(callback)

    def release(self) -> None:
        """Call the callbacks and free both buffers."""
        self.workspace.release()
        self.scratch.release()


def _capacity(nbytes: int) -> int:
    """Round up to a power of two if small, so that growing counts seldom replace the memory."""
    return nbytes if nbytes > MAX_ROUNDED_BYTES else 1 << max(nbytes - 1, 0).bit_length()
