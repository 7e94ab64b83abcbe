"""Packing of buffer arguments into the bytes of their type signature, for data that is not reduced.

Ranks may describe one signature by different datatypes; its bytes are the same on all ranks.
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

    `unpack()` copies them to the buffer argument; it does nothing where they are its own memory.
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
    """Return the bytes to move; None where mpi4py or MPI refuses `spec`.

    comm        communicator of the messages
    is_source   whether the bytes are read from `spec`; else they are to be filled in and unpacked
    blocks      number of ranks whose data it holds, equally many elements of each
    allocate    allocates memory for data that is not dense; by default on the host
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
    """Do nothing: the `unpack` of bytes that need none."""


def _is_committed(datatype: MPI.Datatype, comm: MPI.Intracomm) -> bool:
    """Return whether MPI accepts a datatype in messages, tried with a request that never starts."""
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
    """Call `function` with a datatype and memory such that Pack and Unpack take all elements.

    mpi4py divides the length of the memory by the extent. Where the result is not the count
    (addresses without memory, extents of 0 and below), all elements become one element of a derived
    datatype relative to a byte of ours.
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
