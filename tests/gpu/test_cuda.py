"""One rank and a GPU: memory, copies, kernels and the switch between kernel and host."""

import gc
import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from tuner.core.calibration import ZERO_REDUCTION_COST, Estimate, ReductionCost
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime.buffers import contiguous_view
from tuner.runtime.compatibility import datatype_of_code
from tuner.runtime.cuda_support import memory_kind_of
from tuner.runtime.device_pointers import NO_DEVICE, PointerCache
from tuner.runtime.device_protocol import DeviceInterface
from tuner.runtime.device_reduction import TIMED_SIZES, DeviceReducer
from tuner.runtime.memory import DeviceMemory
from tuner.runtime.staging import READ, WRITE, Staging

COMM = MPI.COMM_SELF.Dup()
DEAR = ReductionCost(Estimate.exact(1.0), Estimate.exact(1.0))
FREE = {HOST: DEAR, CUDA: ZERO_REDUCTION_COST}  # kernels at all sizes
INTEGERS, FLOATS, COMPLEX = "bBhHiIlLqQ", "fd", "FD"
NUMBERS = ("SUM", "PROD", "MIN", "MAX")
BITS, LOGIC = ("BAND", "BOR", "BXOR"), ("LAND", "LOR", "LXOR")
FOLDS = [
    *product(NUMBERS + BITS + LOGIC, INTEGERS),
    *product(NUMBERS, FLOATS),
    ("SUM", "F"),
    ("SUM", "D"),
    ("PROD", "F"),
    ("PROD", "D"),
    *product(LOGIC, "?"),
]
SIZES_FOLDED = (0, 1, 2, 1000, 100_003)


def keep_first(first: Any, second: Any, _: MPI.Datatype) -> None:
    second[:] = first[:]


FIRST = MPI.Op.Create(keep_first, commute=False)


def content(dtype: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return (rng.standard_normal(count) * 10.0 ** rng.integers(-15, 15, count)).astype(dtype)
    if kind.kind == "c":
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    if dtype == "?":
        return rng.integers(0, 2, count).astype(bool)
    return np.frombuffer(rng.bytes(count * kind.itemsize), dtype).copy()


def test_what_was_copied_to_the_device_is_there_for_every_stream(device: DeviceInterface) -> None:
    import cupy

    numbers, found = np.arange(1000.0), np.zeros(1000)
    with cupy.cuda.Stream(non_blocking=True):
        copy = device.upload(numbers)
    with cupy.cuda.Stream(non_blocking=True) as other:
        copy.data.copy_to_host_async(found.ctypes.data, found.nbytes)
        other.synchronize()
    assert found.tolist() == numbers.tolist()


def test_what_is_fetched_waits_for_the_stream_that_computes_it(device: DeviceInterface) -> None:
    import cupy

    found = np.zeros(1000)
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.zeros(1000)
        array[...] = 7
        device.download(array, found)
    assert set(found) == {7}


def test_the_driver_tells_memory_apart(device: DeviceInterface) -> None:
    import cupy

    managed = cupy.ndarray(8, "f8", cupy.cuda.malloc_managed(64))
    registered = device.allocate_pinned(4096)
    query = device.pointer_cache
    assert memory_kind_of(cupy.ones(3)) == CUDA
    assert memory_kind_of([cupy.ones(3), 3, MPI.DOUBLE]) == CUDA
    assert memory_kind_of(managed) == CUDA
    assert memory_kind_of(np.ones(3)) == HOST
    assert query.device(registered.ctypes.data, 4096, registered) == NO_DEVICE
    assert query.device(np.ones(3).ctypes.data, 24, registered) == NO_DEVICE


def test_memory_that_the_pool_gave_back_is_asked_about_again(device: DeviceInterface) -> None:
    import cupy

    asked: list[int] = []

    def query(pointer: int) -> int:
        asked.append(pointer)
        return 0

    cache, buffer = PointerCache(query), cupy.ones(1 << 20)
    for _ in range(3):
        memory_kind_of(buffer, cache)
        memory_kind_of(buffer[10:20], cache)
    assert len(asked) == 2
    del buffer
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    memory_kind_of(cupy.ones(1 << 20), cache)
    assert len(asked) == 3


def test_a_view_of_device_memory_is_that_memory(device: DeviceInterface) -> None:
    import cupy

    buffer = cupy.arange(12.0).reshape(3, 4)
    for spec, expected in (
        (buffer, range(12)),
        (cupy.asfortranarray(buffer), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]),
        ([buffer, (3, 2), MPI.DOUBLE], range(2, 5)),
        ([buffer, 0, MPI.DOUBLE], []),
    ):
        view = contiguous_view(spec, writable=True)
        assert view is not None
        assert device.device_array(view.array).get().tolist() == list(expected)
    assert contiguous_view(buffer[:, ::2], writable=True) is None


def test_gaps_are_refused(staging: Staging) -> None:
    import cupy

    with pytest.raises(BufferError, match="not contiguous"):
        staging(print, (cupy.ones((4, 4))[:, ::2], READ))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, "?"])
def test_a_staged_message_is_the_message(staging: Staging, dtype: str) -> None:
    import cupy

    vector = datatype_of_code(dtype).Create_vector(2, 1, 2).Commit()
    for rest in ((), (3,), ((3, 2),), (2, 1, datatype_of_code(dtype)), (2, vector)):
        given, expected = content(dtype, 8, 0), content(dtype, 8, 1)
        sent, taken = cupy.asarray(given), cupy.asarray(expected)

        def message(spec: Any, rest: tuple[Any, ...] = rest) -> Any:
            return [spec, *rest] if rest else spec

        COMM.Sendrecv(message(given), 0, 0, message(expected), 0, 0)
        staging(
            lambda one, two: COMM.Sendrecv(one, 0, 0, two, 0, 0),
            (message(sent), READ),
            (message(taken), WRITE),
        )
        assert taken.get().tobytes() == expected.tobytes()
    vector.Free()


def test_work_under_way_is_waited_for(staging: Staging) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        buffer = cupy.zeros(1 << 24)
        for _ in range(50):
            buffer += 1.0
        seen = staging(lambda host: (host.min(), host.max()), (buffer, READ))
    assert seen == (50.0, 50.0)


def test_the_stream_of_another_library_is_waited_for(device: DeviceInterface) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        buffer = cupy.zeros(1 << 24)
        for _ in range(50):
            buffer += 1.0
        interface = buffer.__cuda_array_interface__
    assert interface["stream"] == stream.ptr
    device.synchronise_buffers(SimpleNamespace(__cuda_array_interface__=interface))
    assert stream.done


class Foreign:
    """An array of another library, which names no stream and no number for its items: PyTorch's
    bfloat16.
    """

    def __init__(self, array: Any, typestr: str) -> None:
        self._array = array
        interface = {
            **array.__cuda_array_interface__,
            "version": 2,
            "typestr": typestr,
            "descr": None,
        }
        del interface["stream"]
        self.__cuda_array_interface__ = interface


def test_a_stream_that_nobody_names_is_waited_for(staging: Staging) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        buffer = cupy.zeros(1 << 24)
        for _ in range(50):
            buffer += 1.0
    foreign = Foreign(buffer, "<f8")
    assert staging(lambda host: (host.min(), host.max()), (foreign, READ)) == (50.0, 50.0)
    with stream:
        for _ in range(50):
            buffer += 1.0
    staging.device.synchronise_buffers(foreign)
    assert stream.done


def test_items_without_a_datatype_are_staged_as_bytes(staging: Staging) -> None:
    import cupy

    sent, taken = (cupy.full(6, number, "u2") for number in (7, 9))
    staging(
        lambda one, two: COMM.Sendrecv(one, 0, 0, two, 0, 0),
        (Foreign(sent, "<V2"), READ),
        ([Foreign(taken, "<V2"), (8, 4)], WRITE),
    )
    assert taken.get().tolist() == [9, 9, 7, 7, 7, 7]


def test_memory_of_another_gpu_is_read_and_written(staging: Staging) -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    stream = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Device(1), stream:
        there = cupy.zeros(5)
        there += 3.0
    assert staging(lambda host: host.tolist(), (there, READ)) == [3.0] * 5
    staging(lambda host: host.fill(7.0), (there, WRITE))
    assert there.get().tolist() == [7.0] * 5


def test_what_the_driver_does_not_know_is_where_its_owner_says(
    device: DeviceInterface, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy

    def fails(_: int) -> None:
        raise cupy.cuda.runtime.CUDARuntimeError(1)

    monkeypatch.setattr(cupy.cuda.runtime, "pointerGetAttributes", fails)
    assert (
        memory_kind_of(Foreign(cupy.ones(3), "<f8"), PointerCache(device.pointer_cache.query))
        == CUDA
    )


@pytest.mark.parametrize(("name", "dtype"), FOLDS)
def test_kernel_and_host_give_the_same_bits(
    device: DeviceInterface, staging: Staging, name: str, dtype: str
) -> None:
    import cupy

    op: MPI.Op = getattr(MPI, name)
    kernel, datatype = device.kernel(op, np.dtype(dtype)), datatype_of_code(dtype)
    assert (kernel is None) == (name == "PROD" and dtype in COMPLEX)
    like, folding = cupy.empty(1, dtype), DeviceReducer(staging, FREE)
    by_host = kernel is None or folding.kernel_threshold(op, datatype, like) == math.inf
    assert by_host <= (kernel is None or (name == "SUM" and np.dtype(dtype).itemsize < 4))
    for count in SIZES_FOLDED:
        first, second = content(dtype, count, 1), content(dtype, count, 2)
        there = cupy.asarray(second)
        folding.reduce(op, datatype, cupy.asarray(first), there)
        op.Reduce_local(first, second)
        assert there.get().tobytes() == second.tobytes(), count


def test_users_operators_are_folded_on_the_host(staging: Staging) -> None:
    import cupy

    def subtract(first: Any, second: Any, _: MPI.Datatype) -> None:
        one, two = np.frombuffer(first, "i4"), np.frombuffer(second, "i4")
        two[:] = one - two

    op = MPI.Op.Create(subtract, commute=False)
    first, second = cupy.asarray([10, 20], "i4"), cupy.asarray([1, 2], "i4")
    DeviceReducer(staging).reduce(op, MPI.INT, first, second)
    assert second.get().tolist() == [9, 18]
    op.Free()


def test_the_switch_is_found_and_kept(staging: Staging) -> None:
    import cupy

    folding, like = DeviceReducer(staging), cupy.empty(1, "f4")
    found = folding.kernel_threshold(MPI.SUM, MPI.FLOAT, like)
    assert found == math.inf or found in TIMED_SIZES
    assert folding.kernel_threshold(MPI.SUM, MPI.FLOAT, like) == found


def test_scratch_is_device_memory_that_lives_as_long_as_its_array(device: DeviceInterface) -> None:
    import cupy

    scratch = device.allocate(32)
    assert device.pointer_cache.query(scratch.ctypes.data) == device.number
    parts = scratch.view("f8")[:2], scratch.view("f8")[2:]
    del scratch
    gc.collect()
    others = [cupy.full(4, 7.0) for _ in range(10)]  # would come to lie there
    device.device_array(parts[0])[...] = cupy.asarray([1.0, 2.0])
    device.copy_async(device.device_array(parts[0]), device.device_array(parts[1]))
    device.synchronise()
    assert device.device_array(parts[1]).get().tolist() == [1.0, 2.0]
    assert all(other.get().tolist() == [7.0] * 4 for other in others)


@pytest.mark.parametrize("count", [1, 1000, 100_003])
def test_device_memory_reduces_as_the_host(device: DeviceInterface, count: int) -> None:
    import cupy

    memory = DeviceMemory()
    for datatype, dtype in ((MPI.DOUBLE, "d"), (MPI.DOUBLE.Create_contiguous(1).Commit(), "d")):
        op = MPI.SUM if datatype.is_predefined else FIRST
        first, second = content(dtype, count, 1), content(dtype, count, 2)
        there = [cupy.asarray(array) for array in (first, second)]
        views = [contiguous_view([array, MPI.DOUBLE], writable=True) for array in there]
        memory.reduce(op, datatype, count, *(view.flat for view in views if view is not None))
        device.synchronise()
        expected = first + second if op == MPI.SUM else first
        assert there[1].get().tobytes() == expected.tobytes()
