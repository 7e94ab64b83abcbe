"""Staging, folding and the pointer cache on a device whose memory is the host's."""

import ctypes
import gc
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from tests.support.device import FakeDevice, Resident, resident
from tuner.base.arrays import AnyArray
from tuner.base.errors import InputError
from tuner.core.calibration import Estimate, ReductionCost
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime import nccl, tune
from tuner.runtime.buffers import datatype_of
from tuner.runtime.compatibility import datatype_of_code
from tuner.runtime.control_variables import loaded_library
from tuner.runtime.cuda_support import has_cuda_messages, is_cuda_aware, memory_kind_of
from tuner.runtime.device_pointers import NO_DEVICE, PointerCache
from tuner.runtime.device_reduction import (
    TIMED_SIZES,
    DeviceReducer,
    threshold_from_costs,
    threshold_from_gains,
)
from tuner.runtime.nccl import (
    RankGpu,
    Unavailable,
    connect,
    is_reducible,
    make_allreduce,
    make_bcast,
    unavailable_reason,
)
from tuner.runtime.staging import READ, WRITE, PinnedPool, Staging

COMM = MPI.COMM_SELF.Dup()
LIGHT = """
import sys, tuner.runtime.buffers, tuner.runtime.cuda_support, tuner.runtime.staging
import tuner.runtime.device_reduction, tuner.runtime.nccl, numpy
assert tuner.runtime.cuda_support.memory_kind_of(numpy.ones(3)) == "host"
assert tuner.runtime.cuda_support.memory_kind_of([bytearray(3), 3]) == "host"
assert not [name for name in sys.modules if name.split(".")[0] == "cupy"]
"""


def reduction(launch: float, gamma: float) -> ReductionCost:
    return ReductionCost(Estimate.exact(launch), Estimate.exact(gamma))


def pinned(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.zeros(nbytes, np.uint8)


def test_cupy_stays_unloaded_without_a_device_buffer() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_host_objects_are_on_the_host() -> None:
    for spec in (np.ones(3), [np.ones(3), 3, MPI.DOUBLE], b"ab", None, MPI.IN_PLACE, [], 3, "ab"):
        assert memory_kind_of(spec, FakeDevice().pointer_cache) == HOST


class OnGpu:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_dlpack_says_where_a_tensor_is() -> None:
    assert memory_kind_of(OnGpu(), FakeDevice().pointer_cache) == CUDA
    assert memory_kind_of([OnGpu(), 3, MPI.FLOAT], FakeDevice().pointer_cache) == CUDA


def test_registered_host_memory_is_on_the_host() -> None:
    device, buffer = FakeDevice(), resident(np.ones(3))
    device.foreign.add(buffer.ctypes.data)
    assert memory_kind_of(buffer, device.pointer_cache) == HOST


def test_no_bytes_are_on_the_host() -> None:
    device = FakeDevice()
    assert memory_kind_of(resident(np.empty(0)), device.pointer_cache) == HOST
    assert device.queries == 0


class Owner:
    """Whatever keeps memory alive."""


def test_the_driver_is_asked_once_for_a_buffer_and_its_parts() -> None:
    device, buffer = FakeDevice(), resident(np.ones(8))
    for _ in range(3):
        assert memory_kind_of([buffer, 3, MPI.DOUBLE], device.pointer_cache) == CUDA
        assert memory_kind_of(buffer[2:4], device.pointer_cache) == CUDA
        assert memory_kind_of(buffer[2:], device.pointer_cache) == CUDA
    assert device.queries == 3


def test_an_answer_ends_with_the_owner() -> None:
    answers = [0, NO_DEVICE]
    cache, owner = PointerCache(lambda _: answers.pop(0)), Owner()
    assert [cache.device(64, 8, owner) for _ in range(3)] == [0] * 3
    del owner
    gc.collect()
    newcomer = Owner()  # perhaps where the old one was: it is another one all the same
    assert [cache.device(64, 8, newcomer) for _ in range(3)] == [NO_DEVICE] * 3


def test_another_owner_of_a_known_address_is_asked_about() -> None:
    answers = [0, NO_DEVICE]
    cache, first, second = PointerCache(lambda _: answers.pop(0)), Owner(), Owner()
    assert cache.device(64, 8, first) == 0
    assert cache.device(64, 8, second) == NO_DEVICE


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    asked: list[int] = []

    def query(pointer: int) -> int:
        asked.append(pointer)
        return 0

    cache, owner = PointerCache(query, max_pointers=2), Owner()
    for pointer in (1, 2, 3, 2, 3, 1):
        cache.device(pointer, 8, owner)
    assert asked == [1, 2, 3, 1]


def test_threads_share_the_cache() -> None:
    """One may call a collective on its communicator while another does."""
    cache = PointerCache(lambda _: 0, max_pointers=2)
    owners = [np.zeros(1) for _ in range(64)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(thread: int) -> None:
        for number in range(30_000):
            assert cache.device(thread << 20 | number % 64, 8, owners[number % 64]) == 0

    try:
        with ThreadPoolExecutor(4) as threads:
            assert [*threads.map(ask, range(4))] == [None] * 4
    finally:
        sys.setswitchinterval(usual)


def test_what_cannot_be_watched_is_not_remembered() -> None:
    asked: list[int] = []

    def query(pointer: int) -> int:
        asked.append(pointer)
        return 0

    cache = PointerCache(query)
    for _ in range(2):
        cache.device(1, 8, (1, 2))
    assert asked == [1, 1]


def test_only_device_buffers_are_staged() -> None:
    device = FakeDevice()
    staging = Staging(device)
    host, content = np.ones(3), np.arange(3.0)

    def call(one: Any, two: Any, three: Any) -> str:
        assert one is host
        assert two is MPI.IN_PLACE
        assert type(three) is np.ndarray
        assert not np.shares_memory(three, content)
        assert three.tolist() == [0.0, 1.0, 2.0]
        three += 1.0
        assert content.tolist() == [0.0, 1.0, 2.0]
        return "done"

    arguments = (host, READ), (MPI.IN_PLACE, READ), (resident(content), READ | WRITE)
    assert staging(call, *arguments) == "done"
    assert content.tolist() == [1.0, 2.0, 3.0]


def test_what_is_only_read_is_not_written() -> None:
    content = np.arange(3.0)

    def call(one: Any) -> None:
        one += 1.0

    Staging(FakeDevice())(call, (resident(content), READ))
    assert content.tolist() == [0.0, 1.0, 2.0]


def test_nothing_is_written_when_the_call_raises() -> None:
    device, content = FakeDevice(), np.arange(3.0)
    staging = Staging(device)

    def call(one: Any) -> None:
        one += 1.0
        raise BufferError("refused")

    for _ in range(3):
        with pytest.raises(BufferError, match="refused"):
            staging(call, (resident(content), READ | WRITE))
    assert content.tolist() == [0.0, 1.0, 2.0]
    assert len(device.allocated) == 1  # the pinned memory came back each time


def test_a_gap_in_a_device_buffer_is_refused() -> None:
    with pytest.raises(BufferError, match="not contiguous"):
        Staging(FakeDevice())(print, (resident(np.ones((3, 4))[:, ::2]), READ))


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "l", "f", "d", "F", "D"])
def test_a_staged_message_is_the_message(dtype: str) -> None:
    """MPI itself on both sides, with counts, displacements and gaps that must survive."""
    vector = datatype_of_code(dtype).Create_vector(2, 1, 2).Commit()
    staging = Staging(FakeDevice())
    for rest in ((), (3,), ((3, 2),), (2, 1, datatype_of_code(dtype)), (2, vector)):
        given, expected = np.arange(1, 9).astype(dtype), np.zeros(8, dtype)
        taken = expected.copy()

        def message(spec: Any, rest: tuple[Any, ...] = rest) -> Any:
            return [spec, *rest] if rest else spec

        COMM.Sendrecv(message(given), 0, 0, message(expected), 0, 0)
        staging(
            lambda sent, received: COMM.Sendrecv(sent, 0, 0, received, 0, 0),
            (message(resident(given)), READ),
            (message(resident(taken)), WRITE),
        )
        assert taken.tobytes() == expected.tobytes()


def test_staging_reads_no_contents_that_will_be_overwritten() -> None:
    """A receive buffer of its own is copied back only: half the traffic."""
    copies: list[str] = []

    class Counting(FakeDevice):
        def copy_to_host_async(self, source: Any, target: Any) -> None:
            copies.append("to host")
            super().copy_to_host_async(source, target)

        def copy_to_device_async(self, source: Any, target: Any) -> None:
            copies.append("to device")
            super().copy_to_device_async(source, target)

    staging = Staging(Counting())
    arguments = (resident(np.ones(3)), READ), (resident(np.ones(3)), WRITE)
    staging(lambda one, two: np.copyto(two, one), *arguments)
    assert copies == ["to host", "to device"]


def test_pinned_memory_is_reused_and_bounded() -> None:
    allocated: list[int] = []

    def allocate(nbytes: int) -> Any:
        allocated.append(nbytes)
        return pinned(nbytes)

    pool = PinnedPool(allocate, max_idle_bytes=3 * 8192)
    for nbytes in (5000, 8192, 4097, 0, 1, 4096):
        with pool.lend(nbytes) as memory:
            assert memory.nbytes == nbytes
    assert allocated == [8192, 4096]
    with pool.lend(8000), pool.lend(8000), pool.lend(8000):
        assert pool.idle_nbytes == 4096
    assert allocated == [8192, 4096, 8192, 8192]
    assert pool.idle_nbytes == 3 * 8192  # the 4096 of the longest time ago would exceed the bound


def test_as_much_pinned_memory_is_kept_as_one_call_needed() -> None:
    allocated: list[int] = []

    def allocate(nbytes: int) -> Any:
        allocated.append(nbytes)
        return pinned(nbytes)

    pool = PinnedPool(allocate, max_idle_bytes=3 * 8192)
    for nbytes in (8192, 1 << 20, 1 << 20):
        with pool.lend(nbytes), pool.lend(nbytes):
            pass
    assert allocated == [8192, 8192, 1 << 20, 1 << 20]
    assert pool.idle_nbytes == 2 << 20
    for nbytes in (1 << 19, 1 << 18):
        with pool.lend(nbytes):
            pass
    assert pool.idle_nbytes == (1 << 20) + (1 << 19) + (1 << 18)


def fold(
    folding: DeviceReducer,
    device: FakeDevice,
    op: MPI.Op,
    datatype: MPI.Datatype,
    first: Any,
    second: Any,
) -> list[Any]:
    """What `op.Reduce_local` leaves in `second` must be there; it is also returned."""
    expected = np.array(second)
    op.Reduce_local([np.array(first), len(first), datatype], [expected, len(first), datatype])
    folding.reduce(op, datatype, resident(first), resident(second))
    device.synchronise()
    assert second.tobytes() == expected.tobytes()
    return list(second.tolist())


def costs(kernel: ReductionCost) -> dict[str, ReductionCost]:
    return {HOST: reduction(0.5, 0.5), CUDA: kernel}


ALWAYS, NEVER = costs(reduction(0.0, 0.0)), costs(reduction(1.0, 1.0))


@pytest.mark.parametrize("op", [MPI.SUM, MPI.PROD, MPI.MAX, MPI.BXOR])
def test_kernel_and_host_fold_alike(op: MPI.Op) -> None:
    for cost in (ALWAYS, NEVER):
        device = FakeDevice()
        folding = DeviceReducer(Staging(device), cost)
        fold(folding, device, op, MPI.INT, np.arange(5, dtype="i4"), np.full(5, 3, "i4"))
        by_kernel = op == MPI.SUM and cost is ALWAYS
        assert (device.kernels_run > 0) == by_kernel
        assert bool(device.allocated) != by_kernel  # the host sees pinned copies


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2"])
def test_sums_that_the_library_saturates_are_left_to_it(dtype: str) -> None:
    """Open MPI does, where the processor has the instructions; the kernel wraps."""
    large = np.full(1000, np.iinfo(dtype).max, dtype)
    device, datatype = FakeDevice(), datatype_of(large.dtype)
    fold(DeviceReducer(Staging(device), ALWAYS), device, MPI.SUM, datatype, large, large.copy())


def test_the_order_of_operands_is_kept() -> None:
    def subtract(first: Any, second: Any, _: MPI.Datatype) -> None:
        one, two = np.frombuffer(first, "i4"), np.frombuffer(second, "i4")
        two[:] = one - two

    op, device = MPI.Op.Create(subtract, commute=False), FakeDevice()
    first, second = np.array([10, 20], "i4"), np.array([1, 2], "i4")
    assert fold(DeviceReducer(Staging(device), ALWAYS), device, op, MPI.INT, first, second) == [
        9,
        18,
    ]
    assert device.kernels_run == 0
    op.Free()


def test_pairs_are_folded_on_the_host() -> None:
    device = FakeDevice()
    pair = np.dtype("f8,i4", align=True)
    first, second = np.array([(1.0, 7), (5.0, 8)], pair), np.array([(2.0, 1), (4.0, 2)], pair)
    rows = [content.view(np.uint8).reshape(2, 16) for content in (first, second)]
    fold(DeviceReducer(Staging(device), ALWAYS), device, MPI.MAXLOC, MPI.DOUBLE_INT, *rows)
    assert second["f0"].tolist() == [2.0, 5.0]
    assert second["f1"].tolist() == [1, 8]


def test_nothing_is_folded_without_elements() -> None:
    device, none = FakeDevice(), np.empty(0)
    for cost in (ALWAYS, NEVER):
        fold(DeviceReducer(Staging(device), cost), device, MPI.SUM, MPI.DOUBLE, none, none.copy())


def test_an_operator_that_a_datatype_lacks_is_mpis_error() -> None:
    folding, content = DeviceReducer(Staging(FakeDevice()), ALWAYS), resident(np.ones(3, np.uint8))
    with pytest.raises(MPI.Exception):
        folding.reduce(MPI.SUM, MPI.C_BOOL, content, content.copy())


def test_the_switch_is_timed_once_per_operator_and_datatype() -> None:
    device = FakeDevice()
    folding = DeviceReducer(Staging(device))
    for _ in range(2):
        fold(folding, device, MPI.SUM, MPI.DOUBLE, np.ones(4), np.ones(4))
    timed = device.kernels_run
    assert timed >= 2 * len(TIMED_SIZES)
    fold(folding, device, MPI.SUM, MPI.DOUBLE, np.ones(4), np.ones(4))
    assert device.kernels_run <= timed + 1
    fold(folding, device, MPI.SUM, MPI.FLOAT, np.ones(4, "f4"), np.ones(4, "f4"))
    assert device.kernels_run >= 2 * timed - 3
    found = folding.kernel_threshold(MPI.SUM, MPI.DOUBLE, np.ones(1))
    assert found == math.inf or found in TIMED_SIZES


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([1.0, 1.0, 1.0], 1),
        ([-1.0, 1.0, 1.0], 2),
        ([1.0, -1.0, 1.0], 4),
        ([1.0, 1.0, -1.0], math.inf),
        ([-1.0, -1.0, 0.0], math.inf),
    ],
)
def test_the_switch_is_where_all_larger_sizes_gain(gains: list[float], expected: float) -> None:
    assert threshold_from_gains((1, 2, 4), gains) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ((3.0, 0.0), 2.0),  # launch 2 s later, saves 1 s per byte
        ((1.0, 0.5), 0.0),
        ((0.0, 0.0), 0.0),
        ((0.0, 2.0), math.inf),  # starts sooner, but the host is faster per byte
        ((3.0, 1.0), math.inf),
        ((1.0, 1.0), math.inf),
    ],
)
def test_the_switch_from_a_calibration(kernel: tuple[float, float], expected: float) -> None:
    assert threshold_from_costs(reduction(1.0, 1.0), reduction(*kernel)) == expected


@pytest.mark.parametrize(
    ("offers", "words"),
    [
        ([RankGpu("a", "0"), RankGpu("a", "1"), RankGpu("b", "0")], ""),
        ([RankGpu("a", "0"), Unavailable("no NVIDIA GPU: none")], "rank 1: no NVIDIA GPU: none"),
        (
            [RankGpu("a", "0"), RankGpu("b", "0"), RankGpu("a", "0")],
            "ranks 0 and 2 share the GPU 0 of a",
        ),
    ],
)
def test_ranks_object_to_nccl_together(offers: list[RankGpu | Unavailable], words: str) -> None:
    objection = unavailable_reason(offers)
    assert objection.startswith(words)
    assert bool(objection) == bool(words)


def test_a_rank_0_that_cannot_begin_nccl_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a network interface. It would otherwise leave the others waiting for it."""

    def fail() -> None:
        raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR")

    library = SimpleNamespace(get_unique_id=fail)
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=library))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setattr("tuner.runtime.nccl._local_gpu", lambda: RankGpu("a", "0"))
    assert connect(COMM) == Unavailable(
        "NCCL failed on rank 0: RuntimeError: NCCL_ERROR_SYSTEM_ERROR"
    )


def test_what_nccl_reduces_follows_from_operator_and_datatype() -> None:
    assert is_reducible(MPI.SUM, MPI.DOUBLE)
    assert is_reducible(MPI.MAX, MPI.INT64_T)
    assert is_reducible(MPI.MAX, MPI.INT8_T)
    for op, datatype in (
        (MPI.BAND, MPI.INT),
        (MPI.SUM, MPI.INT8_T),
        (MPI.PROD, MPI.UINT8_T),
        (MPI.SUM, MPI.SHORT),
        (MPI.SUM, MPI.BYTE),
        (MPI.MAXLOC, MPI.FLOAT_INT),
        (MPI.SUM, MPI.DOUBLE.Create_contiguous(2)),
        (MPI.SUM, MPI.C_BOOL),
        (MPI.SUM, MPI.COMPLEX),
    ):
        assert not is_reducible(op, datatype)


def test_the_mpi_library_says_whether_it_takes_device_pointers() -> None:
    mpi = ctypes.CDLL(str(loaded_library()))
    ask = getattr(mpi, "MPIX_Query_cuda_support", None)
    assert is_cuda_aware() == (ask is not None and ask() == 1)


@pytest.mark.parametrize(
    ("said", "collectives", "messages"),
    [("1", True, True), ("0", False, False), ("messages", False, True)],
)
def test_the_user_may_know_better(
    monkeypatch: pytest.MonkeyPatch, said: str, collectives: bool, messages: bool
) -> None:
    monkeypatch.setenv("TUNER_CUDA_AWARE", said)
    monkeypatch.setattr("tuner.runtime.cuda_support.is_cuda_aware", is_cuda_aware.__wrapped__)
    assert is_cuda_aware.__wrapped__() is collectives
    assert has_cuda_messages.__wrapped__() is messages


class OnStream:
    """Another library's array, filled on a stream of its own."""

    def __init__(self, array: AnyArray, stream: int) -> None:
        self.array = array
        interface = {**array.__array_interface__, "version": 3, "stream": stream}
        self.__cuda_array_interface__ = interface


@pytest.mark.parametrize("stream", [1, 2, 0x7000])
def test_the_stream_that_fills_a_buffer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    """Also where MPI takes the buffer itself, and the stream is not CuPy's."""
    device, given, taken = FakeDevice(), np.zeros(5), np.zeros(5)
    monkeypatch.setattr("tuner.runtime.methods.cuda_device_or_none", lambda: device)
    monkeypatch.setattr("tuner.runtime.fast_path.has_driver", lambda: True)
    monkeypatch.setattr("tuner.runtime.cuda_support.is_gpu_possible", lambda: True)
    monkeypatch.setattr("tuner.runtime.dispatch.is_cuda_aware", lambda: True)
    comm, buffer = tune(MPI.COMM_SELF.Dup()), OnStream(given, stream)
    for spec in (buffer, [buffer, 5, MPI.DOUBLE]):
        given[:] = 0.0
        device.streams[stream] = [lambda: given.fill(7.0)]
        comm.Allreduce(spec, taken)
        assert taken.tolist() == [7.0] * 5
    comm.Free()


class NcclOfTwo:
    """Refuses every buffer, and knows no rank that is none."""

    size = 2

    def supports(self, *_: Any) -> bool:
        return True

    def bcast(self, _: Any, root: int) -> None:
        assert type(root) is int
        assert root in (0, 1)
        raise BufferError("of NCCL")

    def allreduce(self, *_: Any) -> None:
        raise ValueError("of NCCL")


@pytest.mark.parametrize("root", [0, 1.9, np.array(1), -1, 2, None, "0"])
def test_what_nccl_refuses_the_library_refuses_in_its_own_words(root: Any) -> None:
    nccl: Any = NcclOfTwo()
    calls: list[Any] = []
    make_bcast(nccl, lambda *given: calls.append(given))("buffer", root)
    assert calls == [("buffer", root)]
    into = np.zeros(3)
    make_allreduce(nccl, lambda *given: calls.append(given))("buffer", into, MPI.SUM)
    assert calls[1] == ("buffer", into, MPI.SUM)


class NcclWithoutOperators:
    """Has no reduction at all."""

    def __init__(self, device: FakeDevice) -> None:
        self.staging = Staging(device)

    def supports(self, *_: Any) -> bool:
        return False


@pytest.mark.parametrize("in_place", [False, True])
def test_what_nccl_lacks_reaches_a_library_of_the_host_by_the_host(in_place: bool) -> None:
    """MPI gets host copies, or it would read memory that it cannot see."""
    got: list[Any] = []

    def library(send: Any, receive: Any, op: MPI.Op) -> None:
        got.extend((send, receive))
        COMM.Allreduce(send, receive, op)

    given, taken = np.arange(5.0), np.full(5, 9.0)
    nccl: Any = NcclWithoutOperators(FakeDevice())
    send = MPI.IN_PLACE if in_place else resident(given)
    make_allreduce(nccl, library)(send, resident(taken), MPI.SUM)
    assert not any(isinstance(buffer, Resident) for buffer in got)
    assert not any(isinstance(a, np.ndarray) and np.shares_memory(a, taken) for a in got)
    assert taken.tolist() == ([9.0] * 5 if in_place else given.tolist())


@pytest.mark.parametrize(("possible", "where"), [(False, HOST), (True, CUDA)])
def test_where_no_gpu_can_be_memory_behind_its_interface_is_the_hosts(
    monkeypatch: pytest.MonkeyPatch, possible: bool, where: str
) -> None:
    monkeypatch.setattr("tuner.runtime.cuda_support.cuda_device_or_none", lambda: None)
    monkeypatch.setattr("tuner.runtime.cuda_support.is_gpu_possible", lambda: possible)
    buffer = OnStream(np.zeros(3), 1)
    assert memory_kind_of(buffer) == memory_kind_of([buffer, 3, MPI.DOUBLE]) == where


class Raising:
    """Shows DLPack, as PyTorch's tensors do whose elements CUDA's array interface cannot name."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise KeyError("float8_e4m3fn")

    def __dlpack__(self, **named: Any) -> Any:
        return self._array.__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self._array.__dlpack_device__()
        return found


def test_what_raises_when_it_is_asked_for_an_interface_is_a_buffer_none_the_less() -> None:
    content = np.arange(5.0)
    assert memory_kind_of(Raising(content)) == HOST
    comm = tune(MPI.COMM_SELF.Dup())
    comm.Bcast(Raising(content), 0)
    comm.Free()


def test_a_time_of_calls_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TUNER_TUNE_AFTER", "abc")
    comm = tune(MPI.COMM_SELF.Dup())
    assert "TUNER_TUNE_AFTER: 'abc' is not a time" in caplog.text
    comm.Free()


@pytest.mark.parametrize(("given", "said"), [("abc", "is not a time"), ("0s", "expected a time")])
def test_a_time_limit_for_nccl_that_is_none_is_an_objection(
    monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    monkeypatch.setenv("TUNER_NCCL_TIMEOUT", given)
    with pytest.raises(InputError, match=rf"TUNER_NCCL_TIMEOUT: .*{said}"):
        nccl._timeout_s()
