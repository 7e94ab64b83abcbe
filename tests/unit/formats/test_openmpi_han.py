"""The file that tells `han` which calls on several nodes belong to the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.ladders import Rungs, table_of
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats.openmpi import han
from tuner.formats.openmpi.han import HAN, TUNED

BCAST, ALLGATHER = Collective.BCAST, Collective.ALLGATHER
CHAIN, RING = AlgorithmChoice("chain", {"chains": 2}), AlgorithmChoice("ring")


def on_nodes(
    ladders: dict[tuple[Collective, int], Rungs], library: str = "openmpi 5.0.11"
) -> TuningTable:
    """Of communicators with two ranks on each node."""
    made = table_of(ladders)
    rules = (replace(r, key=replace(r.key, nodes=r.key.ppn // 2, ppn=2)) for r in made.rules)
    return TuningTable(made.cluster, library, tuple(rules))


TABLE = on_nodes(
    {
        (BCAST, 8): [(0, AlgorithmChoice()), (1024, CHAIN), (65536, AlgorithmChoice())],
        (ALLGATHER, 4): [(0, RING), (4000, AlgorithmChoice())],
    }
)
FILE = """\
2 # collectives
0 # allgather
1 # level
global_communicator
3 # communicator sizes
1 # ranks
1 # message sizes
0 han
4 # ranks
3 # message sizes
0 han
1 tuned
1000 han
5 # ranks
1 # message sizes
0 han
7 # bcast
1 # level
global_communicator
3 # communicator sizes
1 # ranks
1 # message sizes
0 han
8 # ranks
3 # message sizes
0 han
1024 tuned
65536 han
9 # ranks
1 # message sizes
0 han
"""


def test_golden_file() -> None:
    assert han.emit(TABLE) == FILE


@pytest.mark.parametrize(
    ("collective", "p", "nbytes", "component"),
    [
        (BCAST, 8, 1023, HAN),
        (BCAST, 8, 1024, TUNED),
        (BCAST, 8, 65535, TUNED),
        (BCAST, 8, 65536, HAN),
        (BCAST, 7, 1024, HAN),
        (BCAST, 9, 1024, HAN),
        (ALLGATHER, 4, 0, HAN),
        (ALLGATHER, 4, 4, TUNED),
        (ALLGATHER, 4, 3996, TUNED),
        (ALLGATHER, 4, 4000, HAN),
        (Collective.REDUCE, 8, 1024, HAN),
    ],
)
def test_who_answers(collective: Collective, p: int, nbytes: int, component: str) -> None:
    assert han.decide(han.parse(FILE), collective, p, nbytes) == component


def test_what_han_does_not_have_is_left_out() -> None:
    bruck = [(0, AlgorithmChoice("bruck"))]
    alone = on_nodes({(Collective.ALLTOALL, 4): bruck})
    assert not han.is_needed(alone)
    with pytest.raises(InputError, match="no rules for several nodes"):
        han.emit(alone)


def test_one_node_and_other_versions_have_no_such_file() -> None:
    with pytest.raises(InputError, match="no rules for several nodes"):
        han.emit(table_of({(BCAST, 4): [(0, CHAIN)]}))
    for version in ("4.1.8", "6.0.0"):
        with pytest.raises(InputError, match=rf"openmpi {version}: this file is for Open MPI 5"):
            han.emit(on_nodes({(BCAST, 4): [(0, CHAIN)]}, f"openmpi {version}"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("65536 han\n9", "9", "line 28: '9' are not 2 words"),
        ("2 # collectives", "3 # collectives", "it is truncated"),
        ("2 # collectives", "1 # collectives", "line 17: this is beyond the counted rules"),
        ("\n7 # bcast", "\n0 # bcast", "line 17: collective 0 is listed twice or unknown"),
        ("1024 tuned", "01024 tuned", "'01024' is not a plain decimal number"),
        ("1024 tuned", "1k tuned", "'1k' is not a plain decimal number"),
        ("1024 tuned", "1024 tunde", "'tunde' is none of han, tuned"),
        ("1024 tuned", "65537 tuned", "line 28: 65536 should be from 65538"),
        ("0 han\n1024", "1 han\n1024", "1 should be from 0 to 0"),
        ("1 # ranks", "2 # ranks", "line 6: 2 should be from 1 to 1"),
        ("\n9 # ranks", "\n7 # ranks", "7 should be from 9"),
        ("global_communicator", "inter_node", "only the level global_communicator"),
    ],
)
def test_files_that_the_library_would_drop_or_misread(old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(InputError, match=message):
        han.parse(FILE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("1024 tuned", "1025 tuned", "bcast of 1024 bytes on 8 ranks: han answers, not tuned"),
        ("65536 han", "65536 tuned", "bcast of 65536 bytes on 8 ranks: tuned answers"),
        ("1000 han", "1001 han", "allgather of 4000 bytes on 4 ranks: tuned answers"),
        ("9 # ranks", "10 # ranks", "bcast of 1024 bytes on 9 ranks: tuned answers"),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str) -> None:
    found = han.check(TABLE, FILE.replace(old, new))
    assert any(difference in sentence for sentence in found), found
