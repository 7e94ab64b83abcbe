"""Buffer arguments mean here what they mean to mpi4py: each is really sent and received."""

import array
import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from tests.support.tensors import Older, Tensor
from tuner.runtime.buffers import contiguous_view, nbytes_of
from tuner.runtime.compatibility import DATATYPES, Buffer
from tuner.runtime.dlpack import dlpack_typecode
from tuner.runtime.packing import pack_buffer

WORLD = MPI.COMM_SELF.Dup()
NUMBERS = np.arange(12.0).reshape(3, 4)
CAPACITY = 4096  # bytes, more than any argument here describes


class InterfaceOnly:
    """What arrays of CUDA libraries look like; the memory is the host's."""

    def __init__(self, content: np.ndarray[Any, Any], typestr: str = "") -> None:
        self.content, self.typestr = content, typestr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        named = {"typestr": self.typestr} if self.typestr else {}
        return {**self.content.__array_interface__, **named, "version": 3}


class Both(InterfaceOnly):
    """A CUDA library's tensor, which shows DLPack as well; bfloat16 where it has a code of 4."""

    def __init__(self, content: np.ndarray[Any, Any], typestr: str, code: int | None) -> None:
        super().__init__(content, typestr)
        self.tensor = Tensor(content, code=code)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **named: Any) -> Any:
        return self.tensor.__dlpack__(**named)


class Unwilling(Both):
    """A tensor that needs a gradient."""

    def __dlpack__(self, **named: Any) -> Any:
        raise RuntimeError("use tensor.detach()")


def numbers() -> np.ndarray[Any, Any]:
    return NUMBERS.copy()


def frozen() -> np.ndarray[Any, Any]:
    content = numbers()
    content.flags.writeable = False
    return content


def committed(datatype: MPI.Datatype) -> MPI.Datatype:
    return datatype.Commit()


VECTOR = committed(MPI.DOUBLE.Create_vector(2, 1, 2))
QUADRUPLE = committed(MPI.DOUBLE.Create_contiguous(4))
REVERSED = committed(MPI.DOUBLE.Create_hindexed([1, 1], [8, 0]))
APART = committed(MPI.DOUBLE.Create_resized(0, 16))
PART = committed(
    MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.DOUBLE, MPI.INT]).Create_resized(0, 16)
)
LOWER = committed(MPI.DOUBLE.Create_resized(8, 8))
NOTHING = committed(MPI.DOUBLE.Create_contiguous(0))
TARGET = numbers()
ABSOLUTE = committed(MPI.DOUBLE.Create_hindexed([3], [MPI.Get_address(TARGET)]))

ARGUMENTS: dict[str, Callable[[], Any]] = {
    # plain objects
    "array": numbers,
    "Fortran order": lambda: np.asfortranarray(NUMBERS),
    "strided": lambda: numbers()[:, ::2],
    "backwards": lambda: np.arange(4.0)[::-1],
    "read-only": frozen,
    "no dimension": lambda: np.array(3.0),
    "scalar": lambda: np.float64(3.0),
    "empty": lambda: np.empty(0),
    "empty rows": lambda: np.empty((0, 3)),
    "masked": lambda: np.ma.array([1.0, 2.0]),
    "bytes": lambda: b"abcd",
    "bytearray": lambda: bytearray(b"abcd"),
    "no bytes": bytearray,
    "memoryview": lambda: memoryview(bytearray(b"abcdefgh")),
    "memoryview of integers": lambda: memoryview(bytearray(8)).cast("i"),
    "memoryview of characters": lambda: memoryview(bytearray(8)).cast("c"),
    "memoryview of complex": lambda: np.ones(2, "D").data,
    "array.array": lambda: array.array("i", [1, 2, 3]),
    "array.array of text": lambda: array.array("u", "ab"),
    "ctypes": lambda: (ctypes.c_int * 3)(1, 2, 3),
    "MPI memory": lambda: Buffer.allocate(16, clear=True),
    "DLPack": lambda: Tensor(numbers()),
    "DLPack, strided": lambda: Tensor(numbers()[:, ::2]),
    "array interface": lambda: InterfaceOnly(numbers()),
    "array interface, Fortran order": lambda: InterfaceOnly(np.asfortranarray(NUMBERS)),
    "array interface, strided": lambda: InterfaceOnly(numbers()[:, ::2]),
    "array interface, read-only": lambda: InterfaceOnly(frozen()),
    "array interface, boolean": lambda: InterfaceOnly(np.ones(3, "?")),
    "array interface, in a list": lambda: [InterfaceOnly(numbers()), (3, 2), MPI.DOUBLE],
    "array interface, other byte order": lambda: InterfaceOnly(NUMBERS.astype(">f8")),
    "interface of bfloat16": lambda: InterfaceOnly(np.ones(6, "u2"), "<V2"),
    "interface of records": lambda: InterfaceOnly(np.zeros(3, "i4,f8")),
    "interface of bytes": lambda: InterfaceOnly(np.ones(6, "u4"), "|V4"),
    "interface of text": lambda: InterfaceOnly(np.array([b"abc"])),
    "interface of time": lambda: InterfaceOnly(np.array(["2020-01-01"], "M8[D]")),
    "interface of bits": lambda: InterfaceOnly(np.ones(6, "u1"), "|t1"),
    "interface of wide numbers": lambda: InterfaceOnly(np.ones(6, "c16"), "<i16"),
    "interface of halves": lambda: InterfaceOnly(np.ones(6, "e")),
    "interface of complex halves": lambda: InterfaceOnly(np.ones(6, "f"), "<c4"),
    "interface of an unknown order": lambda: InterfaceOnly(np.ones(6, "f"), "=f4"),
    "tensor of bfloat16": lambda: Both(np.ones(6, "u2"), "<V2", 4),
    "tensor of numbers": lambda: Both(np.ones(6, "f"), "<f4", None),
    "tensor and interface that differ": lambda: Both(np.ones(6, "f"), "|u4", None),
    "tensor that refuses": lambda: Unwilling(np.ones(6, "f"), "<f4", None),
    "tensor that refuses, in a list": lambda: [Unwilling(np.ones(6, "f"), "<f4", None), 6],
    "other byte order": lambda: NUMBERS.astype(">f8"),
    "time": lambda: np.array(["2020-01-01"], "M8[D]"),
    "record": lambda: np.zeros(3, "i4,f8"),
    "byte strings": lambda: np.array([b"abc"]),
    "letters": lambda: np.array([b"a", b"b"]),
    "text": lambda: np.array(["abc"]),
    "objects": lambda: np.array([1, "a"], object),
    # no memory of its own, and no buffers
    "none": lambda: None,
    "BOTTOM": lambda: MPI.BOTTOM,
    "number": lambda: 5,
    "str": lambda: "abc",
    "dictionary": dict,
    "datatype alone": lambda: MPI.BYTE,
    "list of numbers": lambda: [1, 2],
    # lists
    "no item": list,
    "one item": lambda: [numbers()],
    "five items": lambda: [numbers(), 1, 2, MPI.DOUBLE, 3],
    "count": lambda: [numbers(), 5],
    "count of numpy": lambda: [numbers(), np.int64(4), MPI.DOUBLE],
    "count true": lambda: [numbers(), True],
    "count of float": lambda: [numbers(), 4.0, MPI.DOUBLE],
    "count zero": lambda: [numbers(), 0, MPI.DOUBLE],
    "count negative": lambda: [numbers(), -1, MPI.DOUBLE],
    "count huge": lambda: [numbers(), 2**70, MPI.DOUBLE],
    "count none": lambda: [numbers(), None],
    "count, datatype none": lambda: [numbers(), 4, None],
    "datatype": lambda: [numbers(), MPI.DOUBLE],
    "tuple": lambda: (numbers(), MPI.DOUBLE),
    "datatype by code": lambda: [numbers(), "d"],
    "datatype by type string": lambda: [numbers(), "f8"],
    "datatype by unknown code": lambda: [numbers(), "x!"],
    "datatype null": lambda: [numbers(), MPI.DATATYPE_NULL],
    "other datatype": lambda: [numbers(), 3, MPI.BYTE],
    "wide characters": lambda: [np.zeros(4, "u1"), MPI.WCHAR],
    "datatype for bytes": lambda: [bytearray(b"abcdefgh"), MPI.DOUBLE],
    "datatype for read-only bytes": lambda: [b"abcdefgh", MPI.DOUBLE],
    "datatype for time": lambda: [np.array(["2020-01-01"], "M8[D]"), 8, MPI.BYTE],
    "datatype for a record": lambda: [np.zeros(3, "i4,f8"), 36, MPI.BYTE],
    "datatype for other byte order": lambda: [NUMBERS.astype(">f8"), MPI.DOUBLE],
    "datatype for strided": lambda: [numbers()[:, ::2], 3, MPI.DOUBLE],
    "length no multiple": lambda: [np.zeros(10, "u1"), MPI.DOUBLE],
    "order mixed up": lambda: [numbers(), MPI.DOUBLE, 4],
    "list in list": lambda: [[numbers(), 2], MPI.DOUBLE],
    "three": lambda: [numbers(), 5, MPI.DOUBLE],
    "count inferred": lambda: [numbers(), None, MPI.DOUBLE],
    "displacement": lambda: [numbers(), (3, 2)],
    "displacement in a list": lambda: [numbers(), [3, 2]],
    "displacement, datatype": lambda: [numbers(), (5, 1), MPI.DOUBLE],
    "displacement of four": lambda: [numbers(), 5, 1, MPI.DOUBLE],
    "displacement, count inferred": lambda: [numbers(), None, 2, MPI.DOUBLE],
    "displacement, count none": lambda: [numbers(), (None, 3), MPI.DOUBLE],
    "displacement none": lambda: [numbers(), None, None, MPI.DOUBLE],
    "displacement negative": lambda: [numbers(), (2, -1), MPI.DOUBLE],
    "three in brackets": lambda: [numbers(), (1, 2, 3), MPI.DOUBLE],
    "nothing, zero": lambda: [None, 0],
    "nothing, nothing": lambda: [None, None],
    "nothing, zero of a datatype": lambda: [None, 0, MPI.DOUBLE],
    "nothing, displaced": lambda: [None, 0, 0, MPI.INT],
    "nothing of a datatype": lambda: [None, MPI.INT],
    "five of nothing": lambda: [None, 5, MPI.DOUBLE],
    "BOTTOM, zero": lambda: [MPI.BOTTOM, 0, MPI.DOUBLE],
    "BOTTOM, addresses": lambda: [MPI.BOTTOM, 1, ABSOLUTE],
    # derived datatypes
    "vector": lambda: [numbers(), VECTOR],
    "two vectors": lambda: [numbers(), 2, VECTOR],
    "displaced vectors": lambda: [numbers(), (2, 1), VECTOR],
    "contiguous": lambda: [numbers(), QUADRUPLE],
    "contiguous of contiguous": lambda: [numbers(), 1, committed(QUADRUPLE.Create_contiguous(2))],
    "duplicate": lambda: [numbers(), 3, MPI.DOUBLE.Dup()],
    "resized": lambda: [numbers(), 2, APART],
    "lower bound": lambda: [numbers(), 3, LOWER],
    "contiguous of lower bounds": lambda: [numbers(), 2, committed(LOWER.Create_contiguous(3))],
    "reversed": lambda: [numbers(), 3, REVERSED],
    "structure": lambda: [numbers(), 2, PART],
    "empty datatype": lambda: [numbers(), NOTHING],
    "three of an empty datatype": lambda: [numbers(), 3, NOTHING],
    "pairs": lambda: [np.arange(48, dtype="u1"), MPI.FLOAT_INT],
    "padded pairs": lambda: [np.arange(48, dtype="u1"), 3, MPI.DOUBLE_INT],
    "pairs, no multiple": lambda: [np.zeros(3, "f8,i4"), MPI.DOUBLE_INT],
}
pytestmark = pytest.mark.filterwarnings("ignore:.*ignoring 'descr' key")
ARGUMENTS |= {f"dtype {code}": partial(np.ones, 3, code) for code in "?bBhHiIlLqQfdgFDG"}

REFUSED = (
    TypeError,
    ValueError,
    KeyError,
    BufferError,
    OverflowError,
    AttributeError,
    IndexError,
    RuntimeError,
)
every = pytest.mark.parametrize("name", ARGUMENTS)
NATIVE = sorted(
    name for name in ARGUMENTS if name.startswith("dtype") or name in ("array", "count", "DLPack")
)


def sent(spec: Any) -> bytes | None:
    """The bytes that a message with `spec` carries; None where mpi4py refuses."""
    received, status = np.zeros(CAPACITY, np.uint8), MPI.Status()
    try:
        WORLD.Sendrecv(spec, 0, 0, [received, CAPACITY, MPI.PACKED], 0, 0, status)
    except REFUSED:
        return None
    return received[: status.Get_count(MPI.BYTE)].tobytes()


def accepts(spec: Any, nbytes: int) -> bool:
    """Whether a message of `nbytes` can be received with `spec`."""
    message = [np.zeros(nbytes, np.uint8), nbytes, MPI.PACKED]
    try:
        WORLD.Sendrecv(message, 0, 0, spec, 0, 0)
    except REFUSED:
        return False
    return True


@every
def test_the_bytes_are_those_of_the_message(name: str) -> None:
    spec = ARGUMENTS[name]()
    carried = sent(spec)
    ours = pack_buffer(spec, WORLD, is_source=True)
    assert (ours is None) == (carried is None)
    if carried is not None or not isinstance(spec, np.ndarray):
        assert nbytes_of(spec) == (None if carried is None else len(carried))
    if ours is not None:
        assert ours.array.dtype == np.uint8
        assert ours.array.tobytes() == carried


@every
def test_the_bytes_arrive_as_from_a_message(name: str) -> None:
    ours, theirs = ARGUMENTS[name](), ARGUMENTS[name]()
    nbytes = nbytes_of(ours) or 0
    parts = pack_buffer(ours, WORLD, is_source=False)
    assert (parts is not None) == accepts(theirs, nbytes)
    if parts is not None:
        content = np.arange(1, nbytes + 1, dtype=np.uint8)
        parts.array[:] = content
        parts.unpack()
        assert sent(ours) == content.tobytes()


@every
def test_a_view_is_the_memory_itself(name: str) -> None:
    spec = ARGUMENTS[name]()
    view = contiguous_view(spec, writable=False)
    if view is None:
        return
    carried = sent(spec)
    assert carried is not None
    assert view.flat.tobytes() == carried
    assert len(view.array) == view.count
    assert view.nbytes == view.count * view.datatype.Get_size() == len(carried)
    writable = contiguous_view(spec, writable=True)
    if writable is not None and view.nbytes:
        writable.flat[0] ^= 0xFF
        assert sent(spec) != carried


def test_layouts_that_are_no_run_are_packed() -> None:
    gaps = ("vector", "resized", "reversed", "structure", "padded pairs", "BOTTOM, addresses")
    for name in gaps:
        assert contiguous_view(ARGUMENTS[name](), writable=True) is None, name
    for name in ("contiguous", "contiguous of contiguous", "duplicate", "pairs", "wide characters"):
        assert contiguous_view(ARGUMENTS[name](), writable=True) is not None, name


def test_what_lies_between_the_elements_is_left_alone() -> None:
    content = numbers()
    parts = pack_buffer([content, 2, APART], WORLD, is_source=False)
    assert parts is not None
    parts.array.view("f8")[:] = [100.0, 200.0]
    assert content.ravel()[0] == 0.0
    parts.unpack()
    assert content.ravel()[:5].tolist() == [100.0, 1.0, 200.0, 3.0, 4.0]


@pytest.mark.parametrize("name", NATIVE)
def test_elements_reduce_as_mpi_reduces_them(name: str) -> None:
    """The view's datatype is the one mpi4py itself would pass."""
    spec = ARGUMENTS[name]()
    view = contiguous_view(spec, writable=True)
    assert view is not None
    op = MPI.LOR if view.array.dtype == bool else MPI.SUM
    expected = ARGUMENTS[name]()
    op.Reduce_local(ARGUMENTS[name](), expected)
    op.Reduce_local(
        [view.array.copy(), view.count, view.datatype], [view.array, view.count, view.datatype]
    )
    assert sent(spec) == sent(expected)


def test_padded_pairs_are_elements_of_a_reduction() -> None:
    pairs = np.zeros(3, np.dtype("f8,i4", align=True))
    pairs["f0"], pairs["f1"] = [1.0, 5.0, 3.0], [7, 8, 9]
    other = pairs.copy()
    other["f0"], other["f1"] = [2.0, 4.0, 3.0], [1, 2, 3]
    view = contiguous_view([pairs, MPI.DOUBLE_INT], writable=True, allow_padding=True)
    assert view is not None
    assert view.array.shape == (3, 16)
    MPI.MAXLOC.Reduce_local([other, MPI.DOUBLE_INT], [view.array, 3, view.datatype])
    assert pairs["f0"].tolist() == [2.0, 5.0, 3.0]
    assert pairs["f1"].tolist() == [1, 8, 3]


def test_mpi_believes_a_count_beyond_the_buffer() -> None:
    """As mpi4py does: the memory behind may belong to the caller, and other ranks go ahead."""
    content = np.arange(8.0)
    view = contiguous_view([content[:2], 8, MPI.DOUBLE], writable=True)
    assert view is not None
    assert view.array.tolist() == content.tolist()
    behind = contiguous_view([content[:2], (3, 2), MPI.DOUBLE], writable=True)
    assert behind is not None
    assert behind.array.tolist() == [2.0, 3.0, 4.0]


def test_mpi_counts_what_one_rank_has_of_the_data_of_all() -> None:
    content = np.arange(12.0)
    for spec in ([content, (2, 1), MPI.DOUBLE], [content, 2, 1, MPI.DOUBLE]):
        parts = pack_buffer(spec, WORLD, is_source=True, blocks=3)
        assert parts is not None
        assert parts.array.view("f8").tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for whole in (content, [content, MPI.DOUBLE], [content, VECTOR]):
        assert pack_buffer(whole, WORLD, is_source=True, blocks=5) is None
        assert pack_buffer(whole, WORLD, is_source=False, blocks=5) is None


def shows_booleans() -> bool:
    """Whether numpy shows booleans by DLPack: from 1.25 on."""
    try:
        np.zeros(1, "?").__dlpack__()
    except BufferError:
        return False
    return True


@pytest.mark.parametrize("device", [1, 2, 3, 10, 13])
def test_a_tensor_is_what_its_elements_are_wherever_it_lies(device: int) -> None:
    for code in "?bBhHiIlLefdFD" if shows_booleans() else "bBhHiIlLefdFD":
        content = np.zeros(6, code)
        view = contiguous_view(Tensor(content, device), writable=True)
        expected = contiguous_view(content, writable=True)
        assert (view is None) == (expected is None) == (code not in DATATYPES)
        if code not in DATATYPES:  # halves: MPI 4.0 and before
            continue
        assert view is not None
        assert expected is not None
        assert (view.datatype, view.count) == (expected.datatype, 6)
        assert view.array.ctypes.data == content.ctypes.data


def test_elements_without_a_datatype_are_bytes() -> None:
    view = contiguous_view(Tensor(np.zeros(6, "i2"), code=4), writable=True)
    assert view is not None
    assert (view.datatype, view.count) == (MPI.BYTE, 12)
    assert (
        nbytes_of(Tensor(np.zeros(6, "i4"), code=5)) is None
    )  # halves of complex numbers: refused


@pytest.mark.parametrize(
    ("element", "lanes", "kind"),
    [("f4", 2, "F"), ("f8", 2, "D"), ("f2", 2, "B"), ("f4", 4, "B"), ("i4", 2, "B")],
)
def test_elements_of_several_numbers(element: str, lanes: int, kind: str) -> None:
    """To mpi4py two are a complex number if there is such a one, else bytes."""
    tensor = Tensor(np.zeros(2 * lanes, element), lanes=lanes)
    assert dlpack_typecode(tensor) == kind
    received = MPI.Status()
    request = WORLD.Irecv(np.zeros(CAPACITY, "u1"), 0)
    WORLD.Send([tensor, 2], 0)  # mpi4py's own idea of two elements
    request.Wait(received)
    assert nbytes_of([tensor, 2]) == received.Get_count(MPI.BYTE)


def test_tensors_from_before_version_1() -> None:
    assert nbytes_of(Older(np.zeros(6, "i8"))) == 48


def test_the_data_of_several_ranks_is_as_many_elements_of_each() -> None:
    content = np.arange(12.0)
    for spec in (content, [content, MPI.DOUBLE]):
        assert [nbytes_of(spec, parts) for parts in (1, 3, 5)] == [96, 96, None]
        assert nbytes_of(spec, multiplier=5) == 5 * 96
    assert nbytes_of([content, 2, MPI.DOUBLE], 5) == 5 * 16


def test_in_place_has_no_memory() -> None:
    assert nbytes_of(MPI.IN_PLACE) is None
    assert nbytes_of([MPI.IN_PLACE, 0, MPI.DOUBLE]) == 0
    assert contiguous_view(MPI.IN_PLACE, writable=False) is None
    assert pack_buffer(MPI.IN_PLACE, WORLD, is_source=True) is None
