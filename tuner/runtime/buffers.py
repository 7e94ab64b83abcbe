"""The parsing of mpi4py's buffer arguments into memory, count and datatype.

A buffer argument is an object with memory (buffer protocol, DLPack), a list `[buffer, count]`,
`[buffer, datatype]`, `[buffer, count, datatype]`, `[buffer, count, displacement, datatype]`, where
`(count, displacement)` may stand for a count, or one of MPI's constants without memory (None,
MPI.BOTTOM, MPI.IN_PLACE). Counts and displacements are numbers of elements. A displacement must
stay inside the memory; counts are not compared with its length, neither by mpi4py nor here.

Ranks of one call may describe their part differently, as long as count x datatype has the same
signature. So everything that all ranks must agree on is derived from the signature's bytes alone,
and a refusal here means that mpi4py itself refuses the argument on this rank.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tuner.base.arrays import AnyArray
from tuner.runtime.compatibility import (
    DATATYPES,
    OPAQUE_CODE,
    Buffer,
    count_of,
    datatype_of_code,
    datatype_of_format,
    datatype_of_interface,
    typecode_of,
)
from tuner.runtime.dlpack import dlpack_typecode

_NUMERIC_KINDS = "biufc?"  # numpy's kinds and formats of which mpi4py knows the datatype
_ORDER_PRESERVING_COMBINERS = (MPI.COMBINER_DUP, MPI.COMBINER_CONTIGUOUS, MPI.COMBINER_RESIZED)
_MAX_ADDRESS = (1 << 63) - 1

ByteArray = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BufferView:
    """The elements of a buffer argument in the caller's memory.

    array       shape (count,) of the datatype's numpy dtype, or (count, extent) of uint8 where
                numpy has none: pairs for MINLOC and MAXLOC, contiguous derived datatypes
    nbytes      bytes of the type signature: count times the datatype's size
    """

    array: AnyArray
    count: int
    datatype: MPI.Datatype
    nbytes: int

    @property
    def flat(self) -> ByteArray:
        """The same memory as bytes; without padding they are the bytes of the signature."""
        return self.array.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class ParsedBuffer:
    """The fields of a buffer argument; `memory` is None where only an address is given."""

    memory: Any
    address: int
    count: int
    datatype: MPI.Datatype


def datatype_of(dtype: np.dtype[Any]) -> MPI.Datatype:
    """Return the predefined datatype of a numpy dtype; raises KeyError where MPI has none."""
    return DATATYPES[dtype.char]


def is_plain_array(spec: Any) -> bool:
    """Return whether `spec` is a contiguous numpy array of numbers, which mpi4py takes as it is."""
    if type(spec) is not np.ndarray:
        return False
    dtype: np.dtype[Any] = spec.dtype
    return dtype.char in DATATYPES and dtype.isnative and spec.flags.forc


def nbytes_of(spec: Any, blocks: int = 1, multiplier: int = 1) -> int | None:
    """Return the bytes of the type signature; None for an argument that mpi4py refuses.

    blocks      number of ranks whose data it holds, equally many elements of each
    multiplier  factor of the result: the number of ranks that have as much

    The dtype of a numpy array is not checked, so an array that mpi4py refuses for it has a size.
    """
    if type(spec) is np.ndarray:
        return spec.nbytes * multiplier if blocks == 1 or spec.size % blocks == 0 else None
    described = parse_buffer(
        spec if blocks == 1 else spec_of_all_ranks(spec, blocks), writable=False
    )
    if described is None or described.count % blocks:
        return None
    return described.count * described.datatype.Get_size() * multiplier


def contiguous_view(spec: Any, *, writable: bool, allow_padding: bool = False) -> BufferView | None:
    """Return the elements of `spec`; None where mpi4py refuses it or they are not contiguous.

    writable        whether the call writes there, so that read-only memory is refused
    allow_padding   admit pairs with padding (DOUBLE_INT): a reduction treats them as elements, but
                    their memory is not the bytes of the signature
    """
    if is_plain_array(spec):
        return _view_of_array(spec, writable)
    described = parse_buffer(spec, writable)
    if described is None or not _is_contiguous(described.datatype, allow_padding):
        return None
    return _view_of_parsed(described)


def elements_of(memory: ByteArray, count: int, datatype: MPI.Datatype) -> AnyArray:
    """Return `memory` as an array of elements, shaped as in a `BufferView`."""
    dtype = np.dtype(typecode_of(datatype) if datatype.is_predefined else OPAQUE_CODE)
    if dtype.kind not in _NUMERIC_KINDS or dtype.itemsize != datatype.extent:
        return memory.reshape(count, datatype.extent)
    return memory.view(dtype)


def address_of(content: ByteArray) -> int:
    """Return the address of an array of bytes, on host or device."""
    address: int = content.__array_interface__["data"][0]
    return address


def is_in_place(spec: Any) -> bool:
    """Return whether mpi4py takes this argument for MPI_IN_PLACE, where MPI allows it."""
    return spec is None or spec is MPI.IN_PLACE


def spec_of_all_ranks(spec: Any, p: int) -> Any:
    """Return the argument with its count multiplied by `p`.

    In arguments for the data of all `p` ranks, MPI counts the elements of one rank. An argument
    that mpi4py refuses is returned as it is.
    """
    if not isinstance(spec, list | tuple):
        return spec
    try:
        buffer, count, displacement, datatype = _split_spec(spec)
        return spec if count is None else [buffer, count_of(count) * p, displacement, datatype]
    except (TypeError, ValueError, OverflowError):
        return spec


def underlying_bytes(spec: Any, *, writable: bool) -> ByteArray:
    """Return all memory of the buffer in an argument, as bytes at its address, host or device.

    Raises BufferError where mpi4py does: for gaps, and for read-only memory that is to be written.
    """
    memory = Buffer.frombuffer(spec[0] if isinstance(spec, list | tuple) else spec, not writable)
    there: Any = Buffer.fromaddress(memory.address, memory.nbytes)
    return np.ndarray((memory.nbytes,), np.uint8, there)


def replace_memory(spec: Any, memory: ByteArray) -> Any:
    """Return the same argument with `memory`, a copy of all its memory, in place of the buffer.

    Raises an exception where mpi4py does.
    """
    if isinstance(spec, list | tuple):
        buffer, count, displacement, datatype = _split_spec(spec)
        return [memory, count, displacement, _datatype(datatype, buffer)]
    datatype = _datatype_of_items(spec)
    code = typecode_of(datatype)
    return memory.view(code) if DATATYPES.get(code) == datatype else [memory, datatype]


def _view_of_array(array: AnyArray, writable: bool) -> BufferView | None:
    """Return the view of a plain array, the common case; None for unwritable memory."""
    if writable and not array.flags.writeable:
        return None
    flat = array if array.ndim == 1 else array.reshape(-1, order="A")
    return BufferView(flat, array.size, datatype_of(array.dtype), array.nbytes)


def _view_of_parsed(parsed: ParsedBuffer) -> BufferView:
    count, datatype = parsed.count, parsed.datatype
    nbytes = count * datatype.extent
    memory: ByteArray = np.ndarray((nbytes,), np.uint8, _element_memory(parsed, nbytes))
    array = elements_of(memory, count, datatype)
    return BufferView(array, count, datatype, count * datatype.Get_size())


def _element_memory(parsed: ParsedBuffer, nbytes: int) -> memoryview:
    """Return the memory of the elements; host memory is kept alive through the buffer's owner."""
    memory = parsed.memory
    if memory is not None:
        start = parsed.address - memory.address
        with suppress(BufferError):  # device memory: only its address is used here
            if start + nbytes <= memory.nbytes:
                return memoryview(memory).cast("B")[start : start + nbytes]
    # A count beyond the buffer's end is not checked, as in MPI.
    return memoryview(Buffer.fromaddress(parsed.address, nbytes)).cast("B")


def _is_contiguous(datatype: MPI.Datatype, allow_padding: bool) -> bool:
    """Return whether elements, and the parts of each in order, are adjacent in memory."""
    dense = datatype.extent == datatype.Get_size()
    if datatype.is_predefined:
        return allow_padding or dense
    if not dense or datatype.combiner not in _ORDER_PRESERVING_COMBINERS:
        return False
    base, _, _ = datatype.decode()
    try:
        return _is_contiguous(base, allow_padding=False)
    finally:
        if not base.is_predefined:
            base.Free()


def parse_buffer(spec: Any, writable: bool) -> ParsedBuffer | None:
    """Parse a buffer argument; None for one without memory and for one that mpi4py refuses."""
    try:
        if isinstance(spec, list | tuple):
            return _parse_fields(*_split_spec(spec), writable)
        if _has_no_memory(spec):
            return None
        return _parse_fields(spec, None, None, None, writable)
    except Exception:  # noqa: BLE001 - the object raises the same in mpi4py
        return None


def _split_spec(spec: list[Any] | tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """Split a list into buffer, count, displacement and datatype; None for those not given."""
    if len(spec) == 4:
        return spec[0], spec[1], spec[2], spec[3]
    if len(spec) not in (2, 3):
        raise ValueError("two to four items")
    count, datatype = spec[1], spec[2] if len(spec) == 3 else None
    if len(spec) == 2 and isinstance(count, MPI.Datatype | str):
        count, datatype = None, count
    if isinstance(count, list | tuple):
        count, displacement = count
        return spec[0], count, displacement, datatype
    return spec[0], count, None, datatype


def _parse_fields(
    buffer: Any, count: Any, displacement: Any, datatype: Any, writable: bool
) -> ParsedBuffer:
    """Compute address, count and datatype; raises an exception where mpi4py does."""
    memory = None if _has_no_memory(buffer) else Buffer.frombuffer(buffer, not writable)
    kind = _datatype(datatype, buffer)
    extent, first = kind.Get_extent()[1], 0 if displacement is None else count_of(displacement)
    length = memory.nbytes if memory is not None else 0
    if first < 0 or (first > 0 and not 0 < first * extent <= length):
        raise ValueError("displaced out of the buffer")
    length -= first * extent
    if count is None:
        if length and extent <= 0:
            raise ValueError("any number of elements fits")
        count, rest = divmod(length, extent) if length else (0, 0)
        if rest:
            raise ValueError("the buffer ends inside an element")
    count = count_of(count)
    if count < 0 or (buffer is None and count > 0):
        raise ValueError("negative, or elements of nothing")
    if count * extent > _MAX_ADDRESS:
        raise OverflowError("no address is that large")
    return ParsedBuffer(memory, (memory.address if memory else 0) + first * extent, count, kind)


def _has_no_memory(buffer: Any) -> bool:
    # By identity, as in mpi4py: up to 3.1 these constants are numbers.
    return any(buffer is name for name in (None, MPI.BOTTOM, MPI.IN_PLACE))


def _datatype(datatype: Any, buffer: Any) -> MPI.Datatype:
    """Return the datatype, given as an object or by name, else that of the buffer's items."""
    if isinstance(datatype, MPI.Datatype):
        if datatype == MPI.DATATYPE_NULL:
            raise ValueError("no datatype")
        return datatype
    if isinstance(datatype, str):
        return datatype_of_code(datatype)
    if datatype is not None or _has_no_memory(buffer):
        raise KeyError(datatype)
    return _datatype_of_items(buffer)


def _datatype_of_items(buffer: Any) -> MPI.Datatype:
    """Return the datatype of one item, from the protocols that mpi4py tries, in the same order."""
    try:
        written = memoryview(buffer).format
    except Exception:  # noqa: BLE001 - after any error mpi4py tries the next protocol
        written = ""
    if written:
        return datatype_of_format(written)
    if hasattr(buffer, "__dlpack__") and hasattr(buffer, "__dlpack_device__"):
        code = dlpack_typecode(buffer)
        return datatype_of_code(code) if code else MPI.BYTE
    return datatype_of_interface(buffer.__cuda_array_interface__["typestr"])
