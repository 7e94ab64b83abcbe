"""Run by mpirun: every call through the dispatcher gives what the plain communicator gives.

`dispatcher_program.py EVERY COLLECTIVES P ...`: every algorithm (ours, and the library's own where
it can be forced) of these collectives, joined by commas, on communicators of these sizes, with
every EVERY-th combination of datatype, operator and class of count: 1 for all, a prime for a
spread. The first and the last root take turns, and so do calls in place and not. Algorithms that
want more than ranks (GPUs, say) are tried as well: their messages are messages, and their results
are results.
"""

import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner import algorithms, mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.runtime import tune
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
LIBRARY = library_name()
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
FLOATS, COMPLEX = ("f4", "f8", "g"), ("c8", "c16")
ARITHMETIC = (MPI.SUM, MPI.PROD)
ORDERED = (MPI.MIN, MPI.MAX)
LOGIC = (MPI.LAND, MPI.LOR, MPI.LXOR)
BITS = (MPI.BAND, MPI.BOR, MPI.BXOR)
PAIRS = {"f4": MPI.FLOAT_INT, "f8": MPI.DOUBLE_INT, "i4": MPI.INT_INT, "i8": MPI.LONG_INT}
PLACES = (MPI.MINLOC, MPI.MAXLOC)
MATRIX = MPI.INT64_T.Create_contiguous(4).Commit()
MODULUS = 10007
STRIDE = 7919  # a prime: where a spread begins is another place for every algorithm
LARGE = 5003  # elements: more than libraries send without asking the receiver
COARSE = 100  # times: segments of so many elements, else there would be thousands
# Small enough for some of everything: several segments, groups and levels among few ranks.
SMALL = {
    "segment": 24,
    "group": 2,
    "radix": 3,
    "chains": 2,
    "length": 2,
    "aggregate": 2,
    "copies": 2,
}
Spec = Any


def multiply(arriving: Any, target: Any, _: MPI.Datatype) -> None:
    left = np.frombuffer(arriving, np.int64).reshape(-1, 2, 2)
    right = np.frombuffer(target, np.int64).reshape(-1, 2, 2)
    right[:] = left @ right % MODULUS


def add(arriving: Any, target: Any, _: MPI.Datatype) -> None:
    np.frombuffer(target, np.int64)[:] += np.frombuffer(arriving, np.int64)


DRAWS = np.random.default_rng(1).integers(0, 3, 1 << 20)
PRODUCT = MPI.Op.Create(multiply, commute=False)
OWN_SUM = MPI.Op.Create(add, commute=True)


class Kind:
    """Elements of one datatype with an operator; `width` of numpy's items make one element."""

    def __init__(self, dtype: Any, op: MPI.Op, datatype: MPI.Datatype | None = None) -> None:
        self.dtype, self.op, self.datatype = np.dtype(dtype, align=True), op, datatype
        self.width = 4 if datatype is MATRIX else 1

    def data(self, count: int, seed: int) -> Any:
        """Numbers small enough for every reduction to be exact."""
        draw = DRAWS[seed:][: count * self.width]
        if self.dtype.names is None:
            return draw.astype(self.dtype)
        made = np.zeros(count, self.dtype)
        made["value"], made["place"] = draw, np.arange(count) + seed % 7
        return made

    def spec(self, array: Any) -> Spec:
        """As mpi4py takes it."""
        return array if self.datatype is None else [array, self.datatype]


def kinds(collective: Collective) -> list[Kind]:
    """Every datatype with every operator that MPI has for it; where nothing is reduced, one."""
    if not collective.is_reduction:
        moved = [Kind(dtype, MPI.SUM) for dtype in (*INTEGERS, *FLOATS, *COMPLEX, "G", "?")]
        return [*moved, Kind("i8", MPI.SUM, MATRIX)]
    return [
        *(Kind(*pair) for pair in product(INTEGERS, (*ARITHMETIC, *ORDERED, *LOGIC, *BITS))),
        *(Kind(*pair) for pair in product(FLOATS, (*ARITHMETIC, *ORDERED))),
        *(Kind(*pair) for pair in product(COMPLEX, ARITHMETIC)),
        *(Kind("?", op) for op in LOGIC),
        *(
            Kind([("value", dtype), ("place", "i4")], op, datatype)
            for (dtype, datatype), op in product(PAIRS.items(), PLACES)
        ),
        Kind("i8", PRODUCT, MATRIX),
        Kind("i8", OWN_SUM),
    ]


def choices(collective: Collective) -> Iterator[AlgorithmChoice]:
    """Ours as they are and with `MAX_INLINE_INGEST_BYTES` parameters; the library's under every
    name that it has.
    """
    for name in algorithms.algorithm_names(collective, algorithms.REQUIREMENTS):
        known = algorithms.describe(collective, name).params
        small = {key: value for key, value in SMALL.items() if key in known}
        yield from (
            AlgorithmChoice(name, params, SCHEDULE) for params in ([{}, small] if small else [{}])
        )
    library = mpi_libraries.library_module(LIBRARY)
    for name in library.ALGORITHMS.get(collective, ()):
        if "mpich" in LIBRARY:
            segmented = bool(library.ALGORITHMS[collective][name].segment_parameter)
            yield AlgorithmChoice(name, {"segment": 64} if segmented else {})
        elif name not in ("default", "two_proc"):  # which is for two ranks alone
            yield AlgorithmChoice(name)
            if name in library.COLLECTIVES[collective].segmented:
                yield AlgorithmChoice(name, {"segment": 64})


class Call:
    """One call: what each rank gives, and what it gets back."""

    def __init__(self, collective: Collective, kind: Kind, count: int, root: int, p: int) -> None:
        self.collective, self.kind, self.root = collective, kind, root
        self.count, self.whole = count, count * p
        self.method = collective.spec.mpi

    def make(self, comm: Any, *, in_place: bool) -> Any:
        """The array that this rank receives; None where it receives nothing."""
        at_root = comm.rank == self.root
        send, receive = self.arguments(comm.rank, at_root, in_place)
        others: list[Any] = [self.kind.op] if self.collective.is_reduction else []
        others += [self.root] if self.collective.is_rooted else []
        given = [receive] if self.collective is Collective.BCAST else [send, receive]
        getattr(comm, self.method)(*(self.spec(array) for array in given), *others)
        if self.collective in (Collective.REDUCE, Collective.GATHER) and not at_root:
            return None
        if self.collective is Collective.SCATTER and in_place and at_root:
            return None
        if self.collective is Collective.REDUCE_SCATTER and in_place:
            return receive[: self.count * self.kind.width]
        return receive

    def spec(self, array: Any) -> Spec:
        return self.kind.spec(array) if isinstance(array, np.ndarray) else array

    def arguments(self, rank: int, at_root: bool, in_place: bool) -> tuple[Any, Any]:
        """Send and receive buffer of a rank."""
        data, seed = self.kind.data, 100 + rank
        share, everything = data(self.count, seed), data(self.whole, seed)
        empty, collective = np.zeros_like(share), self.collective
        if collective is Collective.BCAST:
            return None, share if at_root else empty
        if collective is Collective.SCATTER:
            receive = MPI.IN_PLACE if in_place and at_root else empty
            return everything if at_root else None, receive
        if collective is Collective.REDUCE_SCATTER:
            return (MPI.IN_PLACE, everything) if in_place else (everything, empty)
        if collective is Collective.ALLTOALL:
            into = np.zeros_like(everything)
            return (MPI.IN_PLACE, everything) if in_place else (everything, into)
        alone = collective in (Collective.REDUCE, Collective.GATHER)
        into = np.zeros_like(everything) if collective.has_blocks else empty
        if alone and not at_root:
            return share, None
        if not in_place:
            return share, into
        return MPI.IN_PLACE, everything if collective.has_blocks else share


def coarse(choice: AlgorithmChoice) -> AlgorithmChoice:
    """The same with longer segments, where it has any."""
    segment = choice.params.get("segment")
    longer = {} if segment is None else {"segment": COARSE * int(segment)}
    return AlgorithmChoice(choice.algorithm, {**choice.params, **longer}, choice.runner)


def counts(p: int) -> tuple[int, ...]:
    """One of each class."""
    return 0, 1, p - 1, p, 5 * p + 3, LARGE


Combination = tuple[int, tuple[Kind, int]]  # its number; datatype with operator, count


def combinations(collective: Collective, p: int, first: int, every: int) -> list[Combination]:
    """Of datatype, operator and count, begun at another place for every choice."""
    everything = list(enumerate(product(kinds(collective), counts(p))))
    return everything[STRIDE * (first + p) % every :: every]


def aborts(collective: Collective, kind: Kind, count: int, p: int) -> bool:
    """Whether the library's own collective ends the program: MPICH 5.0.2's Gather of so many long
    double complex among four ranks or more does, by an assertion (typerep_yaksa_pack.c:326).
    """
    heavy = collective is Collective.GATHER and kind.dtype.char == "G" and count == LARGE
    return "mpich" in LIBRARY and heavy and p >= 4


def check(
    collective: Collective,
    choice: AlgorithmChoice,
    comm: MPI.Intracomm,
    first: int,
    combinations: list[Combination],
) -> None:
    """Calls under one choice."""
    p = comm.size
    if not combinations:
        return
    ladder = [(0, choice)]
    wanted: dict[tuple[Any, ...], Any] = {(collective, p): ladder}
    if collective.is_reduction:
        safe = choice.runner == SCHEDULE or mpi_libraries.library_module(
            LIBRARY
        ).preserves_operand_order(collective, choice)
        wanted = {(collective, p, "commutative"): ladder}
        wanted |= {(collective, p): ladder} if safe else {}
    tuned = tune(comm, table_of(wanted, library=LIBRARY))
    roots = (0, p - 1) if collective.is_rooted else (0,)
    places = (False,) if collective is Collective.BCAST else (False, True)
    ways = list(product(roots, places))
    for number, (kind, count) in combinations:
        root, in_place = ways[(first + number + number // len(counts(p))) % len(ways)]
        call = Call(collective, kind, count, root, p)
        expected = call.make(comm, in_place=in_place)
        for _ in range(2):  # bound, and bound before
            got = call.make(tuned, in_place=in_place)
            if expected is not None and not np.array_equal(got, expected):
                print(
                    f"{collective} {choice}: rank {comm.rank} of {p}, {count} x {kind.dtype}"
                    f" root {root} in place {in_place}: {got} not {expected}"
                )
                WORLD.Abort(1)
    tuned.finalize()


def possible(collective: Collective, choice: AlgorithmChoice, comm: MPI.Intracomm) -> bool:
    """Whether the library has this on so many ranks."""
    if choice.runner == SCHEDULE:
        return True
    try:
        mpi_libraries.library_module(LIBRARY).settings(collective, choice)
    except InputError:
        return False
    return not (choice.algorithm == "neighbor_exchange" and comm.size % 2)


def everything(comm: MPI.Intracomm, collectives: list[Collective], every: int) -> list[int]:
    """On one communicator: how many choices, calls, and calls left out.

    Choices are counted from the start on each communicator: its ranks need not have been together
    on those before, and must draw the same calls.
    """
    choices_made = calls = left_out = 0
    for collective in collectives:
        for choice in choices(collective):
            if possible(collective, choice, comm):
                choices_made += 1
                drawn = combinations(collective, comm.size, choices_made, every)
                mine = [one for one in drawn if not aborts(collective, *one[1], comm.size)]
                few = [one for one in mine if one[1][1] != LARGE]
                many = [one for one in mine if one[1][1] == LARGE]
                check(collective, choice, comm, choices_made, few)
                check(collective, coarse(choice), comm, choices_made, many)
                calls, left_out = calls + len(mine), left_out + len(drawn) - len(mine)
    return [choices_made, calls, left_out]


def main() -> None:
    every, names, *sizes = sys.argv[1:]
    counted = np.zeros(3, int)
    for p in map(int, sizes):
        comm = MPI.Intracomm(WORLD.Split(0 if WORLD.rank < p else MPI.UNDEFINED, WORLD.rank))
        if comm != MPI.COMM_NULL:
            counted += everything(comm, [*map(Collective, names.split(","))], int(every))
            comm.Free()
    if WORLD.rank == 0:
        made, calls, left_out = counted
        print(
            f"{LIBRARY}: {made} choices, {calls} calls, {left_out} left out where the library"
            " itself aborts: all as the plain communicator's"
        )


main()
