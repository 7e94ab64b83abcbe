"""What device buffers cost: python -m tests.bench.device

Staging bandwidth, the price of asking where a pointer lies, kernel launch and reduction rates, and
the size from which kernels take over. Without a GPU it prints the figures that need none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.device import FakeDevice, resident
from tuner.base.errors import InputError
from tuner.base.units import format_size, format_time
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import Estimate, ReductionCost
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime.buffers import contiguous_view, nbytes_of
from tuner.runtime.cuda_support import cuda_device, is_cuda_aware, memory_kind_of
from tuner.runtime.device_pointers import PointerCache
from tuner.runtime.device_protocol import DeviceInterface
from tuner.runtime.device_reduction import DeviceReducer
from tuner.runtime.staging import READ, WRITE, Staging

SIZES = tuple(1 << exponent for exponent in range(10, 29, 3))  # bytes
REPETITIONS = 20
CALLS = 10_000
NAMES = {MPI.SUM.handle: "sum", MPI.MAX.handle: "max"}
FOLDS = (("f4", MPI.SUM, MPI.FLOAT), ("f8", MPI.SUM, MPI.DOUBLE), ("i4", MPI.MAX, MPI.INT))


def seconds(run: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """The median of single runs; the first does not count."""
    times = []
    for _ in range(repetitions + 1):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[1:]))


def per_call(run: Callable[[], object]) -> str:
    """Of something too short to be timed alone."""

    def many() -> None:
        for _ in range(CALLS):
            run()

    return format_time(seconds(many, 5) / CALLS)


def without_gpu() -> None:
    """What every call pays, and what it pays for a device buffer."""
    array, pretended = np.zeros(1000), FakeDevice()
    buffer, spec = resident(array), [array, 1000, MPI.DOUBLE]
    key = array.ctypes.data, array.nbytes
    rows = [
        ("memory_of(array)", per_call(lambda: memory_kind_of(array))),
        ("memory_of(list)", per_call(lambda: memory_kind_of(spec))),
        ("memory_of(bytes)", per_call(lambda: memory_kind_of(b"abc"))),
        ("pointer cache, hit", per_call(lambda: pretended.pointer_cache.device(*key, buffer))),
        (
            "memory_of(other library's array), hit",
            per_call(lambda: memory_kind_of(buffer, pretended.pointer_cache)),
        ),
        ("nbytes_of(array)", per_call(lambda: nbytes_of(array))),
        ("nbytes_of(list)", per_call(lambda: nbytes_of(spec))),
        ("contiguous(array)", per_call(lambda: contiguous_view(array, writable=True))),
        ("contiguous(list)", per_call(lambda: contiguous_view(spec, writable=True))),
    ]
    print_table("looking at a buffer", ("what", "time"), rows, right=("time",))


def pointers(device: DeviceInterface) -> None:
    """The driver's answer and the cache's."""
    import cupy

    array = cupy.ones(1000)
    place = array.data.ptr, array.nbytes, array

    def asked() -> int:
        return PointerCache(device.pointer_cache.query).device(*place)

    rows = [
        ("driver asked", per_call(asked)),
        ("pointer cache, hit", per_call(lambda: device.pointer_cache.device(*place))),
        ("memory_of(cupy array), hit", per_call(lambda: memory_kind_of(array))),
        ("stream synchronised, idle", per_call(device.synchronise)),
    ]
    print_table("pointers and streams", ("what", "time"), rows, right=("time",))


def staging(device: DeviceInterface) -> None:
    """Copies to and from pinned memory, through the calls that MPI would get."""
    import cupy

    stage, rows = Staging(device), []
    for nbytes in SIZES:
        buffer = cupy.zeros(nbytes, "u1")
        down = seconds(partial(stage, _nothing, (buffer, READ)))
        up = seconds(partial(stage, _nothing, (buffer, WRITE)))
        rows.append(
            (
                format_size(nbytes),
                format_time(down),
                rate(nbytes, down),
                format_time(up),
                rate(nbytes, up),
            )
        )
    columns = ("size", "to host", "GB/s", "to device", "GB/s ")
    print_table("staging", columns, rows, right=columns)


def folds(device: DeviceInterface) -> None:
    """Kernel and host on device arrays, and where the switch lies."""
    import cupy

    stage, rows = Staging(device), []
    kernel, host = DeviceReducer(stage, given(kernel=0.0)), DeviceReducer(stage, given(kernel=1.0))
    for dtype, op, datatype in FOLDS:
        name = f"{np.dtype(dtype).name} {NAMES[op.handle]}"
        for nbytes in SIZES:
            first, second = (cupy.ones(nbytes // np.dtype(dtype).itemsize, dtype) for _ in "12")
            times = [
                seconds(partial(_finished, device, way, op, datatype, first, second))
                for way in (kernel, host)
            ]
            rows.append(
                (name, format_size(nbytes), *map(format_time, times), rate(3 * nbytes, times[0]))
            )
        found = DeviceReducer(stage).kernel_threshold(op, datatype, cupy.empty(1, dtype))
        rows.append((name, "switch", "", "", f"from {found:,.0f} B"))
    columns = ("fold", "size", "kernel", "host", "kernel GB/s moved")
    print_table("reductions", columns, rows, right=columns[1:])


def given(kernel: float) -> dict[str, ReductionCost]:
    """Costs that make one way be taken always: the kernel's launch against half a second."""
    free, launch = Estimate.exact(0.0), Estimate.exact(kernel)
    return {HOST: ReductionCost(Estimate.exact(0.5), free), CUDA: ReductionCost(launch, free)}


def rate(nbytes: int, time_s: float) -> str:
    return f"{nbytes / time_s / 1e9:.2f}"


def _finished(device: DeviceInterface, way: DeviceReducer, *arguments: Any) -> None:
    way.reduce(*arguments)
    device.synchronise()


def _nothing(_: object) -> None:
    pass


def main() -> None:
    """Everything that this machine can show."""
    print(f"CUDA-aware MPI: {'yes' if is_cuda_aware() else 'no'}")
    without_gpu()
    try:
        device = cuda_device()
    except InputError as reason:
        print(reason)
        return
    for part in (pointers, staging, folds):
        part(device)


if __name__ == "__main__":
    main()
