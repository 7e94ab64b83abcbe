"""Run by mpirun: where a tuned communicator might be told from the plain one.

Prints `NAME: fine` or `NAME: what is wrong` for every check; NAME is the function's.
"""

import logging
import os
import pickle
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

os.environ["TUNER_CUDA_AWARE"] = "1"  # no check has a device: it is the user's word that counts

from tests.support.ladders import table_of
from tests.support.tensors import Tensor
from tuner import mpi_libraries
from tuner.base.errors import InputError, TunerError
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST
from tuner.core.table import NCCL, SCHEDULE, AlgorithmChoice, TuningTable
from tuner.runtime import private_comm, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import AlgorithmControl
from tuner.runtime.buffers import is_in_place, parse_buffer
from tuner.runtime.compatibility import datatype_of_code
from tuner.runtime.control_variables import ControlVariables
from tuner.runtime.nccl import RankGpu
from tuner.runtime.nvidia import has_driver
from tuner.runtime.schedule_cache import MAX_SCHEDULES

WORLD, LEVEL = MPI.COMM_WORLD, MPI.Query_thread()
OURS = {
    Collective.BCAST: ("binomial", "chain"),
    Collective.ALLREDUCE: ("recursive_doubling", "ring"),
    Collective.REDUCE: ("linear", "binomial"),
    Collective.ALLGATHER: ("ring", "ring"),
    Collective.REDUCE_SCATTER: ("ring", "ring"),
    Collective.GATHER: ("linear", "binomial"),
    Collective.SCATTER: ("linear", "binomial"),
}


def table() -> TuningTable:
    """One of our algorithms up to 16 bytes, another above."""
    return table_of(
        {
            (collective, WORLD.size): [
                (0, AlgorithmChoice(small, {}, SCHEDULE)),
                (16, AlgorithmChoice(large, {}, SCHEDULE)),
            ]
            for collective, (small, large) in OURS.items()
        },
        library=library_name(),
    )


def refused(comm: Any) -> bool:
    """Whether a broadcast is an error, of the class that mpi4py's null communicator has."""
    try:
        comm.Bcast(np.ones(4))
    except MPI.Exception as error:
        return error.Get_error_class() == MPI.ERR_COMM
    return False


def check_order_of_memory() -> Iterator[str]:
    """MPI sees memory, not indices: the second call must not copy otherwise than the first."""
    tuned = tune(WORLD.Dup(), table())
    line = np.arange(6.0)
    for send, shape in (
        (np.asfortranarray(line.reshape(2, 3)), (2, 3)),
        (line, (3, 2)),
        (line.reshape(1, 6), (6, 1)),
    ):
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
        plain = WORLD.Dup()
        tuned, array = tune(plain, table()), np.ones(4)
        for _ in range(2):
            tuned.Bcast(array)
        kept = SimpleNamespace(Bcast=tuned.Bcast)
        getattr(tuned, end)()
        if tuned != MPI.COMM_NULL or plain != MPI.COMM_NULL:
            yield f"{end} leaves a communicator"
        if not refused(kept) or not refused(tuned) or not refused(MPI.Intracomm(MPI.COMM_NULL)):
            yield f"{end}: a broadcast afterwards is not an error"


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
    if pickle.loads(pickle.dumps(tuned)) != WORLD or tuned != WORLD:
        yield "the world is another one"
    tuned.finalize()
    private = tune(WORLD.Dup(), table())
    try:
        pickle.dumps(private)
        yield "a private communicator travels"
    except ValueError:  # as mpi4py's
        pass
    private.Free()


def check_users_attributes() -> Iterator[str]:
    """Theirs are copied when they duplicate, and not by what goes on inside."""
    copied: list[int] = []

    def copy(comm: MPI.Comm, key: int, value: str) -> str:
        copied.append(key)
        return value

    key = MPI.Comm.Create_keyval(copy_fn=copy)
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
    cart: Any = tune(WORLD.Create_cart([WORLD.size], [True]), table())
    derived: list[tuple[str, Any, type[Any]]] = [
        ("cart", cart, MPI.Cartcomm),
        ("sub", cart.Sub([True]), MPI.Cartcomm),
    ]
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
    for _ in range(60):
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
    for count in (1, 2):  # in the first call under a rule all ranks wait for one another
        tuned.Reduce(np.ones(count), np.zeros(count))
    for given in (np.ones(2 if WORLD.rank == 1 else 1), np.ones(1), np.ones(1)):
        if WORLD.rank == 0:
            WORLD.Barrier()  # all that the others send is there
        wrong = ""
        try:
            tuned.Reduce(given, into)
        except MPI.Exception as error:
            wrong = str(error)
        if WORLD.rank != 0:
            WORLD.Barrier()
        too_much = WORLD.bcast(len(given), root=1) == 2
        if WORLD.rank == 0 and bool(wrong) != too_much:
            yield wrong or "no error"
        if WORLD.rank == 0 and not too_much and into[0] != p:
            yield f"{into[0]}, not {p}"
    tuned.Free()


def check_what_nobody_received() -> Iterator[str]:
    """One rank's buffer was refused: what was sent to it is no part of another collective."""
    tuned, fixed, p = tune(WORLD.Dup(), table()), np.zeros(1), WORLD.size
    fixed.flags.writeable = False
    refuses, refusal = WORLD.rank == p - 1, ""
    try:
        tuned.Scatter(np.ones(p), fixed if refuses else np.zeros(1))
    except (BufferError, ValueError) as error:
        refusal = str(error)
    array = np.full(1, 10.0 + WORLD.rank)
    tuned.Bcast(array)
    if bool(refusal) != refuses or array[0] != 10.0:
        yield f"{refusal or 'no refusal'}, then {array[0]}"
    # It stays: MPICH would give what is still on its way to the next communicator.


def check_a_refusal_on_a_duplicate_that_outlives_its_parent() -> Iterator[str]:
    """Keep what a living duplicate uses, also after a call of it failed, on all ranks or one."""
    fixed, array = np.zeros(4), np.ones(4)
    fixed.flags.writeable = False
    for refuses in (True, WORLD.rank == WORLD.size - 1):
        parent = tune(WORLD.Dup(), table())
        twin = parent.Dup()
        for _ in range(2):
            twin.Allreduce(array, np.zeros(4))
        if refuses and WORLD.rank < WORLD.size - 1:
            with suppress(BufferError, ValueError):
                twin.Allreduce(array, fixed)
        parent.Free()
        for _ in range(2):
            got = np.zeros(4)
            twin.Allreduce(array, got)
            if (got != WORLD.size).any():
                yield f"{got}"
        twin.Free()


def check_one_rank_is_refused_before_it_waits_for_others() -> Iterator[str]:
    """They may see a call of another size, for which there is another rule."""
    array, p, last = np.zeros(64), WORLD.size, WORLD.size - 1
    wrong, uneven = [array, 64, -1, MPI.DOUBLE], np.zeros(64 * p + 1)
    calls: list[tuple[Collective, str, tuple[Any, ...]]] = [
        (Collective.BCAST, "binomial", (wrong,)),
        (Collective.ALLREDUCE, "recursive_doubling", (array, wrong)),
        (Collective.ALLGATHER, "ring", (wrong, np.zeros(64 * p))),
        (Collective.ALLGATHER, "ring", (MPI.IN_PLACE, uneven)),
        (Collective.GATHER, "binomial", (wrong, None)),
        (Collective.SCATTER, "binomial", (None, wrong)),
        (Collective.SCATTER, "binomial", (uneven, array, last)),
        (Collective.SCATTER, "binomial", (None, array, last)),
    ]
    for collective, choice, arguments in calls:
        ladders = {(collective, p): [(0, AlgorithmChoice(choice))]}
        tuned, refusal = tune(WORLD.Dup(), table_of(ladders, library=library_name())), ""
        if WORLD.rank == last:
            try:
                with patch.object(
                    AlgorithmControl, "communicator", side_effect=InputError("not refused")
                ):
                    getattr(tuned, collective.spec.mpi)(*arguments)
            except (InputError, TypeError, ValueError) as error:
                refusal = str(error)
            if not refusal.startswith("message: "):
                yield f"{collective}: {refusal or 'no error'}"
        tuned.Free()


def check_datatypes_with_gaps() -> Iterator[str]:
    """Of every kind of number, more of them than libraries send without asking."""
    tuned, count, root = tune(WORLD.Dup(), table()), 3001, WORLD.size - 1
    for code in "?bBhHiIlLqQfdgFDG":
        number = datatype_of_code(code)
        apart = number.Create_resized(0, 2 * number.extent).Commit()
        array = np.zeros(2 * count, code)
        array[::2] = WORLD.rank == root
        tuned.Bcast([array, count, apart], root)
        if not array[::2].all() or array[1::2].any():
            yield f"{code}: {array[:8].tolist()}"
        apart.Free()
    tuned.Free()


def keep_first(arriving: Any, target: Any, _: MPI.Datatype) -> None:
    np.frombuffer(target, np.int64)[:] = np.frombuffer(arriving, np.int64)


def check_order_of_operands() -> Iterator[str]:
    """What changes it is for operators that commute, whether the library or we would change it."""
    first, pair = MPI.Op.Create(keep_first, commute=False), (Collective.ALLREDUCE, WORLD.size)
    ours, forced = [(0, AlgorithmChoice("ring", {}, SCHEDULE))], [(0, AlgorithmChoice("ring"))]
    default = [(0, AlgorithmChoice())]
    tables: list[dict[Any, Any]] = [
        {pair: ours},
        {pair: forced},
        {pair: default, (*pair, "commutative"): forced},
    ]
    for ladders in tables:
        tuned = tune(WORLD.Dup(), table_of(ladders, library=library_name()))
        got = np.zeros(1000, "i8")
        tuned.Allreduce(np.full(1000, WORLD.rank + 7), got, first)
        if (got != 7).any():
            yield f"{ladders}: {got.tolist()}"
        tuned.Free()
    first.Free()


def check_rules_that_one_rank_cannot_follow() -> Iterator[str]:
    """All ranks leave them to the library: one found another's choice in a control variable."""
    choice, library = AlgorithmChoice("binomial"), mpi_libraries.library_module(library_name())
    table = table_of({(Collective.BCAST, WORLD.size): [(0, choice)]}, library=library_name())
    variables, tuned = ControlVariables(), tune(WORLD.Dup(), table)
    forced = library.settings(Collective.BCAST, choice)
    name = next(name for name in forced if name.lower().endswith("_algorithm"))
    usual = variables.read(name)
    for rank in (0, WORLD.size - 1):
        if WORLD.rank == rank:
            variables.write(name, forced[name])
        actions = tuned.follow().table_for(Collective.BCAST).actions
        variables.write(name, usual)
        if any(action != tuned.plain.Bcast for action in actions):
            yield f"not left where rank {rank} cannot follow it"
    tuned.Free()


def check_memory_is_what_rank_0_says() -> Iterator[str]:
    for first, others in (("tape", HOST), (HOST, "tape")):
        comm, told = WORLD.Dup(), ""
        try:
            tune(comm, memory=others if WORLD.rank else first).Free()
        except InputError as error:
            told = str(error)
            comm.Free()
        if ("tape" in told) != (first == "tape"):
            yield f"{first} at rank 0, else {others}: {told or 'no error'}"


class Sayings(logging.Handler):
    """What the log says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def check_what_is_left_is_said_once() -> Iterator[str]:
    """However many communicators leave it."""
    log, said = logging.getLogger("tuner"), Sayings()
    log.addHandler(said)
    unknown = table_of(
        {(Collective.BCAST, WORLD.size): [(0, AlgorithmChoice("walk", {}, SCHEDULE))]},
        library=library_name(),
    )
    tuned = tune(WORLD.Dup(), unknown)
    for _ in range(3):
        twin = tuned.Dup()
        twin.Bcast(np.zeros(3))
        twin.Free()
    tuned.Free()
    log.removeHandler(said)
    if len(said.lines) != (WORLD.rank == 0):
        yield f"{said.lines}"


class Whole:
    """No integer, but mpi4py finds one in it."""

    def __int__(self) -> int:
        return 1


def check_what_the_table_leaves_alone() -> Iterator[str]:
    """A collective for which it changes nothing costs nothing: it is the plain communicator's."""
    pair = (Collective.BCAST, WORLD.size)
    for choice, same in (
        (AlgorithmChoice("binomial", {}, SCHEDULE), False),
        (AlgorithmChoice("default"), True),
    ):
        tuned = tune(WORLD.Dup(), table_of({pair: [(0, choice)]}, library=library_name()))
        for method, alone in (("Bcast", same), ("Allreduce", True), ("Gather", True)):
            found = getattr(tuned, method) == getattr(tuned.plain, method)
            if found != (alone and not has_driver()):
                yield f"{method} beside {choice}: {found}"
        tuned.Free()
        if not refused(tuned):
            yield f"{choice} was called on a communicator that is gone"


def check_what_is_no_communicator() -> Iterator[str]:
    for wrong in (None, 3, MPI.GROUP_EMPTY):
        try:
            yield f"{wrong!r} is taken for {tune(wrong)!r}"
        except InputError as error:
            if "communicator" not in str(error):
                yield str(error)
    if tune(MPI.COMM_NULL) != MPI.COMM_NULL:
        yield "the null communicator is another one"


def check_roots() -> Iterator[str]:
    """Whatever mpi4py takes for a rank is that rank, also where its arguments were seen before."""
    tuned: Any = tune(WORLD.Dup(), table())

    def results(comm: Any, root: Any) -> list[Any]:
        ends: list[Any] = []
        for name in ("Bcast", "Reduce", "Gather", "Scatter"):
            mine, whole = np.arange(4) + WORLD.rank, np.arange(4 * WORLD.size) - WORLD.rank
            into = np.zeros_like(whole if name == "Gather" else mine)
            given = {"Bcast": (mine,), "Scatter": (whole, into)}.get(name, (mine, into))
            try:
                getattr(comm, name)(*given, root=root)
                ends.append((mine.tolist(), into.tolist()))
            except TypeError as error:
                ends.append(str(error))
        return ends

    roots: list[Any] = [1, np.array(1), 1.9, np.float32(1.5), True, Whole(), [1], {}, "1", 1 + 0j]
    for root in roots:
        if results(tuned, root) != results(WORLD, root):
            yield f"{root!r}: {results(tuned, root)}, not {results(WORLD, root)}"
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


def check_device_arrays_that_nobody_here_can_copy() -> Iterator[str]:
    """An MPI library may take them without saying so: its own calls are left to it."""
    forced = {
        (Collective.BCAST, WORLD.size): [(0, AlgorithmChoice()), (64, AlgorithmChoice("binomial"))]
    }
    with ExitStack() as patched:
        patched.enter_context(
            patch("tuner.runtime.cuda_support.is_gpu_possible", return_value=True)
        )
        for module in ("dispatch", "backend"):
            for name in ("is_cuda_aware", "has_cuda_messages"):
                patched.enter_context(patch(f"tuner.runtime.{module}.{name}", return_value=False))
        for rules in (None, table_of(forced, library=library_name())):
            tuned, array = tune(WORLD.Dup(), rules, verbose=rules is not None), np.ones(4)
            for show in (OnDevice, lambda array: Tensor(array, 10)):
                array[...] = WORLD.rank + 1.0
                tuned.Bcast(show(array), WORLD.size - 1)
                tuned.Allreduce(MPI.IN_PLACE, show(array))
                if array.tolist() != [float(WORLD.size) ** 2] * 4:
                    yield f"{array.tolist()}"
            tuned.Free()


def check_device_arrays_of_derived_communicators_without_cupy() -> Iterator[str]:
    """The library makes their calls until tuning them pays, and may take what we cannot copy."""
    forced = {(Collective.BCAST, WORLD.size): [(0, AlgorithmChoice("binomial"))]}
    with ExitStack() as patched:
        patched.enter_context(
            patch("tuner.runtime.cuda_support.is_gpu_possible", return_value=True)
        )
        for module in ("dispatch", "backend", "derived_communicators"):
            patched.enter_context(patch(f"tuner.runtime.{module}.is_cuda_aware", lambda: False))
        patched.enter_context(patch.dict(os.environ, {"TUNER_TUNE_AFTER": "9s"}))
        tuned, array = tune(WORLD.Dup(), table_of(forced, library=library_name())), np.ones(4)
        derived = tuned.Dup()
        for _ in range(3):
            array[...] = WORLD.rank + 1.0
            derived.Bcast(OnDevice(array), WORLD.size - 1)
            if array.tolist() != [float(WORLD.size)] * 4:
                yield f"{array.tolist()}"
        derived.Free()
        tuned.Free()


def check_that_the_call_that_tunes_is_recorded_once() -> Iterator[str]:
    """The library makes the first of five calls, the second one tunes; all are recorded once."""
    binomial = AlgorithmChoice("binomial", {}, SCHEDULE)
    rules = table_of({(Collective.BCAST, WORLD.size): [(0, binomial)]}, library=library_name())
    with patch.dict(os.environ, {"TUNER_TUNE_AFTER": "1ns"}):
        tuned = tune(WORLD.Dup(), rules, feedback=True)
        derived = tuned.Dup()
    for _ in range(5):
        derived.Bcast(np.zeros(8), 0)
    recorded = [(one.kind.algorithm, one.calls) for one in derived._terms.ring.summaries()]
    if recorded != [("binomial", 4), ("default", 1)]:
        yield f"{recorded}"
    derived.Free()
    tuned.Free()


def check_dlpack() -> Iterator[str]:
    """Some ranks bring tensors and some numpy's arrays: all must see calls of the same size."""
    tuned, brought = tune(WORLD.Dup(), table()), WORLD.rank == 0

    def results(comm: Any, dtype: str, as_tensor: bool) -> list[Any]:
        whole = (np.arange(3 * WORLD.size) + WORLD.rank).astype(dtype)
        into, part = np.zeros_like(whole), np.zeros(3, dtype)
        show = Tensor if as_tensor else np.asarray
        comm.Bcast(show(whole), 1)
        comm.Allgather(show(whole[:3]), show(into))
        if dtype != "?":
            comm.Allreduce(show(whole), show(into))
            comm.Reduce(show(whole), show(into) if brought else None)
            comm.Reduce_scatter_block(MPI.IN_PLACE, show(whole))
        comm.Gather(show(whole[:3]), show(into) if brought else None)
        comm.Scatter([show(into), 3] if brought else None, show(part))
        return [whole.tolist(), into.tolist(), part.tolist()]

    for dtype in ("f4", "f8", "i2", "i8", "u1", "F", "D", "?"):
        for name, as_tensor in (("all", True), ("rank 0", brought), ("the others", not brought)):
            got, expected = results(tuned, dtype, as_tensor), results(WORLD, dtype, False)
            if got != expected:
                yield f"{dtype}, tensors of {name}: {got}, not {expected}"
    tuned.Free()


def check_dlpack_of_elements_without_datatype() -> Iterator[str]:
    """Which mpi4py takes for bytes: bfloat16, beside another rank's bytes."""
    tuned = tune(WORLD.Dup(), table())
    for last in (False, True):
        sender = WORLD.rank == (WORLD.size - 1 if last else 0)
        array = np.full(20, WORLD.rank + 1, "i2")
        tuned.Bcast(Tensor(array, code=4) if sender else array.view("u1"), WORLD.size - 1)
        if set(array.tolist()) != {WORLD.size}:
            yield f"{array.tolist()}"
    tuned.Free()


def check_dlpack_of_devices_without_cupy() -> Iterator[str]:
    """MPI takes them, whatever numpy thinks of them; all ranks must see calls of the same size."""
    forced = {
        (Collective.BCAST, WORLD.size): [(0, AlgorithmChoice()), (16, AlgorithmChoice("binomial"))]
    }
    tuned = tune(WORLD.Dup(), table_of(forced, library=library_name()))
    for device in (2, 3, 10, 11, 13):
        array = np.full(4, WORLD.rank + 1.0)
        tuned.Bcast(Tensor(array, device) if WORLD.rank == 0 else array, WORLD.size - 1)
        tuned.Allreduce(MPI.IN_PLACE, Tensor(array, device))
        if array.tolist() != [float(WORLD.size) ** 2] * 4:
            yield f"device type {device}: {array.tolist()}"
    tuned.Free()


def check_methods_that_were_kept() -> Iterator[str]:
    """A program may hold on to a method while the table changes, and when it is given up."""
    for choice in (AlgorithmChoice("binomial", {}, SCHEDULE), AlgorithmChoice("binomial")):
        tuned = tune(
            WORLD.Dup(),
            table_of({(Collective.BCAST, WORLD.size): [(0, choice)]}, library=library_name()),
        )
        kept = tuned.Bcast
        for end in (lambda: None, tuned.refresh, tuned.finalize):
            end()
            array = np.full(3, WORLD.rank)
            kept(array, 1)
            if array.tolist() != [1] * 3:
                yield f"{choice}: {array.tolist()}"
        tuned.Free()


def check_classes_of_the_program() -> Iterator[str]:
    """Their methods are called each time, also where ours know a shorter way."""
    parent: Any = tune(WORLD.Dup(), table())
    roots: list[int] = []

    def bcast(self: Any, buf: Any, root: int = 0) -> None:
        roots.append(root)
        type(parent).Bcast(self, buf, root)

    own = type("Own", (type(parent),), {"Bcast": bcast})
    comm: Any = own(parent)
    for root in range(WORLD.size):
        comm.Bcast(np.zeros(3), root)
    if roots != [*range(WORLD.size)]:
        yield f"{roots}"
    parent.Free()


class Named(MPI.Intracomm):
    """A program's class, made of more than a communicator."""

    def __new__(cls, comm: MPI.Intracomm, name: str) -> "Named":
        made = super().__new__(cls, comm)
        made.name_of_mine = [name]
        return made

    name_of_mine: list[str]


def check_classes_that_are_made_of_more() -> Iterator[str]:
    """What they keep is there, and nobody makes another of them."""
    named = Named(WORLD.Dup(), "mine")
    tuned: Any = tune(named, table())
    if not isinstance(tuned, Named) or tuned.name_of_mine is not named.name_of_mine:
        yield f"{vars(tuned)}"
    tuned.Free()


class Listed(MPI.Intracomm):
    """A program's class, which lists what it is called for."""

    called: ClassVar[list[str]] = []

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:
        self.called.append("Allreduce")
        super().Allreduce(sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        self.called.append("Split")
        return super().Split(color, key)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        self.called.append("bcast")
        return super().bcast(obj, root)

    def allgather(self, sendobj: Any) -> list[Any]:
        self.called.append("allgather")
        return super().allgather(sendobj)


def check_classes_of_the_program_hear_of_its_own_calls_alone() -> Iterator[str]:
    """Keep what the ranks tell one another apart from the calls that a program's class sees."""
    Listed.called.clear()
    tuned: Any = tune(Listed(WORLD.Dup()), table())
    for comm in (tuned, tuned.Dup(), tuned.Dup()):
        comm.Bcast(np.zeros(3))
    tuned.follow()
    tuned.refresh()
    if not isinstance(tuned, Listed) or Listed.called:
        yield f"{type(tuned)}: {Listed.called}"
    tuned.Free()


def check_constants_are_not_freed() -> Iterator[str]:
    """Let `free` end at most an object for a constant, as in mpi4py, and `Free` be refused."""
    for plain, same in ((WORLD, WORLD), (MPI.Intracomm(WORLD), MPI.Intracomm(WORLD))):
        tuned = tune(same, table())
        with suppress(MPI.Exception):
            tuned.Free()
        got = np.zeros(4)
        for _ in range(2):
            tuned.Allreduce(np.ones(4), got)
        if tuned.table is None or (got != WORLD.size).any():
            yield f"{got}"
        plain.free()
        tuned.free()
        if (tuned == MPI.COMM_NULL) != (plain == MPI.COMM_NULL):
            yield f"free() leaves {tuned}, not {plain}"
        if tuned != MPI.COMM_NULL:
            tuned.finalize()


def check_small_numbers_are_no_buffers() -> Iterator[str]:
    """Refuse values of the type of mpi4py's names for no memory that are none of these."""
    for number in (5, 1234):
        if parse_buffer([number, 1, MPI.INT], writable=False) is not None or is_in_place(number):
            yield f"{number} is taken for memory"
    for name in (None, MPI.BOTTOM):
        if parse_buffer([name, 0, MPI.INT], writable=False) is None:
            yield f"{name} is refused"


def check_nccl_that_fails_on_one_rank() -> Iterator[str]:
    """No rank waits for one that could not even ask; CuPy is not installed here."""

    def place() -> RankGpu:
        return RankGpu(str(WORLD.rank), "0")

    last, gone = WORLD.rank == WORLD.size - 1, OSError("gone")
    steps: list[dict[str, Any]] = [
        {"cuda_device": gone if last else InputError("no GPU")},
        {"_local_gpu": place},  # rank 0 cannot import CuPy
        {
            "_local_gpu": place,
            "_unique_id": lambda: b"name",
            "NcclComm.__init__": gone if last else RuntimeError("refused"),
        },
    ]
    for effects in steps:
        with ExitStack() as patched:
            for name, effect in effects.items():
                patched.enter_context(patch(f"tuner.runtime.nccl.{name}", side_effect=effect))
            by_nccl = [(0, AlgorithmChoice("ring", {}, NCCL))]
            ladders = {(Collective.ALLREDUCE, WORLD.size): by_nccl}
            tuned = tune(WORLD.Dup(), table_of(ladders, library=library_name()))
            got = np.zeros(4)
            tuned.Allreduce(np.ones(4), got)
            if tuned.table is None or (got != WORLD.size).any():
                yield f"{effects}: {got}"
            tuned.Free()


def check_communicators_that_no_rule_changes_are_the_librarys_own() -> Iterator[str]:
    """Nothing is in the way of a call where no rule departs."""
    rules = {(Collective.BCAST, WORLD.size): [(0, AlgorithmChoice())]}
    tuned = tune(WORLD.Dup(), table_of(rules, library=library_name()))
    twin = tuned.Dup()
    if not isinstance(twin.Bcast, type(MPI.COMM_WORLD.Bcast)):
        yield "not the library's own method"
    for comm in (twin, tuned):
        comm.Free()


def check_ladders_that_one_rank_cannot_make() -> Iterator[str]:
    """All ranks leave their calls to the library, whenever that happens."""
    for step in ("follow", "refresh", "finalize"):
        tuned, got = tune(WORLD.Dup(), table()), np.zeros(4)
        tuned.Allreduce(np.ones(4), got)
        with ExitStack() as patched:
            if WORLD.rank == WORLD.size - 1:
                lost = patch("tuner.runtime.dispatch.DispatchTable", side_effect=MemoryError())
                patched.enter_context(lost)
            getattr(tuned, step)()
        for _ in range(2):
            tuned.Allreduce(np.ones(4), got)
            if (got != WORLD.size).any():
                yield f"{step}: {got}"
        tuned.Free()


def check_communicators_without_rules_are_silent() -> Iterator[str]:
    """A program may derive thousands: what `tune` says of its own communicator is enough."""
    log, said = logging.getLogger("tuner"), Sayings()
    tuned = tune(WORLD.Dup(), table())
    log.addHandler(said)
    for size in range(1, WORLD.size):
        part = tuned.Split(WORLD.rank < size)
        part.Bcast(np.zeros(3))
        part.Free()
    log.removeHandler(said)
    tuned.Free()
    if said.lines:
        yield f"{said.lines}"


def resident() -> int:
    """MiB of this program that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def check_memory_of_many_counts() -> Iterator[str]:
    """Of all that they need beside the buffers, one stays."""
    tuned, whole = tune(WORLD.Dup(), table()), np.ones(1 << 19)
    into, before = np.zeros_like(whole), resident()
    for less in range(0, 30 * 64, 64):
        tuned.Allreduce(whole[less:], into[less:])
        if WORLD.rank == 0:
            tuned.Reduce(whole[less:], into[less:], root=1)
        else:
            tuned.Reduce(whole[less:], into[less:] if WORLD.rank == 1 else None, root=1)
        if WORLD.rank == 1 and (into[less:] != WORLD.size).any():
            yield f"{into[-1]}"
    if resident() - before > 20:
        yield f"{resident() - before} MiB more"
    tuned.Free()


def check_more_buffers_than_stay_bound() -> Iterator[str]:
    """The first ones are bound again, to memory that has grown meanwhile."""
    tuned = tune(WORLD.Dup(), table())
    arrays = [np.zeros(5 + number) for number in range(MAX_SCHEDULES + 6)]
    for lap in range(2):
        for number, array in enumerate(arrays):
            array[...] = WORLD.rank + number + lap
            tuned.Allreduce(MPI.IN_PLACE, array)
            expected = sum(range(WORLD.size)) + WORLD.size * (number + lap)
            if (array != expected).any():
                yield f"{array}, not {expected}"
            array[...] = WORLD.rank
            tuned.Bcast(array, 1)
            if (array != 1).any():
                yield f"{array} of rank 1"
    tuned.Free()


def check_operators_of_the_same_name() -> Iterator[str]:
    """MPI gives a freed operator's handle to the next one, which may need the order kept."""

    def take_first(arriving: Any, target: Any, _: MPI.Datatype) -> None:
        np.frombuffer(target, np.uint8)[...] = np.frombuffer(arriving, np.uint8)

    tuned, array = tune(WORLD.Dup(), table()), np.zeros(12)
    for commute in (True, False):
        op = MPI.Op.Create(take_first, commute)
        for _ in range(2):
            array[...] = WORLD.rank
            tuned.Allreduce(MPI.IN_PLACE, array, op)
        op.Free()
    if array.any():
        yield f"{array} of rank 0"
    tuned.Free()


def check_communicators_run_out() -> Iterator[str]:
    """MPICH has few: the library decides where it has none for us, or we hold many already."""
    log, said = logging.getLogger("tuner"), Sayings()
    log.addHandler(said)
    before, most = len(private_comm.ACQUIRED), private_comm.MAX_COMMS
    parent = tune(WORLD.Dup(), table())
    private_comm.MAX_COMMS = 2
    several, none_left = [parent.Dup() for _ in range(4)], parent.Dup()
    right = [all_equal(comm) for comm in several]
    held = list[MPI.Intracomm]()
    with suppress(MPI.Exception):
        while "mpich" in library_name():
            held.append(WORLD.Dup())
    private_comm.MAX_COMMS = most
    again = tune(none_left.plain, table())
    right += [all_equal(none_left), all_equal(again)]
    again.finalize()
    for comm in (*held, *several, none_left, parent):
        comm.Free()
    right.append(len(private_comm.ACQUIRED) == before)
    log.removeHandler(said)
    reasons = ("2 communicators follow", "makes no more communicators")[: 1 + bool(held)]
    found = [reason for reason in reasons for line in said.lines if reason in line]
    if not all(right) or {*found} != {*(reasons if WORLD.rank == 0 else ())}:
        yield f"{right}, {said.lines}"


def all_equal(comm: Any) -> bool:
    """Whether a broadcast is one."""
    array = np.full(100, comm.rank)
    comm.Bcast(array, 1)
    return bool((array == 1).all())


def check_level_of_threads() -> Iterator[str]:
    """Opening control variables must not take from the program what it asked MPI for."""
    forced = table_of(
        {(Collective.BCAST, WORLD.size): [(0, AlgorithmChoice("binomial"))]}, library=library_name()
    )
    tuned = tune(WORLD.Dup(), forced)
    tuned.Bcast(np.zeros(3))
    tuned.Free()
    if (MPI.Query_thread(), MPI.Is_thread_main()) != (LEVEL, True):
        yield f"level {MPI.Query_thread()}, not {LEVEL}"


ONLY = sys.argv[1:]


def main() -> None:
    for name, check in [*globals().items()]:
        if name.startswith("check_") and (not ONLY or name in ONLY):
            try:
                wrong = list(check())
            except (AttributeError, MPI.Exception, TunerError, TypeError, ValueError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            found = [text for texts in WORLD.allgather(wrong) for text in texts]
            if WORLD.rank == 0:
                print(f"{name}: {'; '.join(found[:5]) or 'fine'}", flush=True)


main()
