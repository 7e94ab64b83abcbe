"""Control variables of the MPI library, read and written while the program runs (MPI_T).

Functions are looked up through mpi4py's extension module, so the variables are those of the library
that mpi4py uses, whatever its file is called.
"""

from __future__ import annotations

import atexit
import ctypes
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from tuner.base.errors import InputError

if TYPE_CHECKING:
    from tuner.mpi_libraries.capabilities import ControlVariable

_INTEGER_TYPES: dict[int, type[ctypes.c_int8 | ctypes.c_int32 | ctypes.c_int64]] = {
    1: ctypes.c_int8,  # C's bool; a string has the same item size but a count greater than one
    4: ctypes.c_int32,
    8: ctypes.c_int64,
}
MAX_TEXT_BYTES = 4096  # bytes of a name or a description
ERR_CVAR_SET_NEVER = 64  # MPI_T_ERR_CVAR_SET_NEVER of Open MPI
_ENUM_LINE = r"(\w+)[ \t]+-[ \t]"  # `name - description`
_JOINED_NAMES = (  # names of MPICH 3.4 and 4.0; a name follows those that are a suffix of it
    "auto",
    "binomial",
    "nb",
    "smp",
    "scatter_recursive_doubling_allgather",
    "scatter_ring_allgather",
    "recursive_doubling",
    "reduce_scatter_allgather",
)


class _SymbolInfo(ctypes.Structure):
    """The struct `Dl_info` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def library_functions() -> ctypes.CDLL:
    """Return the functions of the MPI library that mpi4py uses."""
    return ctypes.CDLL(str(MPI.__file__))


@cache
def loaded_library() -> Path:
    """Return the file of the MPI library that mpi4py uses; raises InputError if not found."""
    function = ctypes.cast(library_functions().MPI_Get_library_version, ctypes.c_void_p)
    info = _SymbolInfo()
    if not ctypes.CDLL(None).dladdr(function, ctypes.byref(info)) or not info.file:
        raise InputError(f"the MPI library of {MPI.__file__} cannot be found: reinstall mpi4py")
    return Path(info.file.decode()).resolve()


def _close_before_mpi_ends(close: Callable[[], int]) -> None:
    """Close the tool interface once, in MPI_Finalize or before Python ends without that.

    While it is open, Open MPI would keep its connection to the launcher, which would take a spawned
    program for one that has died, and end its parents.
    """
    closing = [close]

    def close_once(*_: Any) -> None:
        while closing and not MPI.Is_finalized():
            closing.pop()()

    if MPI.Is_initialized():  # the attributes of COMM_SELF are the first that MPI deletes
        MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=close_once), None)
    atexit.register(close_once)


class ControlVariables:
    """An interface to the library's control variables by name.

    When a written value takes effect depends on the library: Open MPI reads its `coll_tuned_*`
    variables when a communicator is created, MPICH reads its CVARs at every call. A variable is
    opened once and stays open, since some are written around every call. Values can be read and
    written once MPI is initialised; `describe` works before that, too.
    """

    def __init__(self) -> None:
        self._mpi = library_functions()
        self._handles: dict[str, tuple[ctypes.c_void_p, int, int]] = {}
        level = ctypes.c_int(MPI.THREAD_SINGLE)
        if MPI.Is_initialized():
            self._mpi.MPI_Query_thread(ctypes.byref(level))
        # Open MPI applies this level to the whole program.
        code = self._mpi.MPI_T_init_thread(level, ctypes.byref(ctypes.c_int()))
        if code != 0:
            raise InputError(f"the MPI tool interface cannot be initialised (error {code})")
        _close_before_mpi_ends(self._mpi.MPI_T_finalize)

    def read(self, name: str) -> int | str:
        """Return the variable's present value; raises InputError for an unknown name."""
        handle, size, count = self._open(name)
        value = _buffer(size, count)
        self._check(self._mpi.MPI_T_cvar_read(handle, ctypes.byref(value)), name, "read")
        content = value.value
        return content.decode() if isinstance(content, bytes) else int(content)

    def write(self, name: str, value: int | str) -> None:
        """Write a value; raises InputError for an unknown variable and for a refused value."""
        self._check(self.writer(name, value)(), name, f"set to {value!r}")

    def writer(self, name: str, value: int | str) -> Callable[[], int]:
        """Return a function that writes this value and returns the MPI error code, 0 for success.

        For an enumeration, a string is the name of a value. Raises InputError for an unknown
        variable or name and for a value of the wrong type.
        """
        handle, size, count = self._open(name)
        text = size == 1 and count > 1
        if isinstance(value, str) and not text:
            value = self._enum_number(name, value)
        buffer = _buffer(size, count)
        buffer.value = _content(name, value, count, text)
        return partial(self._mpi.MPI_T_cvar_write, handle, ctypes.byref(buffer))

    def describe(self, name: str) -> ControlVariable | None:
        """Describe a variable; None where the library does not have it.

        Its present value is written back to it to see whether it can be set at run time.
        """
        from tuner.mpi_libraries.capabilities import ControlVariable  # slow to import

        index = ctypes.c_int()
        if self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)) != 0:
            return None
        handle, count = self._handle(name, index)
        value = ctypes.create_string_buffer(max(MAX_TEXT_BYTES, 8 * count.value))
        code = self._mpi.MPI_T_cvar_read(handle, value)
        self._check(code, name, "read")
        settable = self._mpi.MPI_T_cvar_write(handle, value) == 0
        self._mpi.MPI_T_cvar_handle_free(ctypes.byref(handle))
        return ControlVariable(settable, self._enum_values(name))

    def _enum_number(self, name: str, value: str) -> int:
        """Return the number of an enumeration's value; raises InputError for an unknown one."""
        values = self._enum_values(name)
        if not values:
            raise InputError(f"control variable {name} takes a number, not {value!r}")
        if value not in values:
            raise InputError(
                f"control variable {name} has no value {value!r} in {loaded_library()}: it has"
                f" {', '.join(values)}"
            )
        return values[value]

    def _enum_values(self, name: str) -> dict[str, int]:
        """Return the numbers of an enumeration by name; none for other variables."""
        index = ctypes.c_int()
        self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index))
        enumeration, length = ctypes.c_void_p(), ctypes.c_int(MAX_TEXT_BYTES)
        description = ctypes.create_string_buffer(MAX_TEXT_BYTES)
        code = self._mpi.MPI_T_cvar_get_info(
            index,
            None,
            None,
            None,
            None,
            ctypes.byref(enumeration),
            description,
            ctypes.byref(length),
            None,
            None,
        )
        self._check(code, name, "described")
        if not enumeration:
            return parse_enum_values(description.value.decode(errors="replace"))
        count = ctypes.c_int()
        self._mpi.MPI_T_enum_get_info(enumeration, ctypes.byref(count), None, None)
        return dict(self._enum_item(enumeration, item) for item in range(count.value))

    def _enum_item(self, enumeration: ctypes.c_void_p, item: int) -> tuple[str, int]:
        """Return the name and the number of one value of an enumeration."""
        number, length = ctypes.c_int(), ctypes.c_int(MAX_TEXT_BYTES)
        name = ctypes.create_string_buffer(MAX_TEXT_BYTES)
        self._mpi.MPI_T_enum_get_item(
            enumeration, item, ctypes.byref(number), name, ctypes.byref(length)
        )
        return name.value.decode(errors="replace"), number.value

    def _open(self, name: str) -> tuple[ctypes.c_void_p, int, int]:
        """Return handle, bytes per item and number of items of a variable."""
        if name not in self._handles:
            self._handles[name] = self._look_up(name)
        return self._handles[name]

    def _look_up(self, name: str) -> tuple[ctypes.c_void_p, int, int]:
        index = ctypes.c_int()
        code = self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index))
        self._check(code, name, "found")
        datatype = ctypes.c_void_p()  # a pointer in Open MPI, an int in MPICH: both fit
        code = self._mpi.MPI_T_cvar_get_info(
            index, None, None, None, ctypes.byref(datatype), None, None, None, None, None
        )
        self._check(code, name, "described")
        size = ctypes.c_int()
        self._check(self._mpi.MPI_Type_size(datatype, ctypes.byref(size)), name, "described")
        handle, count = self._handle(name, index)
        return handle, size.value, count.value

    def _handle(self, name: str, index: ctypes.c_int) -> tuple[ctypes.c_void_p, ctypes.c_int]:
        handle, count = ctypes.c_void_p(), ctypes.c_int()
        code = self._mpi.MPI_T_cvar_handle_alloc(
            index, None, ctypes.byref(handle), ctypes.byref(count)
        )
        self._check(code, name, "opened")
        return handle, count

    def _check(self, code: int, name: str, participle: str) -> None:
        if code == ERR_CVAR_SET_NEVER and participle.startswith("set"):
            raise InputError(
                f"{loaded_library()} takes {name} from the environment alone: start the program"
                f" with OMPI_MCA_{name} in it, or by `python -m tuner.run`"
            )
        if code != 0:
            raise InputError(
                f"control variable {name} cannot be {participle} in {loaded_library()}"
                f" (MPI error {code}): check the name and the value"
            )


def parse_enum_values(description: str) -> dict[str, int]:
    """Return the numbers of an enumeration of MPICH by name, from its description.

    It has one line for each value, in the order of their numbers. MPICH up to 4.0 joins the lines
    (`...Force Binomial Treenb   - Force nonblocking`); there the names are recognised by
    `_JOINED_NAMES`.
    """
    found = re.findall(_ENUM_LINE, description)
    if "\n" not in description:
        found = [
            next((known for known in _JOINED_NAMES if name.endswith(known)), name) for name in found
        ]
    return {name: number for number, name in enumerate(found)}


def _buffer(size: int, count: int) -> Any:
    if size == 1 and count > 1:
        return ctypes.create_string_buffer(count)
    return _INTEGER_TYPES[size]()


def _content(name: str, value: int | str, capacity: int, text: bool) -> int | bytes:
    """Return the buffer's content; raises InputError for a wrong type or a value too long."""
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
