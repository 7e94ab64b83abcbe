"""Run by mpirun: where a tuned communicator might be told from the plain one.

Prints `NAME: fine` or `NAME: what is wrong` for every check; NAME is the function's.
"""

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

os.environ["TUNER_CUDA_AWARE"] = "1"  # no check has a device: it is the user's word that counts

from tests.support.ladders import table_of
from tuner.collective import Collective
from tuner.runtime import tune
from tuner.runtime.agreement import library_name
from tuner.table import SCHEDULE, Choice, TuningTable

WORLD = MPI.COMM_WORLD
OURS = {
    Collective.BCAST: ("binomial", "chain"), Collective.ALLREDUCE: ("recursive_doubling", "ring"),
    Collective.REDUCE: ("linear", "binomial"), Collective.ALLGATHER: ("ring", "ring"),
    Collective.REDUCE_SCATTER: ("ring", "ring"), Collective.GATHER: ("linear", "binomial"),
    Collective.SCATTER: ("linear", "binomial"),
}  # fmt: skip
FORCED = Choice("binomial"), Choice("recursive_doubling")


def table(*, forced: bool = False) -> TuningTable:
    """One of our algorithms up to 16 bytes, another above; or the library's own, forced."""
    ladders: dict[Any, Any] = {
        (collective, WORLD.size): [(lo, Choice(name, {}, SCHEDULE)) for lo, name in
                                   zip((0, 16), names, strict=True)]
        for collective, names in OURS.items()
    }  # fmt: skip
    if forced:
        for collective, choice in zip((Collective.BCAST, Collective.ALLREDUCE), FORCED, strict=True):
            ladders[collective, WORLD.size] = [(0, choice)]
    return table_of(ladders, library=library_name())


def outcome(call: Callable[[], object]) -> str:
    """What a call ends with: its exception's type and, but for MPI's own, text."""
    try:
        call()
    except MPI.Exception as error:
        return f"MPI error class {error.Get_error_class()}"
    except Exception as error:  # which one is the question
        return f"{type(error).__name__}: {error}"
    return "fine"


def refusals(a: Any, b: Any) -> Iterator[Callable[[Any], object]]:
    """Calls that mpi4py or the library refuse on every rank."""
    gaps, fixed = np.zeros((4, 4))[:, ::2], np.zeros(4)
    fixed.flags.writeable = False
    for op in (None, 3, "sum", MPI.OP_NULL, MPI.REPLACE, MPI.NO_OP, MPI.MINLOC, MPI.BAND):
        yield lambda comm, op=op: comm.Allreduce(a, b, op)
        yield lambda comm, op=op: comm.Allreduce(MPI.IN_PLACE, b, op=op)
        yield lambda comm, op=op: comm.Reduce(a, b, op, 0)
        yield lambda comm, op=op: comm.Reduce_scatter_block(np.zeros(4 * comm.size), b, op)
    for root in (-1, WORLD.size, 1 << 20, None, "0"):
        yield lambda comm, root=root: comm.Bcast(a, root)
        yield lambda comm, root=root: comm.Bcast([a, MPI.DOUBLE], root=root)
        yield lambda comm, root=root: comm.Reduce(a, b, root=root)
        yield lambda comm, root=root: comm.Gather(a, np.zeros(4 * comm.size), root)
        yield lambda comm, root=root: comm.Scatter(np.zeros(4 * comm.size), b, root)
    for wrong in (gaps, np.array(["x", None], object), np.zeros(3, ">f8"), np.zeros(3, "M8[s]"),
                  np.zeros(3, "f8,i4"), 3, "text", [], [a], [a, -1], [a, 1, 2, 3, 4],
                  [a, "no datatype"], [a, 2, MPI.DATATYPE_NULL]):  # fmt: skip
        yield lambda comm, wrong=wrong: comm.Bcast(wrong)
        yield lambda comm, wrong=wrong: comm.Allreduce(a, wrong)
        yield lambda comm, wrong=wrong: comm.Allreduce(wrong, b)
        yield lambda comm, wrong=wrong: comm.Allgather(wrong, b)
    for into in (fixed, np.zeros(3), np.zeros(4, "i4"), b"read-only", [b, 3]):
        yield lambda comm, into=into: comm.Allreduce(a, into)
        yield lambda comm, into=into: comm.Allreduce(MPI.IN_PLACE, fixed)
    yield lambda comm: comm.no_such_method


def check_refusals() -> Iterator[str]:
    for forced in (False, True):
        plain, tuned = WORLD.Dup(), tune(WORLD.Dup(), table(forced=forced))
        for number, call in enumerate(refusals(np.ones(4), np.zeros(4))):
            expected, got = (outcome(lambda comm=comm: call(comm)) for comm in (plain, tuned))
            got = got.replace(type(tuned).__name__, "Intracomm").replace("'Intra", "'mpi4py.MPI.Intra")
            if got != expected:
                yield f"{number}, forced {forced}: {got!r}, not {expected!r}"
        tuned.Free()
        plain.Free()


def check_order_of_memory() -> Iterator[str]:
    """MPI sees memory, not indices: the second call must not copy otherwise than the first."""
    tuned = tune(WORLD.Dup(), table())
    for send, shape in ((np.asfortranarray(np.arange(6.0).reshape(2, 3)), (2, 3)),
                        (np.arange(6.0), (3, 2)), (np.arange(6.0).reshape(1, 6), (6, 1))):  # fmt: skip
        expected, got = np.zeros(shape), np.zeros(shape)
        WORLD.Allreduce(send, expected)
        for attempt in range(3):
            got[...] = 9.0
            tuned.Allreduce(send, got)
            if not np.array_equal(got, expected):
                yield f"call {attempt}: {got.tolist()}, not {expected.tolist()}"
    tuned.Free()


def check_none_is_in_place() -> Iterator[str]:
    """mpi4py takes None for IN_PLACE; some ranks may write one and some the other."""
    tuned, first = tune(WORLD.Dup(), table()), WORLD.rank == 0
    stays = None if WORLD.rank % 2 == 0 else MPI.IN_PLACE

    def calls(comm: Any, whole: Any, share: Any) -> None:
        comm.Allreduce(stays, share)
        comm.Allgather(stays, whole)
        comm.Reduce_scatter_block(stays, whole)
        comm.Reduce(stays if first else share, share if first else None)
        comm.Gather(stays if first else share, whole if first else None)
        comm.Scatter(whole if first else None, stays if first else share)

    for count in (1, 5, 1000):
        results = []
        for comm in (WORLD, tuned):
            whole = np.arange(count * WORLD.size, dtype="i8") * (WORLD.rank + 1)
            share = np.arange(count, dtype="i8") + WORLD.rank
            calls(comm, whole, share)
            results.append((whole[:count].tolist(), share.tolist()))
        if results[0] != results[1]:
            yield f"{count} elements: {results[1]}, not {results[0]}"
    tuned.Free()


def check_freed() -> Iterator[str]:
    """What was a communicator is none, and its methods say so like mpi4py's."""
    for end in ("Free", "Disconnect"):
        tuned, array = tune(WORLD.Dup(), table()), np.ones(4)
        for _ in range(2):
            tuned.Bcast(array)
        getattr(tuned, end)()
        if tuned != MPI.COMM_NULL:
            yield f"{end} leaves a communicator"
        expected = outcome(lambda: MPI.Intracomm(MPI.COMM_NULL).Bcast(array))
        if outcome(lambda tuned=tuned: tuned.Bcast(array)) != expected:
            yield f"{end}: a broadcast afterwards is no error"


def check_made_by_mpi4py() -> Iterator[str]:
    """Of our class, but not by us: the library decides."""
    tuned = tune(WORLD.Dup(), table())
    twin, request = tuned.Idup()
    request.Wait()
    for name, comm in (("Idup", twin), ("type(comm)(comm)", type(tuned)(tuned))):
        array = np.full(3, WORLD.rank)
        comm.Bcast(array, 0)
        comm.Allreduce(MPI.IN_PLACE, array)
        if array.tolist() != [0] * 3 or comm.table is not None:
            yield f"{name}: {array.tolist()}"
    twin.Free()
    tuned.Free()


def check_pickle() -> Iterator[str]:
    tuned = tune(WORLD, table())
    if pickle.loads(pickle.dumps(tuned)) != WORLD or not tuned == WORLD:
        yield "the world is another one"
    tuned.finalize()
    private = tune(WORLD.Dup(), table())
    expected = outcome(lambda: pickle.dumps(private.plain))
    if outcome(lambda: pickle.dumps(private)) != expected:
        yield f"a private communicator: not {expected!r}"
    private.Free()


def check_users_attributes() -> Iterator[str]:
    """Theirs are copied when they duplicate, and not by what goes on inside."""
    copied: list[int] = []
    key = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: copied.append(1) or value)
    comm = WORLD.Dup()
    comm.Set_attr(key, "theirs")
    comm.Set_name("theirs")
    tuned = tune(comm, table())
    tuned.Bcast(np.ones(3))
    if copied:
        yield f"copied {len(copied)} times by tune"
    twin = tuned.Dup()
    if (twin.Get_attr(key), len(copied)) != ("theirs", 1):
        yield f"a duplicate has {twin.Get_attr(key)!r} after {len(copied)} copies"
    if tuned.Get_name() != "theirs":
        yield "the name is gone"
    twin.Free()
    tuned.Free()


def check_topologies() -> Iterator[str]:
    cart = tune(WORLD.Create_cart([WORLD.size], [True]), table())
    derived = [("cart", cart, MPI.Cartcomm), ("sub", cart.Sub([True]), MPI.Cartcomm)]
    ring = [WORLD.rank]
    graph = tune(WORLD, table()).Create_dist_graph_adjacent(ring, ring)
    derived.append(("graph", graph, MPI.Distgraphcomm))
    for name, comm, kind in derived:
        array = np.full(100, comm.rank + 1)
        comm.Bcast(array, comm.size - 1)
        if not isinstance(comm, kind) or array.tolist() != [comm.size] * 100 or comm.table is None:
            yield f"{name}: {array[0]}"
    if cart.Shift(0, 1)[1] != (WORLD.rank + 1) % WORLD.size or graph.indegree != 1:
        yield "neighbours"
    for _, comm, _ in derived:
        comm.Free()


def check_life_cycles() -> Iterator[str]:
    """Many short lives; children outlive their parents."""
    if WORLD.Split(MPI.UNDEFINED) != tune(WORLD, table()).Split(MPI.UNDEFINED):
        yield "no communicator is one"
    for _ in range(300):
        parent = tune(WORLD.Dup(), table())
        child = parent.Split(0, -WORLD.rank)
        grandchild = child.Dup()
        parent.follow()
        for comm in (parent, grandchild):
            array = np.full(5, comm.rank)
            comm.Allreduce(MPI.IN_PLACE, array)
            comm.Free()
        child.Bcast(array)
        child.Free()
        if array[0] != sum(range(WORLD.size)):
            yield f"{array[0]}"


def check_lower_case() -> Iterator[str]:
    tuned = tune(WORLD, table())
    if tuned.bcast({"rank": tuned.rank}) != {"rank": 0} or tuned.allgather(1) != [1] * tuned.size:
        yield "objects"
    tuned.finalize()


def check_other_calls_than_the_known() -> Iterator[str]:
    """The same memory, looked at otherwise."""
    tuned, memory = tune(WORLD.Dup(), table()), np.zeros(8)
    for dtype, shape in (("f8", 8), ("i8", 8), ("i4", 16), ("u1", (8, 8)), ("f8", (2, 4))):
        for op in (MPI.SUM, MPI.MAX):
            view: Any = memory.view(dtype).reshape(shape)
            view[...] = WORLD.rank + 1
            tuned.Allreduce(None, view, op)
            expected = sum(range(WORLD.size + 1)) if op == MPI.SUM else WORLD.size
            if (view != expected).any():
                yield f"{dtype} {shape}: {view.ravel()[0]}, not {expected}"
            view[...] = WORLD.rank
            root = WORLD.size - 1
            tuned.Bcast(view, np.int64(root) if WORLD.rank else float(root))  # mpi4py takes both
            if (view != root).any():
                yield f"broadcast of {dtype} {shape}"
    tuned.Free()


def check_a_call_that_failed() -> Iterator[str]:
    """One rank sends too much: an error at the root, and the next call is as if nothing were."""
    tuned, into, p = tune(WORLD.Dup(), table()), np.zeros(1), WORLD.size
    if p < 3:
        return
    for given in (np.ones(2 if WORLD.rank == 1 else 1), np.ones(1), np.ones(1)):
        if WORLD.rank == 0:
            WORLD.Barrier()  # all that the others send is there
        got = outcome(lambda given=given: tuned.Reduce(given, into))
        if WORLD.rank != 0:
            WORLD.Barrier()
        expected = "fine" if len(given) == 1 else f"MPI error class {MPI.ERR_TRUNCATE}"
        too_much = WORLD.bcast(len(given), root=1) == 2
        if WORLD.rank == 0 and (got == "fine") == too_much:
            yield f"{got!r}, not {expected!r}"
        if WORLD.rank == 0 and not too_much and into[0] != p:
            yield f"{into[0]}, not {p}"
    tuned.Free()


class OnDevice:
    """Another library's device array, where CuPy is not installed: its pointer is all we know."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


def check_device_arrays_without_cupy() -> Iterator[str]:
    """MPI takes them, so nobody else is needed."""
    tuned, array = tune(WORLD.Dup()), np.full(4, WORLD.rank + 1.0)
    tuned.Bcast(OnDevice(array), WORLD.size - 1)
    tuned.Allreduce(MPI.IN_PLACE, OnDevice(array))
    if array.tolist() != [float(WORLD.size) ** 2] * 4:
        yield f"{array.tolist()}"
    tuned.Free()


def main() -> None:
    for name, check in [*globals().items()]:
        if name.startswith("check_"):
            try:
                wrong = list(check())
            except Exception as error:  # the other checks shall be seen as well
                wrong = [f"{type(error).__name__}: {error}"]
            found = [text for texts in WORLD.allgather(wrong) for text in texts]
            if WORLD.rank == 0:
                print(f"{name}: {'; '.join(found[:5]) or 'fine'}", flush=True)


main()
