"""Memory that shows DLPack and nothing else."""

from __future__ import annotations

import ctypes
from typing import Any

_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_HEADER = {b"dltensor": 0, b"dltensor_versioned": 32}  # bytes before the tensor, by capsule
# Offsets in bytes, as in dlpack.h.
_DEVICE = 8
_CODE = 20
_LANES = 22


class Tensor:
    """An array's memory.

    device      the type of device on which it is said to be, 1 for the host
    code        the kind of its elements, where that is not the array's: 4 for bfloat16
    lanes       how many of them are one element
    """

    def __init__(
        self, array: Any, device: int = 1, code: int | None = None, lanes: int = 1
    ) -> None:
        self._array, self._device, self._code, self._lanes = array, device, code, lanes

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, stream: int | None = None, **named: Any) -> Any:
        capsule = self._array.__dlpack__(**named)
        name = _name_of(capsule)
        at = _pointer_of(capsule, name) + _HEADER[name]
        ctypes.c_int32.from_address(at + _DEVICE).value = self._device
        if self._code is not None:
            ctypes.c_uint8.from_address(at + _CODE).value = self._code
        ctypes.c_uint16.from_address(at + _LANES).value = self._lanes
        return capsule


class Older:
    """The same on the host, from before version 1.0 of DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()
