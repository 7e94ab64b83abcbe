"""Run by mpirun: whatever fails in `tune`, on one rank or on all, a program gets its results.

For each failure every rank prints nothing, and rank 0 `NAME PLACE: fine`, or what was different.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from tests.support.ladders import table_of
from tests.support.mpi4py_suite import tables
from tuner.core.collective import Collective
from tuner.core.table import NCCL, AlgorithmChoice, TuningTable, table_record, write_table
from tuner.runtime import algorithm_control, cuda_support, nvidia, tune
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import AlgorithmControl
from tuner.runtime.consensus import Consensus
from tuner.runtime.private_comm import create_collectively

WORLD = MPI.COMM_WORLD
LAST = WORLD.size - 1
PLACE = Path(WORLD.bcast(tempfile.mkdtemp(prefix="tuner-") if WORLD.rank == 0 else None))
MIXED = tables(library_name(), WORLD.size)["mixed"]
# Each failure reads the table anew, so it has no rules for other numbers of ranks.
RULES = tuple(rule for rule in MIXED.rules if rule.key.p == WORLD.size)
TABLE = TuningTable(MIXED.cluster, MIXED.library, RULES)
FILE = PLACE / "table.json"
COUNTS = (1, 3, 11, 40)  # of doubles: they cross the steps of the table
VARIABLES = (
    "TUNER_TABLE",
    "TUNER_SERVICE",
    "TUNER_CLUSTER",
    "TUNER_TOKEN",
    "TUNER_TOKEN_FILE",
    "TUNER_TIMEOUT",
    "TUNER_FEEDBACK",
    "TUNER_CACHE",
    "no_proxy",
)
NOBODY = "http://127.0.0.1:9"  # the discard port: nobody answers
Failure = Callable[[], AbstractContextManager[Any]]


class Lines(logging.Handler):
    """Keeps what is written in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def results(comm: Any) -> list[bytes]:
    """Return what every collective gives on this rank, several times each."""
    found = []
    for count in COUNTS:
        for root in (0, comm.size - 1):
            found += [made.tobytes() for made in rooted(comm, count, root)]
        found += [made.tobytes() for made in unrooted(comm, count)]
    return found


def rooted(comm: Any, count: int, root: int) -> Iterator[np.ndarray]:
    mine = np.arange(count, dtype=float) + 100 * comm.rank
    sent, total, all_of_it = mine.copy(), np.zeros(count), np.zeros((comm.size, count))
    comm.Bcast(sent, root)
    comm.Reduce(mine, total, MPI.SUM, root)
    comm.Gather(mine, all_of_it, root)
    part = np.zeros(count)
    comm.Scatter(all_of_it, part, root)
    yield from (sent, total, all_of_it, part)


def unrooted(comm: Any, count: int) -> Iterator[np.ndarray]:
    mine = np.arange(count, dtype=float) + 100 * comm.rank
    total, all_of_it = np.zeros(count), np.zeros((comm.size, count))
    share = np.zeros(count)
    comm.Allreduce(mine, total)
    comm.Allreduce(MPI.IN_PLACE, total, MPI.MAX)
    comm.Allgather(mine, all_of_it)
    comm.Reduce_scatter_block(all_of_it, share)
    yield from (total, all_of_it, share)


def raising(target: str, failure: BaseException) -> Failure:
    """Return a failure in which a function of ours, or one that it calls, raises this."""
    return lambda: patch(target, side_effect=failure)


def environment(**values: str) -> Failure:
    """Return a failure in which variables have these values, and TUNER_TABLE has none."""
    return lambda: patch.dict(os.environ, {"TUNER_TABLE": "", **values})


def content(text: bytes) -> Failure:
    """Return a failure in which the table's file holds this."""

    @contextmanager
    def failure() -> Iterator[None]:
        path = PLACE / f"damaged-{WORLD.rank}.json"
        path.write_bytes(text)
        with patch.dict(os.environ, {"TUNER_TABLE": str(path)}):
            yield

    return failure


def other_table(table: TuningTable) -> Failure:
    """Return a failure in which the table is another one."""

    @contextmanager
    def failure() -> Iterator[None]:
        path = PLACE / f"other-{WORLD.rank}.json"
        write_table(table, path)
        with patch.dict(os.environ, {"TUNER_TABLE": str(path)}):
            yield

    return failure


def missing(*modules: str) -> Failure:
    """Return a failure in which modules cannot be imported."""

    @contextmanager
    def failure() -> Iterator[None]:
        with patch.dict(sys.modules, dict.fromkeys(modules)):
            yield

    return failure


@contextmanager
def directory_is_gone() -> Iterator[None]:
    usual, gone = Path.cwd(), Path(tempfile.mkdtemp())
    os.chdir(gone)
    gone.rmdir()
    try:
        with patch.dict(os.environ, {"TUNER_TABLE": "table.json"}):
            yield
    finally:
        os.chdir(usual)


@contextmanager
def damaged_cache() -> Iterator[None]:
    from tuner.runtime import table_cache
    from tuner.runtime.table_source import resolve_request

    place = PLACE / f"cache-{WORLD.rank}"
    place.mkdir(exist_ok=True)
    with patch.dict(
        os.environ, {"TUNER_CACHE": str(place), "TUNER_SERVICE": NOBODY, "TUNER_TABLE": ""}
    ):
        table_cache.cache_path(resolve_request(library_name())).write_bytes(b"\x00{damaged")
        yield


@contextmanager
def stream_is_closed() -> Iterator[None]:
    with Path(os.devnull).open("w") as closed:
        pass
    with patch.object(sys, "stderr", closed), content(b"")():
        yield


@contextmanager
def log_raises() -> Iterator[None]:
    handler = Lines()
    vars(handler)["emit"] = lambda _: 1 // 0
    log = logging.getLogger("tuner")
    log.addHandler(handler)
    try:
        with content(b"no table")():
            yield
    finally:
        log.removeHandler(handler)


def in_version(version: int) -> bytes:
    import json

    return json.dumps({**table_record(TABLE), "version": version}).encode()


def whole() -> bytes:
    import json

    return json.dumps(table_record(TABLE)).encode()


def by_nccl() -> TuningTable:
    choice = [(0, AlgorithmChoice("ring", {}, NCCL))]
    keys = [(collective, WORLD.size) for collective in Collective]
    return table_of(dict.fromkeys(keys, choice), library=library_name())


def lost(control: AlgorithmControl, settings: object) -> MPI.Intracomm:
    """Make a communicator as the others do, and fail after that."""
    control._comm.Dup().Free()
    raise RAISED


def made_and_lost(consensus: Consensus, make: Callable[[], MPI.Comm], said: str = "") -> MPI.Comm:
    """The same, for communicators of ours."""
    create_collectively(consensus, make, said).Free()
    raise RAISED


RAISED = MPI.Exception(MPI.ERR_NO_MEM)
FAILURES: dict[str, Failure] = {
    # what a rank is asked for
    "no table is named": environment(),
    "no such file": environment(TUNER_TABLE=str(PLACE / "nothing.json")),
    "a directory": environment(TUNER_TABLE=str(PLACE)),
    "a name that is none": environment(TUNER_TABLE="x" * 5000),
    "no such working directory": directory_is_gone,
    "a timeout that is none": environment(TUNER_TABLE=str(FILE), TUNER_TIMEOUT="soon"),
    "a service that is no address": environment(TUNER_SERVICE="gopher:/x y"),
    "nobody serves": environment(TUNER_SERVICE=NOBODY, TUNER_TIMEOUT="1s"),
    "a token of two lines": environment(TUNER_SERVICE=NOBODY, TUNER_TOKEN="a\nb"),
    "no file of the token": environment(TUNER_SERVICE=NOBODY, TUNER_TOKEN_FILE="/nothing"),
    # what it gets
    "an empty file": content(b""),
    "half a file": content(whole()[: len(whole()) // 2]),
    "a file that is no text": content(bytes(range(256))),
    "a file of other JSON": content(b'{"kind": "something"}'),
    "a file nested too deeply": content(b"[" * 200_000),
    "a table of another version": content(in_version(99)),
    "an algorithm that is none": content(whole().replace(b'"ring"', b'"rung"')),
    "a table of another library": other_table(table_of({}, library="openmpi 1.0.0")),
    "a table without rules": other_table(table_of({}, library=library_name())),
    "a table for NCCL": other_table(by_nccl()),
    "a damaged copy": damaged_cache,
    "no place for copies": environment(TUNER_SERVICE=NOBODY, TUNER_CACHE="/dev/null/x"),
    "permission is refused": raising(
        "tuner.runtime.table_loading._open_without_waiting", PermissionError(13, "refused")
    ),
    "the disk fails": raising(
        "tuner.runtime.table_loading._open_without_waiting", OSError(5, "Input/output error")
    ),
    # what it has
    "no module of ours": missing("tuner.runtime.dispatcher"),
    "no module of the system's": missing("urllib.request", "tuner.runtime.service_client"),
    "no threads": raising("threading.Thread.start", RuntimeError("can't start new thread")),
    "a library without a name": raising("tuner.runtime.agreement.MPI.Get_library_version", RAISED),
    "a library that nobody knows": lambda: patch(
        "tuner.runtime.table_binding.library_name", return_value="other 1"
    ),
    "no such variable of the library": raising(
        "tuner.runtime.control_variables.ControlVariables.read", KeyError("no variable")
    ),
    "a variable that cannot be written": raising(
        "tuner.runtime.control_variables.ControlVariables.write", PermissionError("read only")
    ),
    "no interface to variables": raising(
        "tuner.runtime.algorithm_control._variables", OSError("undefined symbol: MPI_T_init_thread")
    ),
    "no settings": raising(
        f"tuner.mpi_libraries.{library_name().partition(' ')[0]}.settings", TypeError("settings")
    ),
    "no driver": raising("tuner.runtime.fast_path.has_driver", OSError("cannot load")),
    "no word about devices": raising("tuner.runtime.dispatch.is_cuda_aware", OSError("no")),
    "no word about messages": raising("tuner.runtime.dispatch.has_cuda_messages", OSError("no")),
    # what it needs
    "no memory for the table": raising("tuner.runtime.table_source.parse_table", MemoryError()),
    "no memory for the rules": raising("tuner.runtime.table_binding.matching_rules", MemoryError()),
    "no memory for schedules": raising("tuner.runtime.backend.build", MemoryError()),
    "no memory for buffers": raising("tuner.runtime.memory.HostMemory.empty", MemoryError()),
    "no memory for ladders": raising("tuner.runtime.dispatch.DispatchTable", MemoryError()),
    "no memory for what is bound": raising(
        "tuner.runtime.schedule_cache.PersistentSchedule", MemoryError()
    ),
    "no memory for times": raising("tuner.runtime.dispatcher.CallRing", MemoryError()),
    "no communicator": lambda: patch("tuner.runtime.private_comm.MAX_COMMS", 0),
    "a communicator that is lost": lambda: patch(
        "tuner.runtime.algorithm_control.AlgorithmControl._duplicate_now", lost
    ),
    "a split that fails": lambda: patch(
        "tuner.runtime.private_comm.create_collectively", made_and_lost
    ),
    "no datatype": raising("tuner.runtime.schedule_call._has_operator", KeyError("datatype")),
    "no description of a buffer": raising(
        "tuner.runtime.schedule_call.contiguous_view", TypeError("?")
    ),
    "no bytes of a buffer": raising("tuner.runtime.packing.pack_buffer", BufferError("locked")),
    # beside it
    "a log that raises": log_raises,
    "no standard error": stream_is_closed,
}


def differs(failure: Failure, here: bool, expected: list[bytes]) -> str:
    """Return what is different under a failure, "" for nothing."""
    algorithm_control._variables.cache_clear()
    cuda_support.is_cuda_aware.cache_clear()
    nvidia.has_driver.cache_clear()
    plain, said = WORLD.Dup(), Lines()
    logging.getLogger("tuner").addHandler(said)
    try:
        with ExitStack() as injected:
            if here:
                injected.enter_context(failure())
            comm = tune(plain, feedback=True, verbose=False)
            found = results(comm)
            copy = comm.Dup()
            again = results(copy)
            copy.Free()
            comm.finalize()
            comm.Free()
    finally:
        logging.getLogger("tuner").removeHandler(said)
    broken = [line for line in said.lines if "\n" in line or not line.startswith("tuner: ")]
    if broken:
        return f"the log says {broken}"
    if found != expected or again != expected:
        return "other results"
    return "" if comm == MPI.COMM_NULL else "the communicator is there after Free"


def checked(failure: Failure, here: bool, expected: list[bytes]) -> str:
    """Return the same, or what was raised."""
    try:
        return differs(failure, here, expected)
    except Exception as reason:  # noqa: BLE001 - nothing may be raised
        import traceback

        traceback.print_exc()
        return f"raised {reason!r}"


def main() -> None:
    if WORLD.rank == 0:
        write_table(TABLE, FILE)
    WORLD.Barrier()
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ["TUNER_TABLE"], os.environ["no_proxy"] = str(FILE), "*"
    logging.getLogger("tuner").propagate = False
    expected = results(WORLD)
    for name, failure in FAILURES.items():
        for place, here in (("last rank", WORLD.rank == LAST), ("all ranks", True)):
            if WORLD.rank == 0 and len(sys.argv) > 1:
                print(name, place, file=sys.stderr, flush=True)
            told = WORLD.gather(checked(failure, here, expected))
            if told is not None:
                wrong = [f"rank {rank}: {one}" for rank, one in enumerate(told) if one]
                print(f"{name}, {place}: {'; '.join(wrong) or 'fine'}", flush=True)


main()
