"""MV2_INTER_..._TUNING: what is written, how it decides, what is refused."""

from __future__ import annotations

import pytest

from tests.support.ladders import Rungs, table_of
from tests.support.numbers import MISREAD
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import mvapich2
from tuner.formats.mvapich2 import DIALECT
from tuner.formats.registry import FORMATS, ExportOptions

ALLREDUCE, BCAST = Collective.ALLREDUCE, Collective.BCAST
BINOMIAL, RING = AlgorithmChoice("binomial"), AlgorithmChoice("scatter_allgather_ring")


def table(ladders: dict[tuple[Collective, int], Rungs]) -> TuningTable:
    return table_of(ladders, library="mvapich2 2.3.7")


TABLE = table(
    {
        (BCAST, 8): [(0, BINOMIAL), (8192, RING), (1 << 20, AlgorithmChoice("two_level_pipeline"))],
        (ALLREDUCE, 8): [(0, AlgorithmChoice("recursive_doubling"))],
    }
)
FILE = """\
# mvapich2 2.3.7: rules for communicators of 8 ranks, in force for those of any size
export MV2_INTER_ALLREDUCE_TUNING='1'
export MV2_INTER_BCAST_TUNING='1:0-8191,5:8192-1048575,9:1048576-+'
"""


def test_golden_file() -> None:
    assert DIALECT.emit(TABLE) == FILE
    assert DIALECT.check(TABLE, FILE) == []


@pytest.mark.parametrize(
    ("nbytes", "name"),
    [
        (0, "binomial"),
        (8191, "binomial"),
        (8192, "scatter_allgather_ring"),
        ((1 << 20) - 1, "scatter_allgather_ring"),
        (1 << 40, "two_level_pipeline"),
    ],
)
def test_decisions(nbytes: int, name: str) -> None:
    assert DIALECT.decide(DIALECT.parse(FILE), BCAST, 8, nbytes) == AlgorithmChoice(name)


def test_order_is_kept_unless_every_operator_commutes() -> None:
    unsafe = table({(ALLREDUCE, 8): [(0, AlgorithmChoice("rabenseifner"))]})
    form = FORMATS["mvapich2"]
    with pytest.raises(InputError, match=r"allreduce on 8 ranks, \[0, inf\).* non-commutative"):
        form.emit(unsafe, ExportOptions())
    assert "='2'" in form.emit(unsafe, ExportOptions(commutative_only=True))[0]


def test_what_is_left_to_the_library_is_unset() -> None:
    text = DIALECT.emit(table({(BCAST, 8): [(0, RING)]}))
    assert text.endswith("unset MV2_INTER_ALLREDUCE_TUNING\n")
    assert list(DIALECT.parse(text)) == [BCAST]


def test_the_own_decision_has_no_number() -> None:
    mixed = table({(BCAST, 8): [(0, AlgorithmChoice()), (64, RING)]})
    with pytest.raises(InputError, match="has no number: name a fallback"):
        DIALECT.emit(mixed)
    assert "='1:0-63,5:64-+'" in DIALECT.emit(mixed, fallback=mvapich2.fallback_of("binomial"))
    with pytest.raises(InputError, match="no algorithm 'tree': choose one of"):
        mvapich2.fallback_of("tree")


def test_more_rules_than_places_are_refused() -> None:
    rungs = [(i, RING if i % 2 else BINOMIAL) for i in range(33)]
    with pytest.raises(InputError, match="at most 32 rules"):
        DIALECT.emit(table({(BCAST, 8): rungs}))


@pytest.mark.parametrize(
    ("collective", "choice", "message"),
    [
        (
            BCAST,
            AlgorithmChoice("knomial"),
            "no bcast algorithm 'knomial' .*: it has binomial, two_level",
        ),
        (BCAST, AlgorithmChoice("binomial", {"segment": 8}), "takes no parameters"),
        (BCAST, AlgorithmChoice("binomial", runner="schedule"), "no bcast algorithm"),
        (Collective.REDUCE, BINOMIAL, "rules for reduce are not supported"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(
    collective: Collective, choice: AlgorithmChoice, message: str
) -> None:
    with pytest.raises(InputError, match=rf"{collective} on 8 ranks, \[.*{message}"):
        DIALECT.emit(table({(collective, 8): [(0, BINOMIAL), (64, choice)]}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10", "neither one number nor 2 to 32 entries"),
        ("0", "neither one number"),
        *((number, "neither one number") for number in MISREAD),
        *((f"1:0-{number},5:8192-+", "is not a NUMBER:FIRST-LAST") for number in MISREAD),
        ("1:0-+", "neither one number"),
        ("1:0-8191,10:8192-+", "with one of .* run its first algorithm or fail"),
        ("1:0-8191,5", "'5' is not a NUMBER:FIRST-LAST"),
        ("1:0-8k,5:8192-+", "'1:0-8k' is not a NUMBER:FIRST-LAST"),
        ("1:0-8191, 5:8192-+", "is not a NUMBER:FIRST-LAST"),
        ("1:0-8191,5:8193-+", "'5:8193-\\+' should begin at 8192"),
        ("1:1-8191,5:8192-+", "should begin at 0"),
        ("1:0-2147483648,5:2147483649-+", "MVAPICH2 looks at the ends alone"),
        ("1:0-+,5:8192-+", "'5:8192-\\+' should begin"),
        ("1:0-8191,5:8192-9999", "takes all larger calls: end it in"),
        (",".join(f"1:{i}-{i}" for i in range(33)), "2 to 32 entries"),
    ],
)
def test_values_that_the_library_would_misread(value: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DIALECT.parse(f"export MV2_INTER_BCAST_TUNING='{value}'\n")


def test_other_variables_are_refused() -> None:
    with pytest.raises(InputError, match="MV2_INTRA_BCAST_TUNING is none of MV2_INTER_BCAST_TUN"):
        DIALECT.parse("export MV2_INTRA_BCAST_TUNING='1'\n")


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("8191,5:8192", "8190,5:8191", "bcast of 8191 bytes on 8 ranks: the table says binomial"),
        ("9:1048576", "8:1048576", "bcast of 1048576 bytes"),
        ("ALLREDUCE_TUNING='1'", "ALLREDUCE_TUNING='2'", "allreduce of 0 bytes"),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str) -> None:
    assert old in FILE
    found = DIALECT.check(TABLE, FILE.replace(old, new))
    assert any(difference in sentence for sentence in found), found
