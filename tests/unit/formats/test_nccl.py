"""The CSV of NCCL's tuner plugin: what is written, how it decides, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ladders import CLUSTER, Rungs, table_of
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import nccl
from tuner.formats.nccl import PluginCall

ALLREDUCE, ALLGATHER, BCAST = Collective.ALLREDUCE, Collective.ALLGATHER, Collective.BCAST
TREE, RING = AlgorithmChoice("tree_ll128"), AlgorithmChoice("ring_simple", {"channels": 16})
OTHERWISE = AlgorithmChoice("tree_simple")


def on_gpus(
    ladders: dict[tuple[Collective, int], Rungs], library: str = "nccl 2.30.7", nodes: int = 1
) -> TuningTable:
    """The ladders on so many nodes, in device memory."""
    made = table_of({(c, p // nodes): rungs for (c, p), rungs in ladders.items()}, library=library)
    rules = (replace(r, key=replace(r.key, memory="cuda", nodes=nodes)) for r in made.rules)
    return TuningTable(CLUSTER, library, tuple(rules))


TABLE = on_gpus(
    {
        (ALLREDUCE, 16): [(0, TREE), (65536, AlgorithmChoice("nvls_simple")), (1 << 20, RING)],
        (ALLGATHER, 16): [(0, AlgorithmChoice("ring_ll")), (4096, AlgorithmChoice("pat_simple"))],
    },
    nodes=2,
)
FILE = """\
# collective,first,last,algorithm,protocol,channels,nodes,ranks (0 channels: NCCL's own)
allgather,0,4095,ring,ll,0,2,16
allgather,4096,18446744073709551615,pat,simple,0,2,16
allreduce,0,65535,tree,ll128,0,2,16
allreduce,65536,1048575,nvls,simple,0,2,16
allreduce,1048576,18446744073709551615,ring,simple,16,2,16
broadcast,0,18446744073709551615,ring,simple,0,-1,-1
reduce,0,18446744073709551615,ring,simple,0,-1,-1
allreduce,0,18446744073709551615,ring,simple,0,-1,-1
allgather,0,18446744073709551615,ring,simple,0,-1,-1
reducescatter,0,18446744073709551615,ring,simple,0,-1,-1
"""


def test_golden_file() -> None:
    assert nccl.emit(TABLE) == FILE


@pytest.mark.parametrize(
    ("call", "choice"),
    [
        (PluginCall(ALLREDUCE, 2, 16, 65535), TREE),
        (PluginCall(ALLREDUCE, 2, 16, 65536), AlgorithmChoice("nvls_simple")),
        (PluginCall(ALLREDUCE, 2, 16, (1 << 20) - 1), AlgorithmChoice("nvls_simple")),
        (PluginCall(ALLREDUCE, 2, 16, 1 << 20), RING),
        (PluginCall(ALLREDUCE, 2, 16, 1 << 33), RING),  # above 4 GiB the plugin's own sample ends
        (PluginCall(ALLREDUCE, 1, 16, 0), AlgorithmChoice("ring_simple")),
        (PluginCall(ALLREDUCE, 2, 8, 0), AlgorithmChoice("ring_simple")),
        (PluginCall(BCAST, 7, 7, 9, pipe_ops=3, registered=1), AlgorithmChoice("ring_simple")),
    ],
)
def test_decisions(call: PluginCall, choice: AlgorithmChoice) -> None:
    assert nccl.decide(nccl.parse(FILE), call) == choice


def test_what_is_left_to_nccl_needs_a_stand_in() -> None:
    table = on_gpus({(ALLREDUCE, 8): [(0, AlgorithmChoice()), (4096, RING)]})
    with pytest.raises(InputError, match=r"\[0, 4096\) bytes: 'default': .* one channel: name"):
        nccl.emit(table)
    text = nccl.emit(table, nccl.fallback_of("tree_simple"))
    rows = nccl.parse(text)
    assert nccl.decide(rows, PluginCall(ALLREDUCE, 1, 8, 4095)) == OTHERWISE
    assert nccl.decide(rows, PluginCall(ALLREDUCE, 3, 9, 4096)) == OTHERWISE
    assert nccl.decide(rows, PluginCall(BCAST, 1, 8, 1)) == AlgorithmChoice(
        "ring_simple"
    )  # it has no tree
    assert nccl.check(table, text, OTHERWISE) == []
    with pytest.raises(InputError, match="no way 'tree' for allreduce: choose one of"):
        nccl.fallback_of("tree")


def test_rccl_leaves_alone_what_no_row_is_for() -> None:
    table = on_gpus(
        {(ALLREDUCE, 8): [(0, AlgorithmChoice()), (4096, RING), (9999, AlgorithmChoice())]},
        "rccl 2.27",
    )
    text = nccl.emit(table)
    assert text.splitlines()[1:] == ["allreduce,4096,9998,ring,simple,16,1,8"]
    rows = nccl.parse(text, "rccl")
    found = [nccl.decide(rows, PluginCall(ALLREDUCE, 1, 8, n)) for n in (4095, 4096, 9998, 9999)]
    assert found == [None, RING, RING, None]
    assert nccl.parse(text.replace(",16,", ",-1,"), "rccl")[0].channels == -1


def test_operators_of_nccl_commute() -> None:
    made = table_of({(ALLREDUCE, 8): [(0, TREE)], (ALLREDUCE, 8, "commutative"): [(0, RING)]})
    rules = tuple(replace(r, key=replace(r.key, memory="cuda")) for r in made.rules)
    text = nccl.emit(TuningTable(CLUSTER, "nccl 2.30.7", rules))
    assert nccl.decide(nccl.parse(text), PluginCall(ALLREDUCE, 1, 8, 1)) == RING


@pytest.mark.parametrize(
    ("collective", "choice", "message"),
    [
        (
            ALLREDUCE,
            AlgorithmChoice("ring"),
            r"'ring': algorithm and protocol .* as in tree_ll, tree_ll128",
        ),
        (ALLREDUCE, AlgorithmChoice("pat_simple"), "NCCL has no allreduce 'pat_simple'"),
        (
            BCAST,
            AlgorithmChoice("tree_simple"),
            "NCCL has no bcast 'tree_simple'.*: .*, as in ring_ll,",
        ),
        (ALLREDUCE, AlgorithmChoice("nvls_ll"), "nvls_ll"),
        (ALLREDUCE, AlgorithmChoice("ring_ll", {"channels": 65}), "channels, of at most 64"),
        (ALLREDUCE, AlgorithmChoice("ring_ll", {"segment": 8}), "no parameter but channels"),
        (ALLREDUCE, AlgorithmChoice("ring_ll", runner="schedule"), "NCCL has no allreduce"),
        (Collective.GATHER, AlgorithmChoice("ring_ll"), "NCCL has no gather: drop"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(
    collective: Collective, choice: AlgorithmChoice, message: str
) -> None:
    with pytest.raises(InputError, match=rf"{collective} on 8 ranks, \[.*{message}"):
        nccl.emit(on_gpus({(collective, 8): [(0, RING), (64, choice)]}, "rccl 2.27"))


ROW = "allreduce,0,65535,tree,ll128,0,2,16\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected rows"),
        ("# nothing but words\n", "expected rows"),
        (ROW.replace("tree", "Tree"), "line 1: 'Tree,ll128' is not .* unknown algorithm for ring"),
        (ROW.replace("allreduce", "AllReduce"), "'AllReduce' is none of .* take it for allreduce"),
        (ROW.replace("ll128", "LL128"), "an unknown protocol for simple"),
        (ROW.replace(",0,2,16", ",-1,2,16"), "-1 would mean one channel"),
        (ROW.replace(",0,2,16", ",65,2,16"), "65 channels"),
        (ROW.replace(",2,16", ",2"), "has 7 fields of 8 to 10 and would be silently dropped"),
        (ROW.replace(",2,16", ",2,16,1,1,1"), "has 11 fields"),
        (" # indented comment\n" + ROW, "first column"),
        (ROW.replace("65535", "64k"), "'64k' is not a plain decimal number"),
        (ROW.replace("65535", "18446744073709551616"), "is not a plain decimal number"),
        (ROW.replace("65535", "٦٤"), "'٦٤' is not a plain decimal number"),
        ("allreduce\ud800", r"'allreduce\\ud800' has 1 fields of 8 to 10"),
        (ROW.replace(",0,65535", ",9,8"), "not 9 to 8 bytes"),
        (ROW.replace(",0,65535", ",-1,65535"), "not -1 to"),
        (ROW.replace("\n", "\r\n"), "is not a plain decimal"),
        (ROW.replace("2,16", "2,4294967312"), "would misread the number"),
        ("broadcast,0,32768,tree,simple,4,1,-1\n", "no broadcast by tree Simple: .* passed over"),
        (ROW.replace("\n", " " * 220 + "\n"), "longer than 254 characters"),
        (ROW + ROW.replace(",0,", ",9,"), "line 2: line 1 decides calls of this row before it"),
        (ROW.replace("2,16", "-1,-1") + ROW, "line 2: line 1 decides"),
        ("#\n\n" + ROW + ROW.replace("tree", "ring"), "line 4: line 3 decides"),
    ],
)
def test_files_that_the_plugin_would_drop_or_misread(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nccl.parse(text)


def test_a_general_row_may_follow_a_special_one() -> None:
    rows = nccl.parse(ROW + ROW.replace("2,16", "-1,-1").replace("tree", "ring"))
    assert nccl.decide(rows, PluginCall(ALLREDUCE, 2, 16, 0)) == TREE
    assert nccl.decide(rows, PluginCall(ALLREDUCE, 3, 16, 0)) == AlgorithmChoice("ring_ll128")
    assert nccl.decide(rows, PluginCall(ALLREDUCE, 3, 16, 65536)) is None


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        (",0,65535,tree", ",0,65534,tree", "65535 bytes on 2 nodes, 16 ranks: the table says tree"),
        ("ring,simple,16", "ring,simple,8", "the file says ring_simple(channels=8)"),
        ("pat,simple,0,2,16", "pat,simple,0,2,16,1", "the file says ring_simple"),
        ("reduce,0,", "reduce,1,", "reduce of 0 bytes"),
        ("broadcast,0", "broadcast,0,99,ring,ll,0,3,7\nbroadcast,0", "99 bytes on 3 nodes"),
        ("broadcast,0", "broadcast,0,99,ring,ll,0,-1,7\nbroadcast,0", "7 ranks"),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str) -> None:
    assert old in FILE
    found = nccl.check(TABLE, FILE.replace(old, new))
    assert any(difference in sentence for sentence in found), found


def test_the_samples_that_come_with_nccl(shared: Path) -> None:
    """NCCL's own sample has rows that do nothing, or put everything on one channel."""
    text = (shared / "data/samples/nccl/tuner_example.conf").read_text()
    with pytest.raises(InputError, match="line 26: -1 channels"):
        nccl.parse(text)
    with pytest.raises(InputError, match="no broadcast by tree"):
        nccl.parse(text, "rccl")
