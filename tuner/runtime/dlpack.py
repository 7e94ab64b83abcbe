"""The element type of tensors that support only DLPack, on host or device.

numpy reads only tensors on the host, and only elements that it knows. Offsets are those of
`DLTensor` and `DLManagedTensorVersioned` in dlpack.h, version 1.0.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

HOST_DEVICE_TYPES = (1, 3, 11)  # CPU, and CPU memory registered with CUDA and ROCm
_CPU = HOST_DEVICE_TYPES[0]
_VERSION = (1, 0)
_HEADER_BYTES = {b"dltensor": 0, b"dltensor_versioned": 32}  # bytes before the tensor
_DTYPE_OFFSET = 20  # offset in a tensor of code, bits and lanes
_KIND_BY_CODE = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # numpy's kind by DLPack's code
_MULTI_LANE_CODE = "B"
_NO_STREAM = -1  # do not synchronise: the elements are not accessed

_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def dlpack_typecode(tensor: Any) -> str:
    """Return the code of one element's datatype, as mpi4py interprets it.

    It is "" for elements without MPI datatype (bfloat16), which mpi4py treats as MPI.BYTE; mpi4py
    treats elements of several lanes as numbers of one byte. Raises ValueError for elements that
    mpi4py refuses, and any exception of the tensor.
    """
    capsule = _capsule(tensor)
    name = _capsule_name(capsule)
    tensor_at = _capsule_pointer(capsule, name) + _HEADER_BYTES[name]
    code, bits, lanes = struct.unpack("BBH", ctypes.string_at(tensor_at + _DTYPE_OFFSET, 4))
    kind = _KIND_BY_CODE.get(code, "")
    if kind == "c" and bits == 32 and lanes == 1:
        raise ValueError("no datatype for complex numbers of halves")
    if kind == "f" and lanes == 2:
        kind, bits = "c", 2 * bits
    elif lanes != 1:
        return _MULTI_LANE_CODE
    try:
        return np.dtype(f"{kind}{bits // 8}").char if kind else ""
    except TypeError:
        return _MULTI_LANE_CODE if lanes == 2 else ""


def _capsule(tensor: Any) -> Any:
    named = {} if tensor.__dlpack_device__()[0] == _CPU else {"stream": _NO_STREAM}
    try:
        return tensor.__dlpack__(**named, max_version=_VERSION, copy=False)
    except TypeError:  # tensors of DLPack before version 1.0
        return tensor.__dlpack__(**named)
