"""Copies, kernels and messages of GPUs as arms (rank side).

Everything goes through `tuner.runtime.device_protocol.Device`, as the dispatcher's calls do: what
is timed is what a program will get. Calls return when the GPU is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.probe import gpus, pointtopoint
from tuner.probe.device_buffers import DeviceBuffers
from tuner.probe.device_points import BETWEEN, IPC
from tuner.probe.nccl import Forced, NcclBuffers
from tuner.probe.pointtopoint import warmed
from tuner.probe.probe_plan import Arm, Point
from tuner.probe.timing import Arm as Timed
from tuner.runtime.buffers import Bytes
from tuner.runtime.device_protocol import Device, cuda
from tuner.runtime.nccl import Cannot
from tuner.runtime.staging import READ, WRITE

ENOUGH = 4096  # bytes: opening them shows whether another rank's memory can be opened


class OnDevices:
    """What the ranks of `comm` measure in the memory of their GPUs.

    note    tells why something is left out

    Where any rank lacks a GPU nothing is measured. Methods are collective but `arms`.
    """

    def __init__(self, comm: MPI.Intracomm, note: Callable[[str], object]) -> None:
        self._comm, self._note = comm, note
        self._there = gpus.everywhere(comm)
        self._direct, self._aware = gpus.takes_messages(comm), gpus.aware(comm)
        self._forced: dict[tuple[tuple[str, int | str], ...], Forced | Cannot] = {}
        self._shared: list[Bytes] = []  # opened by the other rank

    def members(self, point: Point) -> list[int]:
        """The ranks that measure a point; none where it cannot be measured here."""
        between = point.subject.removeprefix(IPC)
        everyone = list(range(self._comm.size))
        if not self._there or not self._possible(point):
            return []
        if between not in BETWEEN:
            return everyone
        found = list(gpus.pair(self._comm, between) or ())
        tried = point.subject.startswith(IPC) and found == everyone
        return [] if tried and not self._shares() else found

    def _possible(self, point: Point) -> bool:
        """Whether MPI, NCCL and the device can do this at all."""
        if point.kind == "nccl":
            return isinstance(self.forced({}), Forced)
        if point.kind == "reduction":
            return cuda().kernel(*_operator(point.subject)) is not None
        return self._direct or point.kind not in ("eager", "burst")

    def empty(self, nbytes: int) -> Bytes:
        """Memory of this rank's GPU, as MPI takes it."""
        return cuda().scratch(nbytes)

    def buffers(self, kind: str) -> DeviceBuffers:
        """For collectives of MPI, or of NCCL."""
        return (NcclBuffers if kind == "nccl" else DeviceBuffers)(cuda(), self._aware)

    def forced(self, settings: Mapping[str, int | str]) -> Forced | Cannot:
        """NCCL under these settings, or why not; made once. Its own choice without settings."""
        key = tuple(sorted(settings.items()))
        if key not in self._forced:
            self._forced[key] = made = Forced.connect(self._comm, settings)
            if isinstance(made, Cannot) and self._comm.rank == 0 and not settings:
                self._note(f"NCCL is left out: {made.reason}")
        return self._forced[key]

    def arms(self, point: Point, arms: Sequence[Arm]) -> list[Timed]:
        """Of everything but collectives."""
        sizes = [point.size(arm) for arm in arms]
        device, subject = cuda(), point.subject
        if point.kind == "pingpong":
            return [self._pingpong(nbytes) for nbytes in sizes]
        if point.kind == "burst":
            return [
                pointtopoint.burst(self._comm, point.nbytes, arm.params["messages"], self.empty)
                for arm in arms
            ]
        if subject.startswith(IPC):
            return self._out_of_the_other(sizes)
        if point.kind == "copy":
            return [copy(device, subject, nbytes) for nbytes in sizes]
        if point.kind == "reduction":
            return [fold(device, *_operator(subject), nbytes) for nbytes in sizes]
        if point.kind == "launch":
            return [fold(device, MPI.SUM, np.dtype(np.float32), 4)]
        address = device.scratch(1).ctypes.data
        return [warmed(partial(device.pointers.query, address), 0)]

    def release(self) -> None:
        """Free what NCCL holds, and memory that the other rank has closed."""
        if self._there:
            self._comm.Barrier()
        self._shared.clear()
        for forced in self._forced.values():
            if isinstance(forced, Forced):
                forced.nccl.release()
        self._forced.clear()

    def _pingpong(self, nbytes: int) -> Timed:
        """As `pointtopoint.pingpong`, staged where MPI is not CUDA-aware."""
        comm, peer = self._comm, self._comm.rank ^ 1
        if self._direct:
            return pointtopoint.pingpong(comm, nbytes, self.empty)
        device = cuda()
        buffers, buffer = DeviceBuffers(device, direct=False), device.over(device.scratch(nbytes))
        turn = [
            buffers.around(comm.Send, (buffer, READ), last=(peer,)),
            buffers.around(comm.Recv, (buffer, WRITE), last=(peer,)),
        ]
        first, second = reversed(turn) if comm.rank % 2 else turn

        def call() -> None:
            first()
            second()

        return warmed(call, nbytes)

    def _shares(self) -> bool:
        """Whether the first rank can open memory of the second one."""
        failure = ""
        try:
            self._other(ENOUGH)
        except InputError as reason:
            failure = str(reason)
        failures = [text for text in self._comm.allgather(failure) if text]
        if failures and self._comm.rank == 0:
            self._note(f"CUDA IPC is left out: {failures[0]}")
        return not failures

    def _out_of_the_other(self, sizes: Sequence[int]) -> list[Timed]:
        """The first rank copies out of the second one's memory, which does nothing."""
        device, there = cuda(), self._other(max(sizes))
        if self._comm.rank > 0:
            return [warmed(_nothing, nbytes) for nbytes in sizes]
        mine = device.scratch(max(sizes))
        ends = [(device.over(there[:n]), device.over(mine[:n])) for n in sizes]
        return [_waited(device, partial(device.copy, *both), both[0].nbytes) for both in ends]

    def _other(self, nbytes: int) -> Bytes:
        """The second rank's memory on the first, which has opened it; its own on the second.

        Raises InputError on both, or on the first alone, where it cannot be.
        """
        handle, failure, memory = b"", "", np.empty(0, np.uint8)
        if self._comm.rank == 1:
            try:
                memory, handle = cuda().shareable(nbytes)
                self._shared.append(memory)
            except InputError as reason:
                failure = str(reason)
        handle, failure = self._comm.bcast((handle, failure), root=1)
        if failure:
            raise InputError(failure)
        return memory if self._comm.rank == 1 else cuda().opened(handle, nbytes)


def copy(device: Device, subject: str, nbytes: int) -> Timed:
    """One copy, between the host and the device or on the device."""
    here = device.over(device.scratch(nbytes))
    if subject == "d2d":
        there = device.over(device.scratch(nbytes))
        return _waited(device, partial(device.copy, here, there), nbytes)
    pinned = subject.endswith("_pinned")
    host = device.pinned(nbytes) if pinned else pointtopoint.zeros(nbytes)
    host[:] = 1  # pages that nobody has written are read from one and the same
    if subject.startswith("h2d"):
        return _waited(device, partial(device.to_device, host, here), nbytes)
    return _waited(device, partial(device.to_host, here, host), nbytes)


def fold(device: Device, op: MPI.Op, dtype: np.dtype[Any], nbytes: int) -> Timed:
    """A kernel that folds one array into another of `nbytes` bytes."""
    kernel = device.kernel(op, dtype)
    assert kernel is not None  # else nobody measures it
    ones = np.ones(nbytes // dtype.itemsize, dtype)
    return _waited(device, partial(kernel, device.copied(ones), device.copied(ones)), nbytes)


def _waited(device: Device, start: Callable[[], object], nbytes: int) -> Timed:
    def call() -> None:
        start()
        device.synchronise()

    return warmed(call, nbytes)


def _operator(subject: str) -> tuple[MPI.Op, np.dtype[Any]]:
    """Of `sum_float32`."""
    name, _, dtype = subject.partition("_")
    op: MPI.Op = getattr(MPI, name.upper())
    return op, np.dtype(dtype)


def _nothing() -> None:
    pass
