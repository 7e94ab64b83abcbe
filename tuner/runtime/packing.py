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

from tuner.runtime.buffers import (
    BufferView,
    ByteArray,
    ParsedBuffer,
    contiguous_view,
    parse_buffer,
    spec_of_all_ranks,
)
from tuner.runtime.compatibility import Buffer


@dataclass(frozen=True, slots=True)
class PackedBuffer:
    """The bytes of a type signature, shape (nbytes,): the caller's own memory where it is dense.

    `unpack()` puts them where the buffer argument wants them; it does nothing for own memory.
    """

    array: ByteArray
    unpack: Callable[[], None]


def pack_buffer(
    spec: Any,
    comm: MPI.Intracomm,
    *,
    is_source: bool,
    blocks: int = 1,
    allocate: Callable[[int], ByteArray] | None = None,
) -> PackedBuffer | None:
    """The bytes to move; None where mpi4py or MPI refuses `spec`.

    root    the bytes are read from `spec`; elsewhere they are to be filled in, then unpacked
    comm    where they travel
    parts   of how many ranks it is the data; it must be as many elements of each
    empty   makes memory for what is not dense; the host's by default
    """
    argument = spec if blocks == 1 else spec_of_all_ranks(spec, blocks)
    view = contiguous_view(argument, writable=not is_source)
    described = view or parse_buffer(argument, writable=not is_source)
    if described is None or described.count % blocks or not _is_committed(described.datatype, comm):
        return None
    if isinstance(described, BufferView):
        return PackedBuffer(described.flat, do_nothing)
    nbytes = described.count * described.datatype.Get_size()
    array = allocate(nbytes) if allocate else np.empty(nbytes, np.uint8)
    if nbytes == 0:
        return PackedBuffer(array, do_nothing)
    if not is_source:
        return PackedBuffer(array, partial(_unpack, described, array, comm))
    _pack(described, array, comm)
    return PackedBuffer(array, do_nothing)


def do_nothing() -> None:
    """There is nothing to unpack."""


def _is_committed(datatype: MPI.Datatype, comm: MPI.Intracomm) -> bool:
    """MPI refuses to move elements of any other, which a request that is never started shows."""
    if datatype.is_predefined:
        return True
    try:
        comm.Recv_init([np.zeros(1, np.uint8), 1, datatype], comm.rank).Free()
    except MPI.Exception:
        return False
    return True


def _pack(parsed: ParsedBuffer, array: ByteArray, comm: MPI.Intracomm) -> None:
    _apply_to_memory(parsed, lambda datatype, memory: datatype.Pack(memory, array, 0, comm))


def _unpack(parsed: ParsedBuffer, array: ByteArray, comm: MPI.Intracomm) -> None:
    _apply_to_memory(parsed, lambda datatype, memory: datatype.Unpack(array, 0, memory, comm))


def _apply_to_memory(parsed: ParsedBuffer, function: Callable[[MPI.Datatype, Any], object]) -> None:
    """`act` on a datatype and memory of which mpi4py's Pack and Unpack take all elements.

    They divide its length by the extent. Where that is not their number (addresses without memory,
    extents of 0 and below) all become one element, found from a byte of ours.
    """
    datatype, count, address = parsed.datatype, parsed.count, parsed.address
    if parsed.memory is not None and datatype.extent > 0:
        function(datatype, Buffer.fromaddress(address, count * datatype.extent))
        return
    byte = np.zeros(1, np.uint8)
    moved = datatype.Create_hindexed([count], [address - MPI.Get_address(byte)])
    together = moved.Create_resized(0, 1).Commit()
    function(together, byte)
    together.Free()
    moved.Free()
