"""NCCL beside MPI: a communicator of the same ranks with one GPU per rank.

All ranks agree whether it is available when it is created, and whether it supports a call follows
from arguments that are equal on all ranks. So no rank finds out alone that it cannot be used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.errors import InputError
from tuner.base.units import parse_duration
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA
from tuner.runtime.buffers import BufferView, contiguous_view, is_in_place, parse_buffer
from tuner.runtime.compatibility import handle_of, typecode_of
from tuner.runtime.consensus import attempt
from tuner.runtime.cuda_support import cuda_device, is_cuda_aware, memory_kind_of
from tuner.runtime.device_protocol import DeviceArray
from tuner.runtime.mpi_arguments import root_rank
from tuner.runtime.packing import pack_buffer
from tuner.runtime.staging import READ, WRITE, Staging
from tuner.runtime.timeout import Deadline

Action = Callable[..., None]
_OPERATORS = {
    handle_of(MPI.SUM): "NCCL_SUM",
    handle_of(MPI.PROD): "NCCL_PROD",
    handle_of(MPI.MIN): "NCCL_MIN",
    handle_of(MPI.MAX): "NCCL_MAX",
}
_TYPES = {
    "i1": "NCCL_INT8",
    "u1": "NCCL_UINT8",
    "i4": "NCCL_INT32",
    "u4": "NCCL_UINT32",
    "i8": "NCCL_INT64",
    "u8": "NCCL_UINT64",
    "f2": "NCCL_FLOAT16",
    "f4": "NCCL_FLOAT32",
    "f8": "NCCL_FLOAT64",
}
# With one-byte elements MPI may saturate, while NCCL wraps.
_ADDITIVE_OPERATORS = (handle_of(MPI.SUM), handle_of(MPI.PROD))
_OPAQUE_DATATYPES = (MPI.BYTE, MPI.PACKED)  # MPI defines no arithmetic for them
_MAX_BCAST_BYTES = 1 << 30  # of one broadcast: older CuPy counts in 32 bits
_DEFAULT_TIMEOUT = "60s"  # for all ranks to connect; TUNER_NCCL_TIMEOUT overrides it
_SPIN_S = 0.001  # polling without pauses at first
_CUDA_ERROR_NOT_READY = 600  # cudaErrorNotReady in driver_types.h: the event is not complete
_POLL_INTERVAL_S = 5e-5  # after _SPIN_S
_SHARING_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"  # lets ranks share a GPU
_MIN_SHARING_VERSION = (2, 32)  # first version of NCCL that knows it


@dataclass(frozen=True)
class Unavailable:
    """The reason why NCCL is unavailable, in one sentence."""

    reason: str


@dataclass(frozen=True)
class RankGpu:
    """A rank's GPU: its node, its PCI bus address there, and the version of NCCL.

    allows_sharing  whether NCCL lets several ranks share one GPU
    """

    node: str
    pci_bus_id: str
    nccl_version: str = ""
    allows_sharing: bool = False


def connect(comm: MPI.Intracomm) -> NcclComm | Unavailable:
    """Return NCCL's communicator over the ranks of `comm`, or Unavailable on all ranks; collective.

    comm    a private communicator, which stays in use for packing until `release`
    """
    offer, failure = attempt(_local_gpu)
    objection = unavailable_reason(comm.allgather(offer or Unavailable(failure)))
    if objection:
        return Unavailable(objection)
    identity, failure = attempt(_unique_id) if comm.rank == 0 else (None, "")
    identity, failure = comm.bcast((identity, failure))
    if failure:
        return Unavailable(f"NCCL failed on rank 0: {failure}")
    made, failure = attempt(NcclComm, comm, identity)
    failures = [f"rank {rank}: {text}" for rank, text in enumerate(comm.allgather(failure)) if text]
    if made is not None and not failures:
        return made
    if made is not None:
        attempt(made.abort)
    return Unavailable(f"NCCL failed on {failures[0]}")


def unavailable_reason(gpus: Sequence[RankGpu | Unavailable]) -> str:
    """Return why ranks with these GPUs cannot form an NCCL communicator; "" if they can."""
    for rank, offer in enumerate(gpus):
        if isinstance(offer, Unavailable):
            return f"rank {rank}: {offer.reason}"
    places = [offer for offer in gpus if isinstance(offer, RankGpu)]
    for rank, place in enumerate(places):
        if place.nccl_version != places[0].nccl_version:
            return f"rank {rank} has NCCL {place.nccl_version}, rank 0 has {places[0].nccl_version}"
    first: dict[tuple[str, str], int] = {}
    for rank, place in enumerate(places):
        before = first.setdefault((place.node, place.pci_bus_id), rank)
        if before != rank and not all(each.allows_sharing for each in places):
            return (
                f"ranks {before} and {rank} share the GPU {place.pci_bus_id} of {place.node}, and"
                " NCCL wants one for each: select a device per rank before tuning"
            )
    return ""


def _local_gpu() -> RankGpu | Unavailable:
    """Return this rank's GPU, if NCCL works there; raises InputError without a GPU.

    This is tested with a communicator of this rank alone: a failure in the common one would leave
    the other ranks waiting for long.
    """
    device = cuda_device()
    if not device.nccl_version:
        return Unavailable(
            "CuPy finds no NCCL: install the nvidia-nccl package of its CUDA version"
        )
    _check_single_rank(device.number, _timeout_s())
    able = tuple(map(int, device.nccl_version.split(".")[:2])) >= _MIN_SHARING_VERSION
    shares = able and os.environ.get(_SHARING_VARIABLE) == "1"
    return RankGpu(MPI.Get_processor_name(), device.pci_bus_id, device.nccl_version, shares)


@cache
def _check_single_rank(device: int, timeout_s: float) -> None:
    join = partial(_communicator, device, 1, _unique_id(), 0)
    Deadline(timeout_s).run(join, "NCCL on this rank alone").destroy()


def _timeout_s() -> float:
    """Return the seconds for all ranks to connect; raises InputError for an invalid setting."""
    given = os.environ.get("TUNER_NCCL_TIMEOUT") or _DEFAULT_TIMEOUT
    try:
        limit = parse_duration(given)
    except InputError as reason:
        raise InputError(f"TUNER_NCCL_TIMEOUT: {reason}") from None
    if limit <= 0:
        raise InputError(
            f"TUNER_NCCL_TIMEOUT: expected a time such as {_DEFAULT_TIMEOUT}, got {given!r}"
        )
    return limit


def _unique_id() -> object:
    """Return the identifier by which ranks connect; raises RuntimeError without a network."""
    from cupy.cuda import nccl

    return nccl.get_unique_id()


def _communicator(device: int, size: int, identity: object, rank: int) -> Any:
    """Create NCCL's communicator in any thread; blocks until all ranks have called it."""
    import cupy
    from cupy.cuda import nccl

    cupy.cuda.Device(device).use()
    return nccl.NcclCommunicator(size, identity, rank)


class NcclComm:
    """A communicator of NCCL with mpi4py's arguments, on CuPy's current device and stream.

    Calls wait for the result. Host memory, and device memory with gaps, is copied through temporary
    memory, so ranks with such buffers take part like the others.
    """

    def __init__(self, comm: MPI.Intracomm, identity: object) -> None:
        from cupy.cuda import nccl

        self._comm, self._nccl, self._device = comm, nccl, cuda_device()
        self.size: int = comm.size
        self.staging = Staging(self._device)  # for gaps and for calls that NCCL does not support
        join = partial(_communicator, self._device.number, comm.size, identity, comm.rank)
        self._communicator = Deadline(_timeout_s()).run(join, "the first meeting of the ranks")

    def supports(self, collective: Collective, op: MPI.Op, datatype: MPI.Datatype) -> bool:
        """Return whether NCCL supports a call; `op` and `datatype` matter for reductions only."""
        if collective == Collective.ALLREDUCE:
            return is_reducible(op, datatype)
        return collective == Collective.BCAST

    def bcast(self, spec: Any, root: int) -> None:
        """Broadcast as `Comm.Bcast` does; raises BufferError for an invalid buffer."""
        is_root = self._comm.rank == root
        if memory_kind_of(spec) == CUDA:
            view = contiguous_view(spec, writable=not is_root)
            if view is not None:
                self._bcast_bytes(self._device.device_array(view.array), root)
                return
            access = READ if is_root else WRITE
            self.staging(lambda host: self.bcast(host, root), (spec, access))
            return
        parts = pack_buffer(spec, self._comm, is_source=is_root)
        if parts is None:
            raise BufferError("not a buffer that MPI can broadcast")
        scratch = self._device.upload(parts.array)
        self._bcast_bytes(scratch, root)
        if not is_root:
            self._device.download(scratch, parts.array)
            parts.unpack()

    def _bcast_bytes(self, array: DeviceArray, root: int) -> None:
        for start in range(0, array.nbytes, _MAX_BCAST_BYTES):
            nbytes = min(_MAX_BCAST_BYTES, array.nbytes - start)
            self._communicator.bcast(
                array.data.ptr + start, nbytes, self._nccl.NCCL_UINT8, root, _stream()
            )
        self._wait()

    def allreduce(self, send: Any, recv: Any, op: MPI.Op) -> None:
        """Reduce as `Comm.Allreduce` does, where `supports` is true; `send` may be MPI.IN_PLACE.

        Raises ValueError where a buffer is invalid or the two differ in size.
        """
        target = contiguous_view(recv, writable=True)
        source = target if send is MPI.IN_PLACE else contiguous_view(send, writable=False)
        if target is None or source is None or source.nbytes != target.nbytes:
            raise ValueError("send and receive buffer must hold equally many of the same elements")
        first = self._read(recv if send is MPI.IN_PLACE else send, source)
        on_host = memory_kind_of(recv) != CUDA
        second = (
            self._device.empty_like(first) if on_host else self._device.device_array(target.array)
        )
        self._communicator.allReduce(
            first.data.ptr,
            second.data.ptr,
            target.count,
            getattr(self._nccl, _TYPES[_element(target.datatype)]),
            getattr(self._nccl, _OPERATORS[handle_of(op)]),
            _stream(),
        )
        self._wait()
        if on_host:
            self._device.download(second, target.array)

    def _wait(self) -> None:
        """Wait for the calls on the current stream.

        Raises NCCL's error when it finds that a rank is lost, and the driver's for a failure on
        this rank; afterwards the communicator is aborted and no call is possible.
        """
        import cupy

        event = cupy.cuda.Event(disable_timing=True)
        event.record()
        begun = time.monotonic()
        try:
            while cupy.cuda.runtime.eventQuery(event.ptr) == _CUDA_ERROR_NOT_READY:
                self._communicator.check_async_error()
                if time.monotonic() - begun > _SPIN_S:
                    time.sleep(_POLL_INTERVAL_S)
            event.synchronize()  # raises any other error
        except Exception:
            attempt(self.abort)  # else the pending call blocks the stream for ever
            raise

    def _read(self, spec: Any, view: BufferView) -> DeviceArray:
        """Return the elements of a buffer argument as a device array."""
        if memory_kind_of(spec) == CUDA:
            return self._device.device_array(view.array)
        return self._device.upload(view.array)

    def release(self) -> None:
        """Free NCCL's resources; collective."""
        self._communicator.destroy()

    def abort(self) -> None:
        """Free NCCL's resources without the other ranks."""
        self._communicator.abort()


def unsupported_reason(nccl: NcclComm | Unavailable | None, collective: Collective) -> str:
    """Return why a rule for NCCL cannot be followed; "" when it can."""
    if isinstance(nccl, NcclComm):
        return "" if nccl.supports(collective, MPI.SUM, MPI.FLOAT) else f"NCCL has no {collective}"
    return nccl.reason if nccl else "NCCL was not asked"


def nccl_action(nccl: NcclComm, collective: Collective, library: Action) -> Action:
    """Return an action that calls NCCL; `library` is the communicator's own method."""
    made = make_bcast if collective == Collective.BCAST else make_allreduce
    return made(nccl, library)


def make_bcast(nccl: NcclComm, library: Action) -> Action:
    """Return a `Bcast` by NCCL; arguments that mpi4py refuses go to the library's method."""

    def bcast(buf: Any, root: int) -> None:
        giver = root_rank(root)
        if giver is None or not 0 <= giver < nccl.size:
            return library(buf, root)
        try:
            return nccl.bcast(buf, giver)
        except BufferError:
            return library(buf, root)

    return bcast


def make_allreduce(nccl: NcclComm, library: Action) -> Action:
    """Return an `Allreduce` by NCCL.

    Operators and datatypes that NCCL does not support, and arguments that mpi4py refuses, go to the
    library's method.
    """

    def allreduce(sendbuf: Any, recvbuf: Any, op: MPI.Op) -> None:
        described = parse_buffer(recvbuf, writable=True)
        if described is not None and nccl.supports(Collective.ALLREDUCE, op, described.datatype):
            try:
                nccl.allreduce(MPI.IN_PLACE if is_in_place(sendbuf) else sendbuf, recvbuf, op)
            except ValueError:
                library(sendbuf, recvbuf, op)
        elif is_cuda_aware():
            library(sendbuf, recvbuf, op)
        else:
            access = READ | WRITE if is_in_place(sendbuf) else WRITE
            nccl.staging(
                lambda send, receive: library(send, receive, op), (sendbuf, READ), (recvbuf, access)
            )

    return allreduce


def is_reducible(op: MPI.Op, datatype: MPI.Datatype) -> bool:
    """Return whether NCCL reduces elements of `datatype` with `op`, with MPI's results."""
    if (
        handle_of(op) not in _OPERATORS
        or not datatype.is_predefined
        or datatype in _OPAQUE_DATATYPES
    ):
        return False
    element = _element(datatype)
    saturates = handle_of(op) in _ADDITIVE_OPERATORS and element[1:] == "1"
    return element in _TYPES and not saturates


def _element(datatype: MPI.Datatype) -> str:
    """Return the kind and the bytes of an element in numpy's notation, such as `f4`."""
    return np.dtype(typecode_of(datatype)).str[1:]


def _stream() -> int:
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
