"""Wrappers for what differs between mpi4py 3.1 and 4, and datatypes that not every MPI has."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np
from mpi4py import MPI

MPI4PY_3 = not hasattr(MPI.Datatype, "fromcode")
TYPE_CODES = "?bBhHiIlLqQpPefdgFDG"  # numpy's codes of numbers
OPAQUE_CODE = "V"  # numpy's code of opaque bytes
_NATIVE_PREFIXES = "|@=<" if np.little_endian else "|@=>!"
_NATIVE_BYTE_ORDERS = "|<" if np.little_endian else "|>"  # in an array interface
_NUMERIC_KINDS = "biufc"  # kinds of items in an array interface
_COMPLEX32 = "c4"

Buffer: Any = MPI.memory if MPI4PY_3 else MPI.buffer
handle_of = MPI._handleof  # MPI's own number for a communicator, a datatype or an operator


def make_info(pairs: Mapping[str, str]) -> MPI.Info:
    """Return an info object with these keys and values."""
    info = MPI.Info.Create()
    for key, value in pairs.items():
        info.Set(key, value)
    return info


def count_of(value: Any) -> int:
    """Convert a count or displacement of a buffer argument; raises TypeError where mpi4py does.

    mpi4py 4 takes integers only; mpi4py 3.1 converts other numbers as C does and truncates 4.7.
    """
    if not MPI4PY_3:
        return index(value)
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__int__"):
        raise TypeError(f"an integer is required, not {type(value).__name__}")
    return int(value)


def datatype_of_code(code: str) -> MPI.Datatype:
    """Return the predefined datatype with a code such as `d` or `f8`.

    Raises KeyError or ValueError where mpi4py or MPI has none.
    """
    datatype = MPI._typedict[code] if MPI4PY_3 else MPI.Datatype.fromcode(code)
    if datatype == MPI.DATATYPE_NULL:
        raise KeyError(code)
    return datatype


def datatype_of_format(format_code: str) -> MPI.Datatype:
    """Return the datatype for a format of the buffer protocol; raises as `datatype_of_code`."""
    return datatype_of_code(format_code if MPI4PY_3 else format_code.lstrip(_NATIVE_PREFIXES))


def datatype_of_interface(typestr: str) -> MPI.Datatype:
    """Return the datatype for a `typestr` of an array interface, such as `<f8`.

    mpi4py treats items that are not numbers, such as bfloat16 (`<V2`), as bytes. mpi4py 3.1 ignores
    the byte order. Raises KeyError where MPI has no datatype, BufferError for a foreign byte order.
    """
    if not MPI4PY_3 and typestr[0] not in _NATIVE_BYTE_ORDERS:
        raise BufferError(f"{typestr}: another order of bytes")
    if typestr[1:] == _COMPLEX32 and not MPI4PY_3:
        raise KeyError(typestr)
    code = _code_of_dtype(typestr[1:]) if typestr[1] in _NUMERIC_KINDS else OPAQUE_CODE
    return MPI.BYTE if code == OPAQUE_CODE else datatype_of_code(code)


def typecode_of(datatype: MPI.Datatype) -> str:
    """Return numpy's code of a predefined datatype, OPAQUE_CODE where it has none."""
    if not MPI4PY_3:
        return datatype.typechar or OPAQUE_CODE
    return _code_of_dtype(MPI._typecode(datatype) or OPAQUE_CODE)


def _code_of_dtype(dtype_code: str) -> str:
    try:
        return np.dtype(dtype_code).char
    except TypeError:
        return OPAQUE_CODE


def _has_datatype(code: str) -> bool:
    try:
        datatype_of_code(code)
    except (KeyError, ValueError):
        return False
    return True


DATATYPES = {code: datatype_of_code(code) for code in TYPE_CODES if _has_datatype(code)}
