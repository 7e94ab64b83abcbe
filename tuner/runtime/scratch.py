"""Memory that the schedules of one communicator need beside the program's buffers.

A communicator has one call at a time, so all its calls take the same memory. It grows with them,
and requests are bound to its address: whoever holds some frees them before it goes.
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.runtime.buffers import ByteArray
from tuner.runtime.memory import Memory

MAX_ROUNDED_BYTES = (
    64 << 20
)  # bytes; larger ones are as large as the largest call needs, and no larger


class ScratchBuffer:
    """Memory for one thing, as much as the largest call has needed.

    leave       what to call before the memory is replaced
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._content: ByteArray | None = None
        self.release_callbacks: list[Callable[[], None]] = []

    @property
    def nbytes(self) -> int:
        """How much it holds."""
        return 0 if self._content is None else len(self._content)

    def reserve(self, nbytes: int) -> ByteArray:
        """So many bytes; the same ones until `leave` is called."""
        if self._content is None or len(self._content) < nbytes:
            self.release()  # before there is more, not after
            self._content = self._memory.empty(_capacity(nbytes))
        return self._content[:nbytes]

    def release(self) -> None:
        """Give up the memory; whoever is bound to it leaves first."""
        for leave in self.release_callbacks:
            leave()
        self._content = None


class ScratchPool:
    """Those of one kind of memory.

    work        for what is on its way through a rank
    spare       for scratch and arrivals
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.workspace, self.scratch = ScratchBuffer(memory), ScratchBuffer(memory)

    @property
    def nbytes(self) -> int:
        """How much they hold together."""
        return self.workspace.nbytes + self.scratch.nbytes

    def on_release(self, callback: Callable[[], None]) -> None:
        """`left` is to be called before any of it is replaced."""
        self.workspace.release_callbacks.append(callback)
        self.scratch.release_callbacks.append(callback)

    def release(self) -> None:
        """Give up all of it; whoever is bound to it leaves first."""
        self.workspace.release()
        self.scratch.release()


def _capacity(nbytes: int) -> int:
    """A power of two up to DOUBLED: counts that grow little by little seldom replace the memory."""
    return nbytes if nbytes > MAX_ROUNDED_BYTES else 1 << max(nbytes - 1, 0).bit_length()
