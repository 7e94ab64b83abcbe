"""What the elements of a tensor are that shows DLPack and nothing else, wherever it lies.

numpy reads the host's alone, and only elements that it knows. Offsets are those of `DLTensor` and
`DLManagedTensorVersioned` in dlpack.h, version 1.0.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

ON_HOST = (1, 3, 11)  # device types: CPU, and what CUDA and ROCm have registered of it
_CPU = ON_HOST[0]
_VERSION = (1, 0)
_HEADER = {b"dltensor": 0, b"dltensor_versioned": 32}  # bytes before the tensor, by capsule
_DTYPE = 20  # where in a tensor: code, bits and lanes
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # numpy's, by code
_SEVERAL = "B"
_NO_STREAM = -1  # nothing is waited for: nobody looks at the elements themselves

_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def format_of(tensor: Any) -> str:
    """Return the code of one element's datatype, as mpi4py understands it.

    It is "" for elements that MPI has no datatype for (bfloat16), which are MPI.BYTE to mpi4py.
    Elements of several numbers are numbers of one byte to it. Raises ValueError for what mpi4py
    refuses, and whatever the tensor raises.
    """
    capsule = _capsule(tensor)
    name = _name_of(capsule)
    tensor_at = _pointer_of(capsule, name) + _HEADER[name]
    code, bits, lanes = struct.unpack("BBH", ctypes.string_at(tensor_at + _DTYPE, 4))
    kind = _KINDS.get(code, "")
    if kind == "c" and bits == 32 and lanes == 1:
        raise ValueError("no datatype for complex numbers of halves")
    if kind == "f" and lanes == 2:
        kind, bits = "c", 2 * bits
    elif lanes != 1:
        return _SEVERAL
    try:
        return np.dtype(f"{kind}{bits // 8}").char if kind else ""
    except TypeError:
        return _SEVERAL if lanes == 2 else ""


def _capsule(tensor: Any) -> Any:
    named = {} if tensor.__dlpack_device__()[0] == _CPU else {"stream": _NO_STREAM}
    try:
        return tensor.__dlpack__(**named, max_version=_VERSION, copy=False)
    except TypeError:  # from before version 1.0
        return tensor.__dlpack__(**named)
