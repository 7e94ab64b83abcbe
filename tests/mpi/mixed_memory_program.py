"""Run by mpirun: ranks describe their parts of a call each in a way of its own, drawn at random.

`mixed_memory_program.py SEED CALLS [device]`: CALLS calls under each of a few tables, which hold
algorithms of ours and of the library as they are drawn. All memory of the call (what lies between
and around the elements, too) must afterwards be what the plain communicator makes of it. With
`device` every second buffer is a GPU's for the tuned communicator.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from tests.support.calls import EVEN
from tests.support.cuda_messages import open_during_messages
from tests.support.ladders import table_of
from tests.support.tensors import Tensor
from tuner import algorithms, mpi_libraries
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable
from tuner.runtime import tune
from tuner.runtime.agreement import library_name
from tuner.runtime.compatibility import datatype_of_code

WORLD, LIBRARY = MPI.COMM_WORLD, library_name()
P, ME = WORLD.size, WORLD.rank
TABLES = 8
WITH_DATA = tuple(one for one in EVEN if one.has_data)
RUNGS = (0, 100, 400, 1600)  # bytes from which another algorithm is drawn
GROUP = 6  # counts are whole numbers of these, so every layout below can hold them
MARGIN = 4  # elements around
SMALL = {"segment": 40, "radix": 3, "chains": 2, "group": 2}  # a segment cuts elements of 16 bytes
CODES = "bhilfdFD"
ANY = {
    "b": MPI.BXOR,
    "h": MPI.SUM,
    "i": MPI.MAX,
    "l": MPI.SUM,
    "f": MPI.MIN,
    "d": MPI.SUM,
    "F": MPI.SUM,
    "D": MPI.SUM,
}


class Buffer(NamedTuple):
    """Memory with a margin, and how an argument describes it; `made` is to be freed."""

    memory: Any
    spec: Any
    made: list[MPI.Datatype]


Layout = Callable[[Any, int], tuple[Any, list[MPI.Datatype]]]


def plain(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    return memory[MARGIN : MARGIN + count], []


def listed(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    return [memory, (count, MARGIN), datatype_of_code(memory.dtype.char)], []


def as_bytes(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    size = memory.itemsize
    return [memory, (count * size, MARGIN * size), MPI.BYTE], []


def rows(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    """Three elements make one."""
    row = datatype_of_code(memory.dtype.char).Create_contiguous(3).Commit()
    return [memory[MARGIN:], count // 3, row], [row]


def swapped(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    """Pairs, the second element before the first."""
    number = datatype_of_code(memory.dtype.char)
    pair = number.Create_indexed([1, 1], [1, 0]).Commit()
    return [memory[MARGIN:], count // 2, pair], [pair]


def apart(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    """Every other element."""
    number = datatype_of_code(memory.dtype.char)
    wide = number.Create_resized(0, 2 * number.extent).Commit()
    return [memory[MARGIN:], count, wide], [wide]


class Shown:
    """Items of two bytes without a datatype (bfloat16), by CUDA's array interface."""

    def __init__(self, memory: Any) -> None:
        pairs = {"shape": (memory.nbytes // 2,), "typestr": "<V2", "descr": None}
        self.owner = memory
        self.__cuda_array_interface__ = {**interface(memory), **pairs, "version": 3}


def interface(memory: Any) -> Any:
    if isinstance(memory, np.ndarray):
        return memory.__array_interface__
    return memory.__cuda_array_interface__


def as_tensor(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    part = memory[MARGIN : MARGIN + count]
    return Tensor(part) if isinstance(part, np.ndarray) else part, []


def as_bfloat16(memory: Any, count: int) -> tuple[Any, list[MPI.Datatype]]:
    return Shown(memory[MARGIN : MARGIN + count]), []


LAYOUTS: tuple[Layout, ...] = (
    plain,
    listed,
    as_tensor,
    as_bfloat16,
    as_bytes,
    rows,
    swapped,
    apart,
)
REDUCED = 3  # of these may be the operands of a reduction


class Call(NamedTuple):
    """What all ranks have in common."""

    collective: Collective
    code: str
    elements: int
    root: int
    in_place: bool

    def make(self, comm: Any, seed: int, *, on_device: bool = False) -> list[bytes]:
        """Make the call with this rank's own layouts; the memory afterwards."""
        own = np.random.default_rng([seed, ME])
        put = np.random.default_rng([seed, ME, 1]) if on_device else None
        share, every = self.buffer(own, 1, put), self.buffer(own, P, put)
        into = self.buffer(own, P if self.collective is Collective.ALLTOALL else 1, put)
        operator = [ANY[self.code]] if self.collective.is_reduction else []
        root = [self.root] if self.collective.is_rooted else []
        arguments = self.arguments(share.spec, every.spec, into.spec)
        getattr(comm, self.collective.spec.mpi)(*arguments, *operator, *root)
        for datatype in (*share.made, *every.made, *into.made):
            datatype.Free()
        return [content_of(each.memory) for each in (share, every, into)]

    def buffer(
        self, own: np.random.Generator, parts: int, put: np.random.Generator | None
    ) -> Buffer:
        """The data of so many ranks, in a layout of this rank's own; `put` draws the memory."""
        layout = LAYOUTS[own.integers(REDUCED if self.collective.is_reduction else len(LAYOUTS))]
        count = self.elements * parts
        memory: Any = own.integers(0, 4, 2 * count + 2 * MARGIN).astype(self.code)
        if put is not None and put.integers(2):
            memory = on_gpu(memory)
        spec, made = layout(memory, count)
        if parts > 1 and isinstance(spec, list):  # MPI counts the elements of one rank
            counted, *displacement = spec[1] if isinstance(spec[1], tuple) else (spec[1],)
            one = counted // parts
            spec[1] = (one, *displacement) if displacement else one
        return Buffer(memory, spec, made)

    def arguments(self, share: Any, every: Any, into: Any) -> tuple[Any, ...]:
        """Send and receive buffer."""
        at_root, stays = self.root == ME, self.in_place
        match self.collective:
            case Collective.BCAST:
                return (share,)
            case Collective.SCATTER:
                return every, MPI.IN_PLACE if stays and at_root else into
            case Collective.GATHER:
                return MPI.IN_PLACE if stays and at_root else share, every
            case Collective.ALLGATHER:
                return MPI.IN_PLACE if stays else share, every
            case Collective.REDUCE:
                return MPI.IN_PLACE if stays and at_root else share, into
            case Collective.REDUCE_SCATTER:
                return every, into
            case Collective.ALLTOALL:
                return MPI.IN_PLACE if stays else every, into
        return MPI.IN_PLACE if stays else share, into


def on_gpu(memory: Any) -> Any:
    import cupy

    return cupy.asarray(memory)


def content_of(memory: Any) -> bytes:
    found: bytes = (memory if isinstance(memory, np.ndarray) else memory.get()).tobytes()
    return found


def choices(collective: Collective) -> list[AlgorithmChoice]:
    """Ours, the library's and its default, with short segments where there are any."""
    library = mpi_libraries.library_module(LIBRARY)
    found = [AlgorithmChoice()]
    for name in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        known = algorithms.describe(collective, name).params
        found.append(
            AlgorithmChoice(name, {k: v for k, v in SMALL.items() if k in known}, SCHEDULE)
        )
    for name in library.ALGORITHMS.get(collective, ()):
        if name not in ("default", "two_proc", "neighbor_exchange"):
            found += [AlgorithmChoice(name), AlgorithmChoice(name, {"segment": SMALL["segment"]})]
    return found


def drawn_table(rng: np.random.Generator) -> TuningTable:
    ladders: dict[Any, Any] = {}
    for collective in EVEN:
        known = choices(collective)
        ladders[collective, P] = [(low, known[rng.integers(len(known))]) for low in RUNGS]
    return table_of(ladders, library=LIBRARY)


def drawn_call(rng: np.random.Generator) -> Call:
    collective = WITH_DATA[rng.integers(len(WITH_DATA))]
    count = GROUP * int(2 ** rng.uniform(0, 7)) * bool(rng.integers(20))
    code = CODES[rng.integers(len(CODES))]
    return Call(collective, code, count, int(rng.integers(P)), bool(rng.integers(2)))


def main(seed: int, calls: int, *, on_device: bool) -> None:
    rng, number = np.random.default_rng(seed), 0
    for _ in range(TABLES):
        usual, tuned = WORLD.Dup(), tune(WORLD.Dup(), drawn_table(rng))
        for _ in range(calls):
            number += 1
            call = drawn_call(rng)
            if call.make(usual, number) != call.make(tuned, number, on_device=on_device):
                print(f"rank {ME} of {P}, call {number}: {call} differs", flush=True)
        tuned.Free()
        usual.Free()
    if WORLD.rank == 0:
        print(f"{number} calls", flush=True)


open_during_messages()
if sys.argv[3:] == ["device"]:
    # The stand-in for CuPy brings no driver, without which no buffer is looked at for long.
    with patch("tuner.runtime.fast_path.has_driver", return_value=True):
        main(int(sys.argv[1]), int(sys.argv[2]), on_device=True)
else:
    main(int(sys.argv[1]), int(sys.argv[2]), on_device=False)
