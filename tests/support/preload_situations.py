"""Situations in which all lines of the preloaded library are reached."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from tests.support.ladders import CLUSTER, table_of
from tests.support.mpich_suite import preload_tables
from tests.support.preload_code import Situation, TableWriter
from tuner.algorithms import registry
from tuner.core.collective import Collective
from tuner.core.schedule import ARRIVING_OP_DST, DST_OP_ARRIVING, Round, Schedule, make_schedule
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.preload.flat_table import FORMAT, HEADER, write_flat_table

BINOMIAL = AlgorithmChoice("binomial", {}, "schedule")


def known_table(name: str) -> TableWriter:
    """Return what writes one of `preload_tables`."""

    @cache
    def content(library: str, ranks: int) -> bytes:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "flat"
            assert write_flat_table(preload_tables(library, ranks)[name], path) == []
            return path.read_bytes()

    def write(library: str, ranks: int, path: Path) -> None:
        path.write_bytes(content(library, ranks))

    return write


SCHEDULE, FORCED, MIXED = map(known_table, ("schedule", "forced", "mixed"))


def with_one_forced(library: str, ranks: int, path: Path) -> None:
    """Write a table that forces one algorithm of Open MPI."""
    rungs = [(0, AlgorithmChoice("chain"))]
    table = table_of({(Collective.BCAST, ranks, "any"): rungs}, library=library)
    assert write_flat_table(table, path) == []


def without_rules(library: str, ranks: int, path: Path) -> None:
    """Write a table for other numbers of ranks."""
    table = table_of({(Collective.BCAST, ranks + 5, "any"): [(0, BINOMIAL)]}, library=library)
    write_flat_table(table, path)


def with_the_default(library: str, ranks: int, path: Path) -> None:
    """Write a table that leaves broadcasts to the library."""
    ladders = {(Collective.BCAST, ranks, "any"): [(0, AlgorithmChoice())]}
    assert write_flat_table(table_of(ladders, library=library), path) == []


def with_evidence(library: str, ranks: int, path: Path, saved: float = 1e-7) -> None:
    """Write a table whose rule says how much time a call saves, in seconds."""
    evidence = Evidence("measured", (64,), (saved,), (2 * saved,), gain_ci95=(1.5, 2.5))
    rule = Rule(RuleKey(Collective.BCAST, 1, ranks), 0, math.inf, BINOMIAL, evidence)
    write_flat_table(TuningTable(CLUSTER, library, (rule,)), path)


def altered(write: TableWriter, old: bytes, new: bytes) -> TableWriter:
    """Return what writes a table of which another version of the library knows other names."""

    def write_altered(library: str, ranks: int, path: Path) -> None:
        write(library, ranks, path)
        content = path.read_bytes().replace(old, new)
        header = np.frombuffer(content, HEADER, 1).copy()
        header["checksum"] = 0
        header["checksum"] = zlib.crc32(header.tobytes() + content[HEADER.itemsize :])
        path.write_bytes(header.tobytes() + content[HEADER.itemsize :])

    return write_altered


def bytes_of(content: bytes) -> TableWriter:
    """Return a function that writes a file with other content than a table."""

    def write(library: str, ranks: int, path: Path) -> None:
        path.write_bytes(content)

    return write


def damaged(library: str, ranks: int, path: Path) -> None:
    """Write a table in which a bit is wrong."""
    SCHEDULE(library, ranks, path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def with_another(library: str, ranks: int, path: Path) -> None:
    """Write a table, and another one beside it."""
    SCHEDULE(library, ranks, path)
    with_evidence(library, ranks, path.with_name("other"))


def with_chain(library: str, ranks: int, path: Path) -> None:
    """Write a table by which each rank gets a broadcast from the one before it."""
    choice = AlgorithmChoice("pipeline", {"segment": 0}, "schedule")
    table = table_of({(Collective.BCAST, ranks, "any"): [(0, choice)]}, library=library)
    assert write_flat_table(table, path) == []


def of_another_version(library: str, ranks: int, path: Path) -> None:
    """Write a table that another version of tuner has made."""
    SCHEDULE(library, ranks, path)
    content = path.read_bytes()
    header = np.frombuffer(content, HEADER, 1).copy()
    header["format"] = FORMAT ^ 1
    path.write_bytes(header.tobytes() + content[HEADER.itemsize :])


def copying_allreduce(p: int) -> Schedule:
    """Exchange and reduce the values, while each rank copies its own.

    Cost: alpha + m (beta + gamma)
    Source: this file
    """
    codes = [0, 0, ARRIVING_OP_DST, DST_OP_ARRIVING]
    rounds = [Round.of([0, 1, 0, 1], [0, 1, 1, 0], 0, [1, 1, 0, 0], reduce=codes)]
    return make_schedule(Collective.ALLREDUCE, p, 1, rounds)


def copying_reduce(p: int, root: int) -> Schedule:
    """Send to the root's scratch; reduce there, and copy the result.

    Cost: alpha + m (beta + gamma)
    Source: this file
    """
    code = ARRIVING_OP_DST if root else DST_OP_ARRIVING
    rounds = [
        Round.of([1 - root], [root], 0, 1),
        Round.of([root], [root], 1, 0, reduce=code),
        Round.of([root], [root], 0, 1),
    ]
    return make_schedule(Collective.REDUCE, p, 1, rounds, root)


def shifting_bcast(p: int, root: int) -> Schedule:
    """Send the halves to each other's places, and swap them there.

    Cost: alpha + m beta
    Source: this file
    """
    other = 1 - root
    rounds = [
        Round.of([root, root], [other, other], [0, 1], [1, 0]),
        Round.of([other, other], [other, other], [0, 1], [2, 3]),
        Round.of([other, other], [other, other], [2, 3], [1, 0]),
    ]
    return make_schedule(Collective.BCAST, p, 2, rounds, root)


def halving_allgather(p: int) -> Schedule:
    """Exchange blocks of two chunks.

    Cost: alpha + m beta
    Source: this file
    """
    return make_schedule(
        Collective.ALLGATHER, p, 4, [Round.of([0, 1], [1, 0], [0, 2], [0, 2], count=2)]
    )


def with_copies(library: str, ranks: int, path: Path) -> None:
    """Write a table whose schedules copy and reduce within a rank, and shift chunks."""
    builders: dict[Collective, registry.Builder] = {
        Collective.ALLREDUCE: copying_allreduce,
        Collective.REDUCE: copying_reduce,
        Collective.BCAST: shifting_bcast,
        Collective.ALLGATHER: halving_allgather,
    }
    choice = AlgorithmChoice("copies", {}, "schedule")
    with patch.dict(registry._REGISTRY):
        for collective, builder in builders.items():
            registry.algorithm(collective, choice.algorithm)(builder)
        table = table_of({(c, ranks, "any"): [(0, choice)] for c in builders}, library=library)
        assert write_flat_table(table, path) == []


def refused(write_table: TableWriter | None, reason: str) -> Situation:
    """Return a run with a file that cannot be used."""
    return replace(CALLS, write_table=write_table, says=f"{LEFT}rank 0: FOLDER/flat: {reason}")


def corner(name: str, write_table: TableWriter = SCHEDULE, ranks: int = 3) -> Situation:
    """Return a run of one of the corners that the program has."""
    return Situation("preload_corners.c", (name,), ranks, write_table)


def failing(situation: Situation, call: str, says: str = "", on_rank_1: str = "") -> Situation:
    """Return a run in which a call of the dispatcher fails, on all ranks or on rank 1 alone."""
    if on_rank_1:
        return replace(situation, on_rank_1=f"export TUNER_TEST_FAILS='{call}'", says=says)
    return replace(situation, environment={"TUNER_TEST_FAILS": call}, says=says)


def also(situation: Situation, **environment: str) -> Situation:
    """Return a run with further variables."""
    return replace(situation, environment={**situation.environment, **environment})


def recording(situation: Situation, path: str = "FOLDER/record", says: str = "") -> Situation:
    """Return a run that is recorded."""
    return replace(situation, environment={"TUNER_RECORD": path}, says=says)


def reporting(path: str, says: str) -> Situation:
    """Return a run whose report goes to another file."""
    return replace(CALLS, environment={"TUNER_REPORT": path}, says=says)


LEFT = "tuner: the library's own collectives are used: "
CALLS = Situation("preload_calls.c", ("FOLDER/calls",), 2, SCHEDULE, prints="done")
COLLECTIVES = Situation("collectives_program.c")
WRONG_CALLS = Situation("wrong_calls_program.c", ranks=2, prints="sum 3")
ENDINGS = Situation("preload_endings.c", ("returned", "2", "40", "7"), write_table=SCHEDULE)
USUAL = corner("profiled")

RAGGED = Situation(
    "ragged_calls.c",
    ("100", "1", "1"),
    write_table=FORCED,
    environment={"TUNER_AGREE_EVERY": "1"},
    prints="0 wrong",
)
GUIDELINES = Situation(
    "preload_calls.c",
    ("FOLDER/calls",),
    2,
    environment={"TUNER_RECORD": "FOLDER/record", "TUNER_WAITING": "1", "TUNER_GUIDELINES": "1"},
    prints="done",
)

DEVICES = Situation(
    "preload_devices.c", ("FOLDER/driver.so", "late"), write_table=SCHEDULE, driver="libcuda.so.1"
)
SITUATIONS = {
    "all collectives, schedules": replace(COLLECTIVES, write_table=SCHEDULE),
    "all collectives, forced": replace(COLLECTIVES, write_table=FORCED),
    "all collectives, mixed": replace(COLLECTIVES, write_table=MIXED),
    "all collectives, recorded": recording(COLLECTIVES),
    "ragged calls": RAGGED,
    "ragged calls without agreements": also(RAGGED, TUNER_AGREE_EVERY="0"),
    "ragged calls, recorded": recording(replace(RAGGED, write_table=None)),
    "wrong counts": also(corner("counts", FORCED), TUNER_AGREE_EVERY="1"),
    "wrong calls, schedules": replace(WRONG_CALLS, write_table=SCHEDULE),
    "wrong calls, forced": replace(WRONG_CALLS, write_table=FORCED),
    "delete functions": Situation("deleting_program.c", write_table=SCHEDULE),
    "errors returned": ENDINGS,
    "a session": replace(ENDINGS, arguments=("session", "2", "40", "7")),
    "calls": CALLS,
    "calls, recorded with a table": recording(CALLS),
    "copies within a rank": replace(CALLS, write_table=with_copies),
    "buffers on devices": DEVICES,
    "buffers on devices at first": replace(
        DEVICES, arguments=("FOLDER/driver.so", "first"), says="cannot be run on buffers"
    ),
    "devices that cannot be asked": replace(DEVICES, driver="libze_loader.so.1"),
    "irregular nodes": Situation(
        "preload_layouts.c",
        ("0,1,2", "0,2,1,3", "0,1,3,2"),
        4,
        SCHEDULE,
        {"MPIR_CVAR_NUM_CLIQUES": "2"},
        prints="done",
        libraries=("mpich",),
    ),
    "many communicators, schedules": corner("many"),
    "many communicators, forced": replace(corner("many", FORCED), libraries=("openmpi",)),
    "groups": corner("groups"),
    "groups, recorded": recording(replace(corner("groups"), write_table=None)),
    "spawned ranks": corner("spawn"),
    "truncation": corner("truncation", with_chain, 4),
    "blocks of other lengths": corner("lengths"),
    "no memory for packed data on a rank": failing(
        corner("memory", FORCED, 2), "reserve 2", "failed: reserve 2", "on rank 1"
    ),
    "no datatype": corner("datatype"),
    "much data": corner("data"),
    "much data, forced": corner("data", FORCED),
    "large gathers": corner("gathers"),
    "threads, schedules": corner("threads"),
    "threads, forced": corner("threads", FORCED),
    "threads, no communicator": failing(corner("threads", FORCED), "PMPI_Comm_split 1"),
    "profiled": USUAL,
    "profiled threads": corner("profiled-threads"),
    "recorded kinds beyond those that are kept": recording(
        replace(CALLS, arguments=("FOLDER/many",), write_table=None)
    ),
    "recorded waiting and guidelines": GUIDELINES,
    "guidelines without communicator": also(GUIDELINES, TUNER_TEST_FAILS="PMPI_Comm_split 2"),
    "guidelines of slow calls": also(
        GUIDELINES, TUNER_TEST_CLOCK="1e6", TUNER_START_WITHIN_S="100000000"
    ),
    "record on a disk that fills up": replace(
        also(GUIDELINES, TUNER_TEST_FAILS="fclose 1"), says="record is incomplete"
    ),
    "record on a full disk": recording(CALLS, "/dev/full", "/dev/full cannot be written"),
    "record in no folder": recording(CALLS, "/no/such/record", "record left out"),
    "report on a full disk": reporting("/dev/full", "/dev/full is incomplete"),
    "report in no folder": reporting("/no/such/report", "report left out"),
    "quiet": replace(CALLS, environment={"TUNER_QUIET": "1"}),
    "no rules": replace(CALLS, write_table=without_rules, says="it has no rules for 2 ranks"),
    "rules of the default": replace(
        CALLS, write_table=with_the_default, says="it leaves what this program calls to the library"
    ),
    "narrow terminal": replace(
        CALLS,
        write_table=without_rules,
        environment={"TUNER_COLUMNS": "1"},
        says="tuner:\nno\ncall\nfollowed\n",  # and a last word that is too long
    ),
    "evidence": replace(CALLS, write_table=with_evidence, says="by its evidence that saved"),
    "evidence of seconds": replace(
        CALLS, write_table=partial(with_evidence, saved=1.0), says="more than the whole run took"
    ),
    "neither table nor record": replace(CALLS, write_table=None),
    "no file": replace(
        CALLS, environment={"TUNER_FLAT_TABLE": "/no/such"}, says=f"{LEFT}rank 0: /no/such: No such"
    ),
    "file that cannot be mapped": replace(
        CALLS,
        environment={"TUNER_FLAT_TABLE": "/sys/kernel/mm/transparent_hugepage/enabled"},
        says="No such device",
    ),
    "empty file": refused(bytes_of(b""), "not a regular file with content"),
    "other file": refused(bytes_of(b"{}" * 4000), "not the flat file of a table"),
    "file of another version": refused(of_another_version, "made by another version"),
    "damaged file": refused(damaged, "damaged"),
    "a rank without a table": replace(
        CALLS, on_rank_1="unset TUNER_FLAT_TABLE", says=f"{LEFT}some ranks have no table"
    ),
    "a rank that cannot read the table": replace(CALLS, on_rank_1="TUNER_FLAT_TABLE=/no/such"),
    "a rank with another table": replace(
        CALLS,
        write_table=with_another,
        on_rank_1="TUNER_FLAT_TABLE=FOLDER/other",
        says=f"{LEFT}the ranks have different",
    ),
    "a rank without the library": replace(
        CALLS,
        ranks=3,
        environment={"TUNER_START_WITHIN_S": "1"},
        on_rank_1="unset LD_PRELOAD",
        says=f"{LEFT}some ranks run without tuner",
    ),
    "a rank that has no memory for the table": replace(
        CALLS,
        on_rank_1="TUNER_FLAT_TABLE=/no/such; export TUNER_TEST_FAILS='memory 1'",
        says=f"{LEFT}rank 0: FOLDER/flat: no memory",
    ),
    "another library's variables": replace(
        USUAL, write_table=altered(FORCED, b"coll_tuned_", b"coll_other_")
    ),
    "another library's algorithms": replace(
        USUAL, write_table=altered(FORCED, b"binomial\0", b"binomiak\0"), libraries=("mpich",)
    ),
    "no communicator": failing(USUAL, "PMPI_Comm_split 1", "no further communicators"),
    "no communicator on a rank": failing(
        USUAL, "PMPI_Comm_split 1", "no further communicators", "on rank 1"
    ),
    "no duplicate": replace(
        failing(USUAL, "PMPI_Comm_dup_with_info 1", "cannot be forced"),
        write_table=FORCED,
        libraries=("openmpi",),
    ),
    "no attribute": failing(USUAL, "PMPI_Comm_set_attr 1"),
    "no variables": failing(
        USUAL, "MPI_T_init_thread 1", f"{LEFT}rank 0: MPI: it does not give access"
    ),
    "fault tolerance": replace(
        USUAL,
        environment={"OMPI_MCA_mpi_ft_enable": "1"},
        says=f"{LEFT}rank 0: MPI: where ranks may fail",
        libraries=("openmpi",),
    ),
    "no nodes": failing(USUAL, "PMPI_Comm_split_type 1"),
}

# Runs in which the first call of the dispatcher of these functions fails, the second, and so on.
SWEEPS = (
    (corner("memory", SCHEDULE, 1), "memory"),
    (corner("memory", FORCED, 1), "memory"),
    (replace(corner("profiled", with_one_forced), libraries=("openmpi",)), "MPI_T_cvar_write"),
)
