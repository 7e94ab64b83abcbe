"""The MPI library's own settings, read and written while the program runs (MPI_T).

The functions are looked up in the libmpi that this process has already loaded, so the variables
are those of the library that serves its communicators. Standard library only.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tuner.errors import InputError

_LIBRARY = re.compile(r"/libmpi(_abi)?\.so[.0-9]*$")
_INTEGERS: dict[int, type[ctypes.c_int8 | ctypes.c_int32 | ctypes.c_int64]] = {
    1: ctypes.c_int8,  # C's bool; a string has the same item size but a count above one
    4: ctypes.c_int32,
    8: ctypes.c_int64,
}


def loaded_library() -> Path:
    """The libmpi in this process's memory map; raises InputError when there is none."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    for line in mapped:
        if _LIBRARY.search(line):
            return Path(line.split(maxsplit=5)[-1])
    raise InputError("no MPI library is loaded in this process: import mpi4py.MPI first")


class ControlVariables:
    """Reads and writes control variables by name; MPI must be initialised.

    When a written value takes effect is the library's affair: Open MPI reads its `coll_tuned_*`
    variables when a communicator is created, MPICH reads its CVARs at every call. A variable is
    opened once and stays open: some are written around every call.
    """

    def __init__(self) -> None:
        self._mpi = ctypes.CDLL(str(loaded_library()))
        self._opened: dict[str, tuple[ctypes.c_void_p, int, int]] = {}
        level = ctypes.c_int()
        self._mpi.MPI_Query_thread(ctypes.byref(level))
        # Open MPI takes what is asked for here for the level of the whole program from now on.
        code = self._mpi.MPI_T_init_thread(level, ctypes.byref(ctypes.c_int()))
        if code != 0:
            raise InputError(f"the MPI tool interface cannot be initialised (error {code})")

    def read(self, name: str) -> int | str:
        """The variable's present value; raises InputError for an unknown name."""
        handle, size, count = self._open(name)
        value = _buffer(size, count)
        self._require(self._mpi.MPI_T_cvar_read(handle, ctypes.byref(value)), name, "read")
        content = value.value
        return content.decode() if isinstance(content, bytes) else int(content)

    def write(self, name: str, value: int | str) -> None:
        """Raises InputError for an unknown variable, and for a value the library refuses."""
        self._require(self.writer(name, value)(), name, f"set to {value!r}")

    def writer(self, name: str, value: int | str) -> Callable[[], int]:
        """A function that writes this value and returns the MPI error code, 0 for success.

        Raises InputError for an unknown variable and for a value of the wrong kind.
        """
        handle, size, count = self._open(name)
        buffer = _buffer(size, count)
        buffer.value = _content(name, value, count, text=size == 1 and count > 1)
        return partial(self._mpi.MPI_T_cvar_write, handle, ctypes.byref(buffer))

    def _open(self, name: str) -> tuple[ctypes.c_void_p, int, int]:
        """Handle, bytes per item and number of items of a variable."""
        if name not in self._opened:
            self._opened[name] = self._described(name)
        return self._opened[name]

    def _described(self, name: str) -> tuple[ctypes.c_void_p, int, int]:
        index, handle, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        code = self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index))
        self._require(code, name, "found")
        datatype = ctypes.c_void_p()  # a pointer in Open MPI, an int in MPICH: both fit
        code = self._mpi.MPI_T_cvar_get_info(
            index, None, None, None, ctypes.byref(datatype), None, None, None, None, None
        )
        self._require(code, name, "described")
        size = ctypes.c_int()
        self._require(self._mpi.MPI_Type_size(datatype, ctypes.byref(size)), name, "described")
        code = self._mpi.MPI_T_cvar_handle_alloc(
            index, None, ctypes.byref(handle), ctypes.byref(count)
        )
        self._require(code, name, "opened")
        return handle, size.value, count.value

    def _require(self, code: int, name: str, done: str) -> None:
        if code != 0:
            raise InputError(
                f"control variable {name} cannot be {done} in {loaded_library()}"
                f" (MPI error {code}): check the name and the value"
            )


def _buffer(size: int, count: int) -> Any:
    if size == 1 and count > 1:
        return ctypes.create_string_buffer(count)
    return _INTEGERS[size]()


def _content(name: str, value: int | str, capacity: int, text: bool) -> int | bytes:
    """What goes into the buffer; raises InputError when the kind or the length does not fit."""
    if text != isinstance(value, str):
        raise InputError(
            f"control variable {name} takes {'a text' if text else 'a number'}, not {value!r}"
        )
    if isinstance(value, int):
        return value
    content = value.encode()
    if len(content) >= capacity:
        raise InputError(f"control variable {name} holds {capacity - 1} bytes, too few for {value}")
    return content
