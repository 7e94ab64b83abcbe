"""The bytes of a buffer argument's type signature, for what moves without being reduced.

Ranks may describe one signature by different datatypes; its bytes are the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.runtime.buffers import Bytes, Described, View, contiguous, describe, whole
from tuner.runtime.compatibility import Buffer


@dataclass(frozen=True, slots=True)
class Packed:
    """The bytes of a type signature, shape (nbytes,): the caller's own memory where it is dense.

    `unpack()` puts them where the buffer argument wants them; it does nothing for own memory.
    """

    array: Bytes
    unpack: Callable[[], None]


def packed(
    spec: Any,
    comm: MPI.Intracomm,
    *,
    root: bool,
    parts: int = 1,
    empty: Callable[[int], Bytes] | None = None,
) -> Packed | None:
    """The bytes to move; None where mpi4py or MPI refuses `spec`.

    root    the bytes are read from `spec`; elsewhere they are to be filled in, then unpacked
    comm    where they travel
    parts   of how many ranks it is the data; it must be as many elements of each
    empty   makes memory for what is not dense; the host's by default
    """
    argument = spec if parts == 1 else whole(spec, parts)
    view = contiguous(argument, writable=not root)
    described = view or describe(argument, writable=not root)
    if described is None or described.count % parts or not _committed(described.datatype, comm):
        return None
    if isinstance(described, View):
        return Packed(described.flat, nothing)
    nbytes = described.count * described.datatype.Get_size()
    array = empty(nbytes) if empty else np.empty(nbytes, np.uint8)
    if nbytes == 0:
        return Packed(array, nothing)
    if not root:
        return Packed(array, partial(_unpack, described, array, comm))
    _pack(described, array, comm)
    return Packed(array, nothing)


def nothing() -> None:
    """There is nothing to unpack."""


def _committed(datatype: MPI.Datatype, comm: MPI.Intracomm) -> bool:
    """MPI refuses to move elements of any other, which a request that is never started shows."""
    if datatype.is_predefined:
        return True
    try:
        comm.Recv_init([np.zeros(1, np.uint8), 1, datatype], comm.rank).Free()
    except MPI.Exception:
        return False
    return True


def _pack(described: Described, array: Bytes, comm: MPI.Intracomm) -> None:
    _with_memory(described, lambda datatype, memory: datatype.Pack(memory, array, 0, comm))


def _unpack(described: Described, array: Bytes, comm: MPI.Intracomm) -> None:
    _with_memory(described, lambda datatype, memory: datatype.Unpack(array, 0, memory, comm))


def _with_memory(described: Described, act: Callable[[MPI.Datatype, Any], object]) -> None:
    """`act` on a datatype and memory of which mpi4py's Pack and Unpack take all elements.

    They divide its length by the extent. Where that is not their number (addresses without memory,
    extents of 0 and below) all become one element, found from a byte of ours.
    """
    datatype, count, address = described.datatype, described.count, described.address
    if described.memory is not None and datatype.extent > 0:
        act(datatype, Buffer.fromaddress(address, count * datatype.extent))
        return
    byte = np.zeros(1, np.uint8)
    moved = datatype.Create_hindexed([count], [address - MPI.Get_address(byte)])
    together = moved.Create_resized(0, 1).Commit()
    act(together, byte)
    together.Free()
    moved.Free()
