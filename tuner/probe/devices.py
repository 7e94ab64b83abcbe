"""Timed copies, kernels and messages of GPUs (rank side).

Everything goes through `tuner.runtime.device_protocol.DeviceInterface`, as the dispatcher's calls
do, so that the times are those of a program. Calls return when the GPU is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.probe import pointtopoint, rank_gpus
from tuner.probe.device_buffers import DeviceBuffers
from tuner.probe.device_points import GPU_PATH_CLASSES, IPC_PREFIX
from tuner.probe.nccl import NcclBuffers, NcclVariant
from tuner.probe.pointtopoint import with_warm_up
from tuner.probe.probe_plan import ProbeCandidate, ProbePoint
from tuner.probe.timing import TimedOperation as Timed
from tuner.runtime.buffers import ByteArray
from tuner.runtime.cuda_support import cuda_device
from tuner.runtime.device_protocol import DeviceInterface
from tuner.runtime.nccl import Unavailable
from tuner.runtime.staging import READ, WRITE

IPC_TRIAL_BYTES = 4096  # bytes opened to see whether another rank's memory can be opened


class DeviceProbe:
    """Measurements by the ranks of `comm` in the memory of their GPUs.

    on_note     called with a sentence where something is left out

    Nothing is measured if any rank lacks a GPU.
    """

    def __init__(self, comm: MPI.Intracomm, on_note: Callable[[str], object]) -> None:
        self._comm, self._on_note = comm, on_note
        self._all_have_gpu = rank_gpus.all_have_gpu(comm)
        self._sends_device_memory = rank_gpus.all_send_device_memory(comm)
        self._cuda_aware = rank_gpus.all_cuda_aware(comm)
        self._nccl_variants: dict[tuple[tuple[str, int | str], ...], NcclVariant | Unavailable] = {}
        self._shared_memory: list[ByteArray] = []  # opened by the other rank

    def measuring_ranks(self, point: ProbePoint) -> list[int]:
        """Return the ranks that measure a point; none where it cannot be measured here."""
        between = point.subject.removeprefix(IPC_PREFIX)
        everyone = list(range(self._comm.size))
        if not self._all_have_gpu or not self._is_possible(point):
            return []
        if between not in GPU_PATH_CLASSES:
            return everyone
        found = list(rank_gpus.find_rank_pair(self._comm, between) or ())
        tried = point.subject.startswith(IPC_PREFIX) and found == everyone
        return [] if tried and not self._can_share_memory() else found

    def _is_possible(self, point: ProbePoint) -> bool:
        """Return whether MPI, NCCL and the device support a point at all."""
        if point.kind == "nccl":
            return isinstance(self.nccl_variant({}), NcclVariant)
        if point.kind == "reduction":
            return cuda_device().kernel(*_operator(point.subject)) is not None
        return self._sends_device_memory or point.kind not in ("eager", "burst")

    def allocate(self, nbytes: int) -> ByteArray:
        """Return memory of this rank's GPU, as MPI accepts it."""
        return cuda_device().allocate(nbytes)

    def buffers(self, kind: str) -> DeviceBuffers:
        """Return buffers for collectives of MPI, or of NCCL for the kind `nccl`."""
        return (NcclBuffers if kind == "nccl" else DeviceBuffers)(cuda_device(), self._cuda_aware)

    def nccl_variant(self, settings: Mapping[str, int | str]) -> NcclVariant | Unavailable:
        """Return NCCL under these settings, or why it is unavailable; made once.

        Without settings NCCL chooses algorithms itself.
        """
        key = tuple(sorted(settings.items()))
        if key not in self._nccl_variants:
            self._nccl_variants[key] = made = NcclVariant.connect(self._comm, settings)
            if isinstance(made, Unavailable) and self._comm.rank == 0 and not settings:
                self._on_note(f"NCCL is left out: {made.reason}")
        return self._nccl_variants[key]

    def timed_operations(
        self, point: ProbePoint, candidates: Sequence[ProbeCandidate]
    ) -> list[Timed]:
        """Return the timed operations of a point that is not a collective."""
        sizes = [point.nbytes_of(candidate) for candidate in candidates]
        device, subject = cuda_device(), point.subject
        if point.kind == "pingpong":
            return [self._pingpong(nbytes) for nbytes in sizes]
        if point.kind == "burst":
            return [
                pointtopoint.message_train(
                    self._comm, point.nbytes, candidate.params["messages"], self.allocate
                )
                for candidate in candidates
            ]
        if subject.startswith(IPC_PREFIX):
            return self._ipc_copies(sizes)
        if point.kind == "copy":
            return [timed_copy(device, subject, nbytes) for nbytes in sizes]
        if point.kind == "reduction":
            return [timed_reduction(device, *_operator(subject), nbytes) for nbytes in sizes]
        if point.kind == "launch":
            return [timed_reduction(device, MPI.SUM, np.dtype(np.float32), 4)]
        address = device.allocate(1).ctypes.data
        return [with_warm_up(partial(device.pointer_cache.query, address), 0)]

    def release(self) -> None:
        """Free what NCCL holds, and memory that the other rank has closed."""
        if self._all_have_gpu:
            self._comm.Barrier()
        self._shared_memory.clear()
        for forced in self._nccl_variants.values():
            if isinstance(forced, NcclVariant):
                forced.nccl.release()
        self._nccl_variants.clear()

    def _pingpong(self, nbytes: int) -> Timed:
        """Return a timed round trip, staged where MPI is not CUDA-aware."""
        comm, peer = self._comm, self._comm.rank ^ 1
        if self._sends_device_memory:
            return pointtopoint.pingpong(comm, nbytes, self.allocate)
        device = cuda_device()
        buffers = DeviceBuffers(device, direct=False)
        buffer = device.device_array(device.allocate(nbytes))
        turn = [
            buffers.bind_method(comm.Send, (buffer, READ), trailing_args=(peer,)),
            buffers.bind_method(comm.Recv, (buffer, WRITE), trailing_args=(peer,)),
        ]
        first, second = reversed(turn) if comm.rank % 2 else turn

        def call() -> None:
            first()
            second()

        return with_warm_up(call, nbytes)

    def _can_share_memory(self) -> bool:
        """Return whether the first rank can open memory of the second one."""
        failure = ""
        try:
            self._peer_memory(IPC_TRIAL_BYTES)
        except InputError as reason:
            failure = str(reason)
        failures = [text for text in self._comm.allgather(failure) if text]
        if failures and self._comm.rank == 0:
            self._on_note(f"CUDA IPC is left out: {failures[0]}")
        return not failures

    def _ipc_copies(self, sizes: Sequence[int]) -> list[Timed]:
        """Return copies by the first rank out of the memory of the second one, which is idle."""
        device, there = cuda_device(), self._peer_memory(max(sizes))
        if self._comm.rank > 0:
            return [with_warm_up(_nothing, nbytes) for nbytes in sizes]
        mine = device.allocate(max(sizes))
        ends = [(device.device_array(there[:n]), device.device_array(mine[:n])) for n in sizes]
        return [
            _synchronised(device, partial(device.copy_async, *both), both[0].nbytes)
            for both in ends
        ]

    def _peer_memory(self, nbytes: int) -> ByteArray:
        """Return the second rank's memory: opened on the first rank, its own on the second.

        Raises InputError on both ranks, or on the first alone, where this fails.
        """
        handle, failure, memory = b"", "", np.empty(0, np.uint8)
        if self._comm.rank == 1:
            try:
                memory, handle = cuda_device().allocate_shared(nbytes)
                self._shared_memory.append(memory)
            except InputError as reason:
                failure = str(reason)
        handle, failure = self._comm.bcast((handle, failure), root=1)
        if failure:
            raise InputError(failure)
        return memory if self._comm.rank == 1 else cuda_device().open_shared(handle, nbytes)


def timed_copy(device: DeviceInterface, subject: str, nbytes: int) -> Timed:
    """Return a timed copy between the host and the device, or on the device."""
    here = device.device_array(device.allocate(nbytes))
    if subject == "d2d":
        there = device.device_array(device.allocate(nbytes))
        return _synchronised(device, partial(device.copy_async, here, there), nbytes)
    pinned = subject.endswith("_pinned")
    host = device.allocate_pinned(nbytes) if pinned else pointtopoint.zeros(nbytes)
    host[:] = 1  # unwritten pages would all map to the same page
    if subject.startswith("h2d"):
        return _synchronised(device, partial(device.copy_to_device_async, host, here), nbytes)
    return _synchronised(device, partial(device.copy_to_host_async, here, host), nbytes)


def timed_reduction(
    device: DeviceInterface, op: MPI.Op, dtype: np.dtype[Any], nbytes: int
) -> Timed:
    """Return a timed kernel that reduces one array into another of `nbytes` bytes."""
    kernel = device.kernel(op, dtype)
    assert kernel is not None  # else the point is not measured
    ones = np.ones(nbytes // dtype.itemsize, dtype)
    return _synchronised(device, partial(kernel, device.upload(ones), device.upload(ones)), nbytes)


def _synchronised(device: DeviceInterface, start: Callable[[], object], nbytes: int) -> Timed:
    def call() -> None:
        start()
        device.synchronise()

    return with_warm_up(call, nbytes)


def _operator(subject: str) -> tuple[MPI.Op, np.dtype[Any]]:
    """Return operator and data type of a subject such as `sum_float32`."""
    name, _, dtype = subject.partition("_")
    op: MPI.Op = getattr(MPI, name.upper())
    return op, np.dtype(dtype)


def _nothing() -> None:
    pass
