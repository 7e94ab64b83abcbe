"""What NCCL's logs and its Inspector tell of a program, and what that says of a table's rules."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inspector import VERSIONS, call, dump, metric, ran
from tests.support.ladders import CLUSTER
from tests.support.properties import examples
from tests.support.waiting import patience
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.formats.nccl.emitter import emit_sparse
from tuner.formats.nccl.plugin import with_digest_header
from tuner.importers.streaming import RawLine
from tuner.mpi_libraries.nccl.constants import PROTOCOLS
from tuner.mpi_libraries.nccl.logged import DATATYPE_BYTES, algo_proto_name
from tuner.mpi_libraries.nccl.names import algo_protos_of, name_of
from tuner.validation import nccl_logs, validate_nccl
from tuner.validation.nccl_logs import ExecutedCollective
from tuner.validation.validation import RuleValidation

BCAST, REDUCE, ALLREDUCE = Collective.BCAST, Collective.REDUCE, Collective.ALLREDUCE
ALLGATHER, REDUCE_SCATTER = Collective.ALLGATHER, Collective.REDUCE_SCATTER
NAMES = {
    BCAST: "Broadcast",
    REDUCE: "Reduce",
    ALLREDUCE: "AllReduce",
    ALLGATHER: "AllGather",
    REDUCE_SCATTER: "ReduceScatter",
}
FLOAT = 7  # NCCL's number of the type


def said(words: str, process: int = 47, host: str = "n1", device: int = 0, thread: int = 47) -> str:
    return f"{host}:{process}:{thread} [{device}] NCCL INFO {words}\n"


def began(
    p: int = 16, nodes: int = 2, comm: str = "0x55ac", rank: int = 0, process: int = 47
) -> str:
    """A line of the subsystem INIT."""
    each = p // nodes
    return said(
        f"comm {comm} rank {rank} nRanks {p} nNodes {nodes} localRanks {each}"
        f" localRank {rank % each} MNNVL 0",
        process,
    )


def ended(comm: str = "0x55ac") -> str:
    return said(f"comm {comm} rank 0 nranks 16 cudaDev 0 busId 18000 - Destroy COMPLETE")


def called(
    count: int, function: str = "AllReduce", comm: str = "0x55ac", p: int = 16, kind: int = FLOAT
) -> str:
    """A line of the subsystem COLL."""
    return said(
        f"{function}: opCount 1a sendbuff 0x7f75 recvbuff 0x7f76 count {count} datatype"
        f" {kind} op 0 root 0 comm {comm} [nranks={p}] stream 0x55ad"
    )


def chose(
    nbytes: int,
    algorithm: str = "RING",
    protocol: str = "LL",
    function: str = "AllReduce",
    channels: str = "0..3",
    process: int = 47,
) -> str:
    """A line of the subsystem TUNING, as newer versions write it."""
    return said(
        f"{function}: {nbytes} Bytes -> Algo {algorithm} proto {protocol}"
        f" channel{{Lo..Hi}}={{{channels}}}",
        process,
    )


def read(text: str, tmp_path: Path, shape: tuple[int, int] | None = None) -> nccl_logs.LoggedCalls:
    (tmp_path / "train.log").write_text(text)
    return validate_nccl.read_logs([tmp_path / "train.log"], shape)


def executed(evidence: nccl_logs.LoggedCalls) -> dict[ExecutedCollective, int]:
    return dict(evidence.executed_calls())


def one(evidence: nccl_logs.LoggedCalls) -> ExecutedCollective:
    ((found, times),) = evidence.executed_calls()
    assert times == 1
    return found


# ---- lines


@pytest.mark.parametrize(
    ("collective", "whole"),
    [(ALLREDUCE, 1024), (BCAST, 1024), (REDUCE, 1024), (ALLGATHER, 16384), (REDUCE_SCATTER, 16384)],
)
def test_a_call_and_its_whole_buffer(collective: Collective, whole: int, tmp_path: Path) -> None:
    found = one(read(began() + chose(1024, function=NAMES[collective]), tmp_path))
    choice = AlgorithmChoice("ring_ll", {"channels": 4})
    assert found == ExecutedCollective(collective, 2, 16, whole, choice)


@pytest.mark.parametrize("collective", [ALLREDUCE, ALLGATHER])
def test_older_lines_tell_the_whole_buffer(collective: Collective, tmp_path: Path) -> None:
    text = said(f"{NAMES[collective]}: 16384 Bytes -> Algo 1 proto 2 time 28.208008")
    found = one(read(began() + text, tmp_path))
    assert found == ExecutedCollective(collective, 2, 16, 16384, AlgorithmChoice("ring_simple"))


def test_names_and_numbers_are_those_of_tables() -> None:
    known = {name_of(way) for collective in NAMES for way in algo_protos_of(collective)}
    order = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
    camel = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
    found = set()
    for i, (upper, mixed) in enumerate(zip(order, camel, strict=True)):
        for j, protocol in enumerate(PROTOCOLS):
            names = {
                algo_proto_name(upper, protocol.upper()),
                algo_proto_name(mixed, protocol),
                algo_proto_name(str(i), str(j)),
            }
            assert len(names) == 1
            found |= names
    assert known <= found
    assert algo_proto_name("7", "3") == "7_3"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (
            "AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512"
            " nWorks 1",
            "symmetric",
        ),
        (
            (
                "AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4"
                " nthreads 512"
            ),
            "symmetric",
        ),
        (
            "AllReduce [Copy Engine]: 1024 Bytes -> cudaMemcpy; CE synchronization with NVLS",
            "copy_engine",
        ),
        ("AllReduce [Hierarchical CE]: 1024 Bytes -> RMA proxy + CE", "hierarchical_ce"),
    ],
)
def test_what_runs_without_an_algorithm(words: str, name: str, tmp_path: Path) -> None:
    found = one(read(began() + said(words), tmp_path))
    assert (found.choice, found.nbytes) == (AlgorithmChoice(name), 1024)


def test_several_calls_in_one_kernel_have_no_size(tmp_path: Path) -> None:
    text = said("AllReduce [Symmetric]: 1024 Bytes -> Kernel X nchannels 4 nthreads 512 nWorks 2")
    evidence = read(began() + text, tmp_path)
    assert (executed(evidence), evidence.incomplete_lines) == ({}, 1)


def test_the_oldest_lines_name_no_collective(tmp_path: Path) -> None:
    ran = said("6400 Bytes -> Algo 0 proto 0 time 25.229528")
    evidence = read(began() + ran, tmp_path)
    assert (executed(evidence), evidence.incomplete_lines, evidence.call_lines) == ({}, 1, 1)
    for function, count in (("AllReduce", 1600), ("AllGather", 100), ("Broadcast", 1600)):
        found = one(read(began() + called(count, function) + ran, tmp_path))
        assert (NAMES[found.collective], found.nbytes) == (function, 6400)
    both = called(1600) + called(100, "AllGather")
    evidence = read(began() + both + ran + ran, tmp_path)
    assert (executed(evidence), evidence.lines_without_shape) == ({}, 2)


def test_other_functions_pass_by(tmp_path: Path) -> None:
    text = chose(1024) + chose(1024, function="AlltoAll") + chose(64, function="SendRecv")
    evidence = read(began() + text, tmp_path)
    assert (sum(executed(evidence).values()), evidence.call_lines) == (1, 1)


@pytest.mark.parametrize(
    "line",
    [
        said("AllReduce: 1024 Bytes -> Algo RING proto"),
        said("AllReduce: 1024 Bytes -> Algo"),
        said("AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0.."),
        said("AllReduce: x Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}"),
        said("AllReduce: 1024 Bytes -> Algo RING* proto LL channel{Lo..Hi}={0..3}"),
        "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n",
        said("AllReduce [Symmetric]: 1024 Bytes -> "),
        said(f"AllReduce: {'9' * 30} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}"),
    ],
)
def test_damaged_lines_are_counted_and_claim_nothing(line: str, tmp_path: Path) -> None:
    evidence = read(began() + chose(64) + line, tmp_path)
    assert one(evidence).nbytes == 64
    assert (evidence.damaged_lines, evidence.call_lines) == (1, 2)


def test_what_stands_before_a_line_does_not_matter(tmp_path: Path) -> None:
    lines = ["[0]     62.05    0.00    0.01[0] ", "[1,0]<stdout>:", "0: ", "[2026-03-03 12:11:38] "]
    text = began() + "".join(before + chose(1024) for before in lines)
    assert list(executed(read(text, tmp_path)).values()) == [4]


# ---- communicators


def test_without_a_shape_nothing_is_claimed(tmp_path: Path) -> None:
    evidence = read(chose(1024), tmp_path)
    assert (executed(evidence), evidence.lines_without_shape) == ({}, 1)
    assert one(read(chose(1024), tmp_path, (8, 1))).p == 8


def test_a_shape_that_the_log_says_beats_the_option(tmp_path: Path) -> None:
    assert one(read(began() + chose(1024), tmp_path, (8, 1))).p == 16


def test_ranks_without_nodes_need_the_option(tmp_path: Path) -> None:
    text = said(
        "ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 18000"
        " commId 0x221d - Init COMPLETE"
    ) + chose(1024)
    assert executed(read(text, tmp_path)) == {}
    assert executed(read(text, tmp_path, (8, 1))) == {}
    assert one(read(text, tmp_path, (16, 2))).nodes == 2
    assert one(read(began(comm="0x1") + text, tmp_path)).nodes == 2


def test_only_communicators_of_which_it_is_rank_0_matter(tmp_path: Path) -> None:
    text = began(comm="0x1", p=4, rank=1) + began(comm="0x2", p=1, nodes=1) + began() + chose(64)
    assert one(read(text, tmp_path)).p == 16


def test_each_process_has_its_own(tmp_path: Path) -> None:
    text = began(process=1) + began(p=4, process=2) + chose(64, process=1) + chose(64, process=2)
    text += chose(64, process=3)
    evidence = read(text, tmp_path)
    assert sorted(found.p for found in executed(evidence)) == [4, 16]
    assert evidence.lines_without_shape == 1


def test_of_several_shapes_none_is_guessed(tmp_path: Path) -> None:
    two = began(comm="0x1") + began(comm="0x2", p=4)
    evidence = read(two + chose(64), tmp_path)
    assert (executed(evidence), evidence.lines_without_shape) == ({}, 1)
    assert executed(read(two + chose(64), tmp_path, (4, 2))) == {}
    same = began(comm="0x1") + began(comm="0x2")
    assert one(read(same + chose(64), tmp_path)).p == 16


def test_a_communicator_that_ended_is_out_of_the_way(tmp_path: Path) -> None:
    text = began(comm="0x1") + ended("0x1") + began(comm="0x2", p=4) + chose(64)
    assert one(read(text, tmp_path)).p == 4


@pytest.mark.parametrize(
    ("collective", "wide"),
    [(ALLREDUCE, False), (ALLGATHER, False), (REDUCE_SCATTER, False), (BCAST, True)],
)
def test_the_call_before_tells_the_communicator(
    collective: Collective, wide: bool, tmp_path: Path
) -> None:
    name, kind = NAMES[collective], 8 if wide else FLOAT
    size = DATATYPE_BYTES[kind]
    text = began(comm="0x1") + began(comm="0x2", p=4)
    for comm, p in (("0x2", 4), ("0x1", 16), ("0x2", 4)):
        text += called(100, name, comm, p, kind) + chose(100 * size, function=name)
    found = executed(read(text, tmp_path))
    assert {(each.p, times) for each, times in found.items()} == {(4, 2), (16, 1)}


def test_it_tells_that_of_older_lines_too(tmp_path: Path) -> None:
    text = began(comm="0x1") + began(comm="0x2", p=4)
    for comm, p in (("0x2", 4), ("0x1", 16)):
        text += called(100, "AllGather", comm, p)
        text += said(f"AllGather: {400 * p} Bytes -> Algo 1 proto 0 time 2.5")
    found = executed(read(text, tmp_path))
    assert {(each.p, each.nbytes) for each in found} == {(4, 1600), (16, 6400)}


def test_equal_calls_in_one_group_are_not_told_apart(tmp_path: Path) -> None:
    text = began(comm="0x1") + began(comm="0x2", p=4)
    text += called(100, comm="0x1") + called(100, comm="0x2", p=4) + chose(400) + chose(400)
    evidence = read(text, tmp_path)
    assert (executed(evidence), evidence.lines_without_shape) == ({}, 2)
    other = text.replace("count 100 datatype 7", "count 50 datatype 7", 1).replace(
        "AllReduce: 400 Bytes", "AllReduce: 200 Bytes", 1
    )
    assert {each.p for each in executed(read(other, tmp_path))} == {4, 16}


def test_a_communicator_whose_beginning_is_missing_is_not_taken_for_another(tmp_path: Path) -> None:
    text = began(comm="0x1") + called(100, comm="0x9", p=4) + chose(400)
    evidence = read(text, tmp_path)
    assert (executed(evidence), evidence.lines_without_shape) == ({}, 1)
    assert one(read(text, tmp_path, (4, 2))).p == 4
    assert executed(read(text + chose(400), tmp_path, (4, 2))) == {
        ExecutedCollective(ALLREDUCE, 2, 4, 400, AlgorithmChoice("ring_ll", {"channels": 4})): 1
    }


def test_calls_of_other_ranks_and_of_one_rank_wait_for_nothing(tmp_path: Path) -> None:
    text = began(comm="0x1") + began(comm="0x2", p=4, rank=1) + began(comm="0x3", p=1, nodes=1)
    text += called(100, comm="0x2", p=4) + called(100, comm="0x3", p=1) + called(100, comm="0x1")
    assert one(read(text + chose(400), tmp_path)).p == 16


# ---- rules

Steps = Iterable[tuple[int, AlgorithmChoice]]


def table(
    steps: Steps, collective: Collective = ALLREDUCE, nodes: int = 2, library: str = "nccl 2.30.7"
) -> TuningTable:
    key = RuleKey(collective, nodes, 16 // nodes, "cuda")
    steps = list(steps)
    bounds = [*(lo for lo, _ in steps[1:]), math.inf]
    rules = [
        Rule(key, lo, hi, choice, Evidence("measured", (lo,)))
        for (lo, choice), hi in zip(steps, bounds, strict=True)
    ]
    return TuningTable(CLUSTER, library, tuple(rules))


def validations(text: str, tmp_path: Path, steps: Steps, **how: int) -> list[RuleValidation]:
    return validate_nccl.validate(table(steps, nodes=how.get("nodes", 2)), read(text, tmp_path))


LADDER = [
    (0, AlgorithmChoice("tree_ll")),
    (1024, AlgorithmChoice()),
    (4096, AlgorithmChoice("ring_simple")),
]


def test_each_rule_is_confirmed_refuted_or_not_seen(tmp_path: Path) -> None:
    text = began() + chose(512, "TREE", "LL") + chose(1023, "TREE", "LL") + chose(2048, "NVLS")
    first, last = validations(text, tmp_path, LADDER)
    assert (first.sizes, first.confirmed, first.reason) == ((512, 1023), True, "")
    assert first.executed == (AlgorithmChoice("tree_ll"), AlgorithmChoice("tree_ll"))
    assert (last.sizes, last.confirmed, last.reason) == ((), False, validate_nccl.NOT_OBSERVED)
    text += chose(4096, "RING", "SIMPLE") * 2 + chose(1 << 20, "TREE", "SIMPLE")
    _, last = validations(text, tmp_path, LADDER)
    assert (last.sizes, last.confirmed) == ((4096, 1 << 20), False)
    assert last.reason == "tree_simple at 1MiB; 1 of 3 times not as the rule says"


def both_operators() -> TuningTable:
    """Rules for any operator, and others for commutative ones, which NCCL's file holds."""
    own = table(LADDER).rules
    commutative = [
        replace(rule, key=replace(rule.key, operators="commutative"), choice=choice)
        for rule, choice in zip(
            own,
            (AlgorithmChoice("ring_ll"), AlgorithmChoice(), AlgorithmChoice("ring_ll")),
            strict=True,
        )
    ]
    return TuningTable(CLUSTER, "nccl 2.30.7", (*own, *commutative))


def test_rules_that_are_not_in_the_file_are_not_proved(tmp_path: Path) -> None:
    both = both_operators()
    evidence = read(began() + chose(512) + chose(4096), tmp_path)
    first, last = validate_nccl.validate(both, evidence)
    assert (first.rule.key.operators, first.confirmed, last.confirmed) == (
        "commutative",
        True,
        True,
    )
    assert [each.rule for each in validate_nccl.superseded_rules(both)] == list(table(LADDER).rules)
    assert {each.reason for each in validate_nccl.superseded_rules(both)} == {
        validate_nccl.SUPERSEDED
    }


@pytest.mark.parametrize("nbytes", [1023, 1024, 4095, 4096])
def test_the_bounds_of_a_rule_are_its_own(nbytes: int, tmp_path: Path) -> None:
    first, last = validations(began() + chose(nbytes, "PAT", "SIMPLE"), tmp_path, LADDER)
    assert bool(first.sizes) == (nbytes < 1024)
    assert bool(last.sizes) == (nbytes >= 4096)


def test_both_at_one_size_are_told(tmp_path: Path) -> None:
    text = began() + chose(8, "TREE", "LL") * 3 + chose(8, "TREE", "LL128")
    first, _ = validations(text, tmp_path, LADDER)
    assert first.sizes == (8, 8)
    assert {str(choice) for choice in first.executed} == {"tree_ll", "tree_ll128"}
    assert first.reason == "tree_ll128 at 8B; 1 of 4 times not as the rule says"


@pytest.mark.parametrize(
    "text",
    [
        began(p=8) + chose(8, "TREE", "LL"),
        began(nodes=1) + chose(8, "TREE", "LL"),
        began() + chose(8, "TREE", "LL", "Reduce"),
    ],
)
def test_calls_of_other_shapes_and_collectives_say_nothing(text: str, tmp_path: Path) -> None:
    assert not any(each.sizes for each in validations(text, tmp_path, LADDER))


@pytest.mark.parametrize(
    ("channels", "confirmed"), [("0..3", True), ("0..7", True), ("4..11", True), ("0..8", False)]
)
def test_channels_are_the_most_that_may_be_used(
    channels: str, confirmed: bool, tmp_path: Path
) -> None:
    text = began() + chose(8, "TREE", "LL", channels=channels)
    (found,) = validations(text, tmp_path, [(0, AlgorithmChoice("tree_ll", {"channels": 8}))])
    assert found.confirmed == confirmed
    assert str(found.executed[0]).startswith("tree_ll(channels=")


def test_a_file_that_tells_no_channels_cannot_confirm_them(tmp_path: Path) -> None:
    rule = [(0, AlgorithmChoice("tree_ll", {"channels": 8}))]
    (found,) = validations(dump([call(**ran("TREE", "LL"))], p=16), tmp_path, rule)
    assert (found.sizes, found.confirmed, found.reason) == (
        (),
        False,
        validate_nccl.CHANNELS_UNKNOWN,
    )
    (found,) = validations(dump([call(**ran("RING", "LL"))], p=16), tmp_path, rule)
    assert (found.sizes, found.confirmed) == ((1024,), False)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_inspector_is_evidence_where_it_tells_the_algorithm(
    version: str, tmp_path: Path
) -> None:
    words: Mapping[str, Any] = ran("TREE", "LL") if version >= "v4.2" else {}
    text = "".join(dump([call(1, size=512, **words)], version, rank=r, p=16) for r in range(16))
    evidence = read(text, tmp_path)
    first, _ = validate_nccl.validate(table(LADDER), evidence)
    assert first.confirmed == bool(words)
    assert (evidence.call_lines, evidence.incomplete_lines) == (16, 0 if words else 16)


def test_sizes_of_the_inspector_are_whole(tmp_path: Path) -> None:
    text = dump([call(1, size=256, function="AllGather", **ran("RING", "SIMPLE"))], p=16)
    (_, last) = validate_nccl.validate(table(LADDER, ALLGATHER), read(text, tmp_path))
    assert (last.sizes, last.confirmed) == ((4096,), True)


def test_metrics_are_no_evidence(tmp_path: Path) -> None:
    text = metric(message_size="4-5KB", algo_proto="Tree_ll") + metric()
    evidence = read(text, tmp_path)
    assert (executed(evidence), evidence.incomplete_lines) == ({}, 2)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    for text in ("", "step 1 loss 2.3\n", began()):
        with pytest.raises(InputError, match="NCCL_DEBUG_SUBSYS=INIT,TUNING"):
            read(text, tmp_path)
    with pytest.raises(InputError, match="expected the path of a file"):
        validate_nccl.read_logs([tmp_path / "nothing"])
    with pytest.raises(InputError, match=r"train.log: line 1: longer than"):
        read("x" * (2 << 20), tmp_path)


HOSTILE = """
import sys
from tuner.validation.nccl_logs import LoggedCalls
from tuner.importers.streaming import RawLine
prefix, told = b"n1:1:1 [0] NCCL INFO ", b"comm 0x1 rank 1 nranks 1 "
units = [
    (b"", b"a", b" comm "), (prefix, told, b""), (b"", prefix + told, b""), (b"", b"1:", b" comm "),
    (prefix, b"comm x rank ", b""), (b"", b"a", b" Bytes -> "), (b"", b"a", b" opCount "),
    (prefix + b"AllReduce: opCount ", b"a", b" sendbuff "), (b"", b"1:1:1 [1] ", b" Bytes -> "),
    (prefix + b"AllReduce [Symmetric]: 1 Bytes -> ", b" nWorks ", b""),
    (b"NCCL version ", b"1.", b""),
]
for length in (1 << 20, 4000):
    for begin, unit, end in units:
        line = begin + unit * ((length - len(begin + end)) // len(unit)) + end
        LoggedCalls().read_log(RawLine(i, line) for i in range((1 << 20) // length))
"""


def test_hostile_lines_take_no_time() -> None:
    """Read lines of 1 MiB, and shorter ones of as many bytes together."""
    subprocess.run([sys.executable, "-c", HOSTILE], check=True, timeout=patience())


def test_lines_that_are_too_long_are_damaged(tmp_path: Path) -> None:
    line = "x" * 5000 + " " + chose(64)
    evidence = read(began() + chose(64) + line, tmp_path)
    assert (one(evidence).nbytes, evidence.damaged_lines, evidence.call_lines) == (64, 1, 2)


@pytest.mark.parametrize(
    "many",
    [
        lambda i: began(process=i, comm="0x1"),
        lambda i: began(comm=f"0x{i}"),
        lambda i: began() + called(i),
        lambda i: called(1, p=i + 2),
        lambda i: f"NCCL version 2.{i}\n",
        lambda i: began() + chose(i),
        lambda i: said("comm 0x1 rank 0 nranks 8 - Init COMPLETE", i),
    ],
)
def test_what_is_remembered_is_bounded(
    many: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_logs, "MAX_CALLS", 50)
    with pytest.raises(InputError, match=r"train.log: more than 50 different calls"):
        read("".join(map(many, range(60))), tmp_path)


def test_what_is_over_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_logs, "MAX_CALLS", 50)
    text = "".join(began(comm=f"0x{i}") + ended(f"0x{i}") for i in range(200))
    text += began() + "".join(called(i) + said("opCount cut") for i in range(200))
    assert one(read(text + called(16) + chose(64), tmp_path)).p == 16


def test_shapes_of_a_process_are_bounded(tmp_path: Path) -> None:
    for many in (lambda i: began(i + 2, 1, f"0x{i}"), lambda i: called(1, p=i + 2)):
        with pytest.raises(InputError, match="communicators of more than 1000 shapes"):
            read("".join(map(many, range(1001))), tmp_path)
    text = "".join(began(i + 2, 1, "0x1") for i in range(1001)) + began(comm="0x1")
    assert one(read(text + chose(64), tmp_path)).p == 16


@given(st.data())
@settings(max_examples=examples(300))
def test_a_damaged_line_never_confirms_what_did_not_run(data: st.DataObject) -> None:
    """Of a log in which another algorithm ran, whatever is cut out of a line."""
    lines = [
        began(),
        began(comm="0x2", p=4),
        called(2),
        chose(8, "NVLS", "SIMPLE"),
        called(2, comm="0x2", p=4),
        chose(8, "TREE", "LL"),
    ]
    i = data.draw(st.integers(0, len(lines) - 1))
    end = len(lines[i]) - 1  # the line break stays
    at = data.draw(st.integers(0, end))
    lines[i] = lines[i][:at] + lines[i][data.draw(st.integers(at, end)) :]
    text = "".join(lines)
    evidence = nccl_logs.LoggedCalls()
    kept = text.encode().splitlines(keepends=True)
    evidence.read_log(RawLine(i, line) for i, line in enumerate(kept, 1))
    for found in executed(evidence):
        assert found.choice.algorithm != "tree_ll" or found.p != 16
    assert evidence.call_lines == (
        sum(executed(evidence).values())
        + evidence.incomplete_lines
        + evidence.lines_without_shape
        + evidence.damaged_lines
    )


# ---- the command line


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    write_table(table(LADDER), path)
    return path


def asked(path: Path, *words: object) -> int:
    return main(["table", "validate", str(path), *map(str, words)])


def test_a_proof_by_a_log(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(began() + chose(512, "TREE", "LL") + chose(4096, "TREE", "SIMPLE"))
    assert asked(written, "--log", log, "--json") == 1
    first, last, left = json.loads(capsys.readouterr().out)
    assert (first["confirmed"], first["sizes"], first["executed"]) == (True, [512], "tree_ll")
    assert (last["confirmed"], last["executed"]) == (False, "tree_simple")
    assert (left["expected"], left["confirmed"]) == ("default", False)
    assert "left to NCCL" in left["reason"]
    assert asked(written, "--log", log) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 rule is refuted: the library executed something else." in shown
    assert "1 rule is passed over: left to NCCL, where no log tells who chose" in shown
    assert shown.endswith("1 of 3 rules confirmed in nccl 2.30.7")
    log.write_text(log.read_text().replace("TREE proto SIMPLE", "RING proto SIMPLE"))
    assert asked(written, "--log", log) == 0
    log.write_text(began() + chose(512, "TREE", "LL"))
    assert asked(written, "--log", log) == 1
    assert "1 rule is not seen in the logs." in " ".join(capsys.readouterr().out.split())


def test_folders_and_several_files(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "n1.47").write_text(began() + chose(512, "TREE", "LL"))
    (folder / "n2.48").write_text(began(rank=8) + "step 1\n")
    other = tmp_path / "insp.log"
    other.write_text(dump([call(size=8192, **ran("RING", "SIMPLE"))], p=16))
    assert asked(written, "--log", folder) == 1
    assert asked(written, "--log", folder, other) == 0


def test_rules_that_are_not_in_the_file_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, log = tmp_path / "both.json", tmp_path / "train.log"
    write_table(both_operators(), path)
    log.write_text(began() + chose(512) + chose(4096))
    assert asked(path, "--log", log, "--json") == 0
    records = json.loads(capsys.readouterr().out)
    reasons = [record["reason"] for record in records]
    assert reasons == ["", "", *[validate_nccl.SUPERSEDED] * 3, "left to NCCL"]
    assert asked(path, "--log", log) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 rules are passed over: left to NCCL" in shown
    assert "or not in NCCL's file. 2 of 6 rules confirmed" in shown


def test_what_is_no_log_in_a_folder_is_passed_over(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "a.ckpt").write_bytes(b"PK\3\4" + bytes(3 << 20))
    packed = gzip.compress(began().encode() * 9)
    (folder / "b.gz").write_bytes(packed[:15])
    (folder / "c.txt").write_text("x" * (2 << 20))
    (folder / "d.log").write_text(
        began() + chose(512, "TREE", "LL") + chose(4096, "RING", "SIMPLE")
    )
    (folder / "e.json").write_text(dump([call(**ran())]) + "{damaged\n")
    assert asked(written, "--log", folder) == 0
    errors = " ".join(capsys.readouterr().err.split())
    assert "2 files passed over: no text, or damaged" in errors
    assert "c.txt: line 1: longer than" in errors
    assert "(and 1 other file): what is before it was read" in errors
    for name in ("a.ckpt", "b.gz", "c.txt", "e.json"):
        assert asked(written, "--log", folder / name) == 1
        assert capsys.readouterr().err.count("\n") == 1
    (folder / "d.log").unlink()
    (folder / "c.txt").unlink()
    (folder / "e.json").unlink()
    assert asked(written, "--log", folder) == 1
    assert "job is a folder without logs" in " ".join(capsys.readouterr().err.split())


def test_what_logs_leave_open_is_said(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "n1:47:47 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"
        + chose(512, "TREE", "LL")
        + said("8 Bytes -> Algo 0 proto 0 time 2.5")
        + said("AllReduce: 8 Bytes -> Algo")
    )
    assert asked(written, "--log", log) == 1
    errors = " ".join(capsys.readouterr().err.split())
    for words in (
        "the logs are of nccl 2.27.5, but the table is for nccl 2.30.7",
        "1 of 3 calls in the logs are on communicators that the logs do not tell: log the"
        " subsystems INIT,TUNING,COLL, or give --log-shape NODESxPPN",
        "1 of 3 calls in the logs are told without their collective, size or algorithm",
        "1 of 3 calls in the logs cannot be read",
    ):
        assert words in errors
    log.write_text(
        followed(table(LADDER)) + chose(512, "TREE", "LL") + chose(4096, "RING", "SIMPLE")
    )
    assert asked(written, "--log", log, "--log-shape", "2x8") == 0
    assert asked(written, "--log", log, "--log-shape", "1x16") == 1
    assert capsys.readouterr().err == ""


def followed(of: TuningTable) -> str:
    digest = with_digest_header(emit_sparse(of)).partition("\n")[0].split()[-1]
    return said(f"TUNER/tuner: 2 of 2 rules (fnv1a64 {digest}) are followed on 16 ranks, 2 nodes")


def test_whether_the_rules_were_at_work_is_told_by_the_plugin(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, log = table(LADDER), tmp_path / "train.log"
    ran = began() + chose(512, "TREE", "LL") + chose(4096, "RING", "SIMPLE")
    other = table([(0, AlgorithmChoice("ring_simple"))])
    spread = said("TUNER/tuner: 12 ranks are spread unevenly over 2 nodes: no rules are for them")
    aside = said("TUNER/tuner: NCCL_ALGO is set: no rules are followed")
    broken = said("TUNER/tuner: /x/rules.csv cannot be read: NCCL decides itself on this rank")
    for lines, status, words in (
        (followed(own) + spread, 0, ""),
        ("", 0, "no line of tuner's plugin (TUNER/tuner: ...) is in the logs"),
        (followed(other), 1, "some ranks followed other rules (fnv1a64"),
        (followed(own) + followed(other), 1, "some ranks followed other rules (fnv1a64"),
        (aside, 1, "on some ranks the plugin left calls to NCCL: NCCL_ALGO is set"),
        (followed(own) + broken, 1, "on some ranks the plugin left calls to NCCL: /x/rules.csv"),
    ):
        log.write_text(lines + ran)
        assert asked(written, "--log", log) == status, lines
        errors = " ".join(capsys.readouterr().err.split())
        assert words in errors
        assert bool(words) == bool(errors)


def test_mistakes_are_one_sentence(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, other, left = tmp_path / "t.log", tmp_path / "other.json", tmp_path / "left.json"
    log.write_text(began() + chose(512, "TREE", "LL"))
    (tmp_path / "empty").mkdir()
    write_table(table([(0, AlgorithmChoice("ring"))], library="openmpi 5.0.11"), other)
    write_table(table([(0, AlgorithmChoice())]), left)
    for words, status, sentence in (
        ((other, "--log", log), 1, "rules for openmpi are validated in the library itself"),
        ((left, "--log", log), 1, "expected a rule that names an algorithm"),
        ((written, "--log", log, "--hosts", "a,b"), 2, "leave --hosts out"),
        (
            (written, "--log", log, "--fallback-algorithm", "ring_ll"),
            2,
            "leave --fallback-algorithm out",
        ),
        ((written, "--log", log, "--commutative-only"), 2, "leave --commutative-only out"),
        ((written, "--log", tmp_path / "empty"), 1, "is a folder without files"),
        ((written, "--log", tmp_path / "no"), 1, "expected the path of a file"),
        ((written, "--log", tmp_path / ("n" * 300)), 1, "cannot be read: File name too long"),
        ((written, "--log-shape", "2x8"), 2, "give them, too (--log FILE)"),
        ((written,), 1, "nothing is validated: "),
        ((written,), 1, "--log FILE"),
    ):
        assert asked(*words) == status
        said = capsys.readouterr()
        assert sentence in " ".join(said.err.split())
        assert said.err.count("\n") == 1
        assert said.out == ""
    with pytest.raises(SystemExit):
        asked(written, "--log", log, "--log-shape", "2by8")
    assert "write it as NODESxPPN, such as 2x8" in " ".join(capsys.readouterr().err.split())


def test_large_logs_show_progress(
    written: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.cli.terminal.progress.LARGE_INPUT_BYTES", 1)
    (tmp_path / "t.log").write_text(began() + chose(512, "TREE", "LL") * 20_000)
    assert asked(written, "--log", tmp_path / "t.log") == 1
    assert "reading logs" in capsys.readouterr().err
