"""Run by mpirun: collectives on device buffers give what the library gives on host buffers.

    collectives_program.py cuda|pretended|aware

`pretended` puts a device on the host's memory, to try everything but CUDA itself; `all_cuda_aware`
says that MPI takes that memory, as it really does. All ranks may share one GPU. Values are small
integers, so every order of reduction gives the same bits.
"""

import math
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.cuda_messages import open_during_messages
from tests.support.device import FakeDevice, resident
from tuner import algorithms
from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.path_classes import CUDA
from tuner.core.table import SCHEDULE, AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.runtime import cuda_support
from tuner.runtime.agreement import library_name
from tuner.runtime.device_protocol import DeviceInterface

WORLD = MPI.COMM_WORLD
NUMBERS = (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX)
OPERATORS: dict[str, tuple[MPI.Op, ...]] = {
    "i": (*NUMBERS, MPI.BAND, MPI.BXOR, MPI.LAND, MPI.LXOR),
    "h": NUMBERS,
    "l": NUMBERS,
    "f": NUMBERS,
    "d": NUMBERS,
    "D": (MPI.SUM, MPI.PROD),
    "?": (MPI.LAND, MPI.LOR),
}
COUNTS = (0, 5, 1003)
FROM = 4096  # bytes: without CUDA-aware MPI the library's choice runs from here on
EVERYWHERE, BY_RANK, MIXED = "on all ranks", "on every other rank", "for some of the buffers"
PLACES = (EVERYWHERE, BY_RANK, MIXED)
Case = tuple[str, list[AnyArray | None], tuple[Any, ...]]  # method, buffers, other arguments


def keep_first(_first: Any, _second: Any, _: MPI.Datatype) -> None:
    """`second = first`: associative, not commutative."""
    _second[:] = _first[:]


FIRST = MPI.Op.Create(keep_first, commute=False)


def table(number: int, upto: float) -> TuningTable:
    """The `number`-th algorithm of every collective below `upto` bytes, the default above."""
    rules: list[Rule] = []
    for collective in filter(lambda one: one.has_data, Collective):
        names = algorithms.algorithm_names(collective)
        name = names[number % len(names)]
        cut = number % 2 and "segment" in algorithms.describe(collective, name).params
        choice = AlgorithmChoice(name, {"segment": 1000} if cut else {}, SCHEDULE)
        key = RuleKey(collective, 1, WORLD.size, CUDA)
        rules.append(Rule(key, 0, upto, choice, Evidence("none")))
        if upto < math.inf:
            rules.append(Rule(key, int(upto), math.inf, AlgorithmChoice(), Evidence("none")))
    return TuningTable(Cluster("here", 1, 2, "any", 1 << 30), library_name(), tuple(rules))


def numbers(count: int, dtype: str) -> AnyArray:
    """Differs from rank to rank."""
    return ((np.arange(count) + WORLD.rank) % 3 + 1).astype(dtype)


def reductions(count: int, part: slice) -> Iterator[Case]:
    """Reduce with a part of the datatypes and operators."""
    operators = [(dtype, op) for dtype, ops in OPERATORS.items() for op in ops]
    for dtype, op in [*operators[part], ("i", FIRST)]:
        mine, result = numbers(count, dtype), np.zeros(count, dtype)
        shared = numbers(count * WORLD.size, dtype)
        root = WORLD.size - 1
        yield "Allreduce", [mine, result], (op,)
        yield "Allreduce", [None, mine], (op,)
        yield "Reduce", [mine, result if WORLD.rank == root else None], (op, root)
        yield "Reduce_scatter_block", [shared, result], (op,)


def movements(count: int) -> Iterator[Case]:
    for dtype in OPERATORS:
        mine, result = numbers(count, dtype), np.zeros(count, dtype)
        shared, everything = numbers(count * WORLD.size, dtype), np.zeros(count * WORLD.size, dtype)
        yield "Allgather", [mine, everything], ()
        yield "Allgather", [None, shared], ()
        for root in {0, WORLD.size - 1}:
            is_root = WORLD.rank == root
            yield "Bcast", [mine], (root,)
            yield "Gather", [mine, everything if is_root else None], (root,)
            yield "Scatter", [shared if is_root else None, result], (root,)


def place(buffers: list[AnyArray | None], where: str, put: Any) -> list[Any]:
    """Copies, `where` on the device."""

    def on_device(i: int) -> bool:
        return where == EVERYWHERE or bool((WORLD.rank + (i if where == MIXED else 0)) % 2)

    return [
        None if buffer is None else put(buffer) if on_device(i) else buffer.copy()
        for i, buffer in enumerate(buffers)
    ]


def arguments(method: str, buffers: list[Any]) -> list[Any]:
    """A missing first buffer is IN_PLACE, but for Scatter, where only the root sends."""
    if buffers[0] is None and method != "Scatter":
        return [MPI.IN_PLACE, *buffers[1:]]
    return buffers


def check(comm: Any, case: Case, where: str, put: Any, get: Any) -> None:
    """The tuned call must leave in every buffer what the library's leaves."""
    method, buffers, rest = case
    expected = [None if buffer is None else buffer.copy() for buffer in buffers]
    getattr(WORLD, method)(*arguments(method, expected), *rest)
    placed = place(buffers, where, put)
    getattr(comm, method)(*arguments(method, placed), *rest)
    for wanted, got in zip(expected, placed, strict=True):
        if wanted is not None and get(got).tobytes() != wanted.tobytes():
            refuse(f"{method} {rest} {where}: {wanted.size} x {wanted.dtype}: wrong")


def check_movements(comm: Any, count: int, where: str, put: Any, get: Any) -> int:
    """What MPI takes from the device never comes to the host."""
    pretended, calls = cuda_support.cuda_device_or_none(), 0
    brought = pretended.brought_to_host if isinstance(pretended, FakeDevice) else 0
    for case in movements(count):
        check(comm, case, where, put, get)
        calls += 1
    direct = where != MIXED and cuda_support.is_cuda_aware()
    if direct and isinstance(pretended, FakeDevice) and pretended.brought_to_host > brought:
        refuse(f"movements {where} went through the host")
    return calls


def refuse(what: str) -> None:
    print(f"rank {WORLD.rank} of {WORLD.size}: {what}", flush=True)
    WORLD.Abort(1)


def device(kind: str) -> tuple[Any, Any]:
    """How to put an array on the device, and how to get it back."""
    if kind != "cuda":
        os.environ["TUNER_CUDA_AWARE"] = str(int(kind == "aware"))
        cuda_support.cuda_device = cache(_pretended)  # before the dispatcher is imported
        return lambda array: resident(array.copy()), np.asarray
    import cupy

    return cupy.asarray, lambda array: array.get() if isinstance(array, cupy.ndarray) else array


def _pretended() -> DeviceInterface:
    return FakeDevice()


def stands_in() -> bool:
    """Whether CuPy is the one of tests/support."""
    import cupy

    return hasattr(cupy, "_driver")


def main(kind: str) -> None:
    put, get = device(kind)
    from tuner.runtime import tune

    calls, most = 0, max(len(algorithms.algorithm_names(collective)) for collective in Collective)
    direct = cuda_support.is_cuda_aware()
    few = kind == "pretended" or (kind == "cuda" and stands_in())
    for number in range(3 if few else most):  # what copies, not what is copied
        part = slice(number, None, 3) if few else slice(None)
        ours = table(number, math.inf if direct else FROM)
        comm = tune(WORLD.Dup(), ours, memory=CUDA)
        for i, count in enumerate(COUNTS):
            where = PLACES[(i + number) % len(PLACES)]  # three algorithms in turn see all pairs
            for case in reductions(count, part):
                check(comm, case, where, put, get)
                calls += 1
            calls += check_movements(comm, count, where, put, get)
        comm.Free()
    if WORLD.rank == 0:
        print(f"{calls} calls, {'direct' if direct else 'staged'}: all equal")


open_during_messages()
main(sys.argv[1])
