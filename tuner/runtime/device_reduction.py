"""Reductions of device arrays: a kernel for large ones, the host for small ones.

The threshold is determined once per operator and datatype by timing both, or computed from a
calibration. Each rank decides alone about its own memory: no message depends on it, and the results
are the same, bit for bit. Where the library's results differ from the kernel's, the host reduces
everything. (Open MPI 5.0 saturates sums of 8 and 16 bits where the processor has AVX. MPI does not
define minima and maxima of NaNs and of zeros of both signs, and one library may give different
results there.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from tuner.base.arrays import AnyArray
from tuner.core.calibration import ReductionCost
from tuner.core.path_classes import CUDA, HOST
from tuner.runtime.compatibility import handle_of
from tuner.runtime.device_protocol import DeviceArray, Kernel
from tuner.runtime.log import warn_once
from tuner.runtime.staging import READ, WRITE, Staging

TIMED_SIZES = tuple(1 << exponent for exponent in range(8, 23, 2))  # bytes at which both are timed
REPETITIONS = 5
COMPARED_ELEMENTS = 4099  # elements: several of the widest vector instructions and a remainder


class DeviceReducer:
    """A reducer of device arrays with MPI's operators.

    staging     staging for reductions on the host
    cost        cost of reductions by memory kind (a calibration's `reduction`): with entries for
                both "host" and "cuda" nothing is timed. The host's entry must include its copies
                from and to the device
    """

    def __init__(self, staging: Staging, cost: Mapping[str, ReductionCost] | None = None) -> None:
        self._staging = staging
        self._threshold_from_costs = (
            threshold_from_costs(cost[HOST], cost[CUDA])
            if cost and {HOST, CUDA} <= {*cost}
            else None
        )
        self._thresholds: dict[tuple[int, int], float] = {}

    def reduce(
        self, op: MPI.Op, datatype: MPI.Datatype, first: DeviceArray, second: DeviceArray
    ) -> None:
        """Start `second = first op second`, as computed by `op.Reduce_local`.

        first, second   equally many consecutive elements of `datatype`

        Operators that the program defined, pairs and derived datatypes are reduced on the host.
        Raises MPI's error for an operator that is not defined for the datatype.
        """
        kernel = self._kernel(op, datatype, first)
        if kernel and first.nbytes >= self.kernel_threshold(op, datatype, first):
            kernel(first, second)
        else:
            self._reduce_on_host(op, datatype, first, second)

    def kernel_threshold(self, op: MPI.Op, datatype: MPI.Datatype, like: DeviceArray) -> float:
        """Return the bytes from which the kernel is faster than the host; inf where it never is."""
        key = handle_of(op), handle_of(datatype)
        if key not in self._thresholds:
            item = np.ones(1, like.dtype)
            op.Reduce_local([item, 1, datatype], [item.copy(), 1, datatype])  # raises MPI's errors
            given, found = self._threshold_from_costs, math.inf
            if given != math.inf and self._matches_library(op, datatype, like):
                found = self._measure_threshold(op, datatype, like) if given is None else given
            self._thresholds[key] = found
        return self._thresholds[key]

    def _matches_library(self, op: MPI.Op, datatype: MPI.Datatype, like: DeviceArray) -> bool:
        """Return whether kernel and library give the same bits, also for extreme elements.

        False where the kernel cannot be compiled, for lack of NVRTC: then the host reduces.
        """
        device, kernel = self._staging.device, self._kernel(op, datatype, like)
        assert kernel is not None
        first, second = _test_operands(like.dtype)
        result = np.empty_like(second)
        try:
            there = device.upload(second)
            kernel(device.upload(first), there)
            device.download(there, result)
        except Exception as reason:  # noqa: BLE001 - of CuPy, NVRTC or the driver
            warn_once(f"tuner: reductions of device memory are done by the host: {reason}")
            return False
        op.Reduce_local([first, COMPARED_ELEMENTS, datatype], [second, COMPARED_ELEMENTS, datatype])
        return result.tobytes() == second.tobytes()

    def _kernel(self, op: MPI.Op, datatype: MPI.Datatype, like: DeviceArray) -> Kernel | None:
        if not (op.is_predefined and datatype.is_predefined and like.ndim == 1):
            return None
        return self._staging.device.kernel(op, like.dtype)

    def _reduce_on_host(
        self, op: MPI.Op, datatype: MPI.Datatype, first: DeviceArray, second: DeviceArray
    ) -> None:
        count = len(first)
        self._staging(
            lambda one, two: op.Reduce_local([one, count, datatype], [two, count, datatype]),
            (first, READ),
            (second, READ | WRITE),
        )

    def _measure_threshold(self, op: MPI.Op, datatype: MPI.Datatype, like: DeviceArray) -> float:
        """Time kernel and host at increasing sizes on temporary memory; return the threshold."""
        device, kernel = self._staging.device, self._kernel(op, datatype, like)
        assert kernel is not None
        ones = np.ones(TIMED_SIZES[-1] // like.dtype.itemsize, like.dtype)
        try:
            first, second = device.upload(ones), device.upload(ones)
        except Exception:  # noqa: BLE001 - there is no room for them on the device
            return math.inf
        gains = []
        for nbytes in TIMED_SIZES:
            part = slice(0, nbytes // like.dtype.itemsize)
            one, two = first[part], second[part]
            by_host = self._best_seconds(partial(self._reduce_on_host, op, datatype, one, two))
            gains.append(by_host - self._best_seconds(partial(kernel, one, two)))
        return threshold_from_gains(TIMED_SIZES, gains)

    def _best_seconds(self, run: Callable[[], None]) -> float:
        """Return the shortest of several runs in seconds, without the first, which compiles."""
        times = []
        for _ in range(REPETITIONS + 1):
            begun = time.perf_counter()
            run()
            self._staging.device.synchronise()
            times.append(time.perf_counter() - begun)
        return min(times[1:])


def _test_operands(dtype: np.dtype[Any]) -> tuple[AnyArray, AnyArray]:
    """Return operands with all pairs of the largest, the smallest and some other elements."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        chosen = [limits.min, limits.max, 1, 2, limits.max // 2 + 1]
    else:
        chosen = [0, 1]
    numbers = np.arange(COMPARED_ELEMENTS)
    values = np.array(chosen, dtype)
    return values[numbers % len(values)], values[numbers // len(values) % len(values)]


def threshold_from_gains(sizes: tuple[int, ...], gains: list[float]) -> float:
    """Return the smallest size from which on every gain is positive; inf without one.

    gains   seconds that the kernel saves at each size
    """
    found = math.inf
    for nbytes, gain in zip(reversed(sizes), reversed(gains), strict=True):
        if gain <= 0.0:
            break
        found = nbytes
    return found


def threshold_from_costs(host: ReductionCost, kernel: ReductionCost) -> float:
    """Return the bytes from which launch + gamma * bytes is less for the kernel; inf if never."""
    more_to_start = kernel.launch.value - host.launch.value
    saved_per_byte = host.gamma.value - kernel.gamma.value
    if more_to_start < 0.0:
        # A kernel that also launches sooner wins everywhere. One that is slower per byte would win
        # for small sizes only, which needs an upper bound; no machine measured so far has this.
        return 0.0 if saved_per_byte >= 0.0 else math.inf
    return more_to_start / saved_per_byte if saved_per_byte > 0.0 else math.inf
