"""Messages between two ranks: sends and receives that the program waits for.

They go at once to MPI, beside the collectives of the group. A thread moves on those that nobody
waits for, since MPI libraries move large messages only while they are called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

import torch
from mpi4py import MPI
from torch.distributed import DistBackendError

from tuner.runtime.cuda_support import has_cuda_messages
from tuner.torch import process_end
from tuner.torch.pending_work import PendingWork
from tuner.torch.tensors import array_of, readable, store, writable

_SPIN_S = 200e-6  # a waiting thread asks all the time at first
_PAUSE_S = 50e-6  # then it lets others work
_IDLE_PAUSE_S = 500e-6  # between two looks at messages that nobody waits for


class Message(PendingWork):
    """A message that is on its way.

    request     of MPI
    name        what it is, for messages about it: "send to 1"
    timeout     seconds that it may take
    deliver     stores the arrived values; None for a message that is sent
    """

    def __init__(
        self,
        request: MPI.Request,
        name: str,
        timeout: float,
        results: list[torch.Tensor],
        deliver: Callable[[], None] | None,
    ) -> None:
        super().__init__(results)
        self._request, self._name, self._deliver = request, name, deliver
        self._timeout, self._deadline = timeout, time.monotonic() + timeout
        self._asking = Lock()
        self._status = MPI.Status()
        if not self.is_completed():
            _move_on(self)

    def is_completed(self) -> bool:
        """Return whether the message has arrived, was sent or failed."""
        with self._asking:
            if self._ended:
                return True
            try:
                arrived = self._request.Test(self._status)
                if arrived and self._deliver is not None:
                    self._deliver()
            except Exception as failure:  # noqa: BLE001 - the program gets it when it waits
                return self.finish(failure)
            if arrived:
                return self.finish()
            if time.monotonic() > self._deadline:
                process_end.leave_mpi_unfinished()
                return self.finish(self._late(self._timeout))
        return False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the message; raises DistBackendError where the time is over."""
        begun, seconds = time.monotonic(), timeout.total_seconds()
        while not self.is_completed():
            waited = time.monotonic() - begun
            if seconds > 0 and waited > seconds:
                raise self._late(seconds)
            time.sleep(0 if waited < _SPIN_S else _PAUSE_S)
        if self._failure is not None:
            raise self._failure
        return True

    def source_rank(self) -> int:
        """Return the rank that sent the message, once it has arrived."""
        return int(self._status.source)

    _source_rank = source_rank

    def _late(self, seconds: float) -> Exception:
        failure: Exception = DistBackendError(
            f"{self._name}: timeout after {seconds:g} s: the other rank has ended, or makes no"
            " such call"
        )
        return failure


_pending = SimpleQueue[Message]()
_mover: Thread | None = None


def _move_on(message: Message) -> None:
    global _mover
    _pending.put(message)
    if _mover is None:
        _mover = Thread(target=_move_all, name="tuner messages", daemon=True)
        _mover.start()


def _move_all() -> None:
    """Ask for all messages on their way, again and again, while there are any."""
    messages: list[Message] = []
    while True:
        if not messages:
            messages.append(_pending.get())
        try:
            while True:
                messages.append(_pending.get_nowait())
        except Empty:
            pass
        messages = [message for message in messages if not message.is_completed()]
        time.sleep(_IDLE_PAUSE_S)


def send(comm: Any, tensor: torch.Tensor, target: int, tag: int, timeout: float) -> Message:
    """Send a tensor to a rank."""
    memory = readable(tensor, on_device=has_cuda_messages())
    if memory.is_cuda:  # MPI does not wait for what the program has given to its stream
        torch.cuda.current_stream(memory.device).synchronize()
    request = comm.Isend(array_of(memory), target, tag)
    return Message(request, f"send to rank {target}", timeout, [tensor], None)


def receive(
    comm: Any, tensor: torch.Tensor, source: int | None, tag: int, timeout: float
) -> Message:
    """Receive a tensor from a rank; `source` is None for any."""
    memory = writable(tensor, on_device=has_cuda_messages())
    if tensor.is_cuda:  # the program may still use what was there before
        torch.cuda.current_stream(tensor.device).synchronize()
    request = comm.Irecv(array_of(memory), MPI.ANY_SOURCE if source is None else source, tag)
    name = "receive from any rank" if source is None else f"receive from rank {source}"
    return Message(request, name, timeout, [tensor], partial(store, memory, tensor))
