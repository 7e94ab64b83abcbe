"""I_MPI_ADJUST_...: what is written, how it decides, what is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.numbers import MISREAD
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable
from tuner.formats import intelmpi
from tuner.formats.intelmpi import DIALECT
from tuner.mpi_libraries.intelmpi import MAX_PRESETS, choice_of

ALLREDUCE, BCAST, ALLGATHER = Collective.ALLREDUCE, Collective.BCAST, Collective.ALLGATHER
ONE, FIVE = choice_of(1), choice_of(5)


def table(ladders: dict[tuple[Collective, int], Rungs]) -> TuningTable:
    return table_of(ladders, library="intelmpi 2021.18.1")


TABLE = table(
    {
        (ALLREDUCE, 3): [(0, FIVE), (1024, choice_of(16)), (4096, ONE)],
        (BCAST, 3): [(0, AlgorithmChoice())],
        (ALLGATHER, 3): [(0, choice_of(3)), (3000, choice_of(2))],
    }
)
FILE = """\
# intelmpi 2021.18.1: rules for communicators of 3 ranks, in force for those of any size
export I_MPI_ADJUST_ALLGATHER='3:0-999;2'
export I_MPI_ADJUST_ALLREDUCE='5:0-1023;16:1024-4095;1'
unset I_MPI_ADJUST_ALLTOALL
unset I_MPI_ADJUST_BARRIER
unset I_MPI_ADJUST_BCAST
unset I_MPI_ADJUST_GATHER
unset I_MPI_ADJUST_REDUCE
unset I_MPI_ADJUST_SCATTER
"""


def test_golden_file() -> None:
    assert DIALECT.emit(TABLE) == FILE
    assert DIALECT.check(TABLE, FILE) == []


@pytest.mark.parametrize(
    ("collective", "nbytes", "preset"),
    [
        (ALLREDUCE, 0, 5),
        (ALLREDUCE, 1023, 5),
        (ALLREDUCE, 1024, 16),
        (ALLREDUCE, 4095, 16),
        (ALLREDUCE, 4096, 1),
        (ALLREDUCE, 1 << 40, 1),
        (ALLGATHER, 2997, 3),
        (ALLGATHER, 3000, 2),
    ],
)
def test_decisions(collective: Collective, nbytes: int, preset: int) -> None:
    assert DIALECT.decide(DIALECT.parse(FILE), collective, 3, nbytes) == choice_of(preset)


def test_a_file_forgets_what_another_one_has_set() -> None:
    other = DIALECT.emit(table({(BCAST, 3): [(0, FIVE)], (ALLREDUCE, 3): [(0, ONE)]}))
    names = [f"I_MPI_ADJUST_{c.upper()}" for c in MAX_PRESETS]
    script = "\n".join([other, FILE, *(f"printenv {name} || echo -" for name in names)])
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["3:0-999;2", "5:0-1023;16:1024-4095;1", *(["-"] * 6)]


def test_rules_for_less_than_a_byte_of_each_rank_get_no_entry() -> None:
    rungs = [(0, FIVE), (3000, ONE), (3001, FIVE), (3002, ONE), (6000, choice_of(2))]
    text = DIALECT.emit(table({(ALLGATHER, 3): rungs}))
    assert "export I_MPI_ADJUST_ALLGATHER='5:0-999;1:1000-1000;1:1001-1999;2'" in text


def test_the_own_decision_has_no_number() -> None:
    mixed = table({(ALLREDUCE, 4): [(0, AlgorithmChoice()), (1024, FIVE)]})
    with pytest.raises(InputError, match=r"\[0, 1024\) bytes: 'default': .*has no number"):
        DIALECT.emit(mixed)
    text = DIALECT.emit(mixed, fallback=intelmpi.fallback_of("preset_1"))
    assert "='1:0-1023;5'\n" in text
    assert "a fallback must be named" in DIALECT.check(mixed, text)[0]
    with pytest.raises(InputError, match="it has preset_0 to preset_32"):
        intelmpi.fallback_of("ring")


def test_one_file_is_for_one_number_of_ranks() -> None:
    several = table({(ALLREDUCE, 4): [(0, FIVE)], (ALLREDUCE, 8): [(0, ONE)]})
    with pytest.raises(InputError, match=r"the table has \[4, 8\]: choose one"):
        DIALECT.emit(several)
    assert "='1'" in DIALECT.emit(several, 8)
    assert "8 ranks" in DIALECT.check(several, DIALECT.emit(several, 4), 8)[0]
    with pytest.raises(InputError, match=r"no rules for 5 ranks, but for \[4, 8\]"):
        DIALECT.emit(several, 5)


def test_commutative_rules_only_on_request() -> None:
    made = table_of({(ALLREDUCE, 4): [(0, ONE)], (ALLREDUCE, 4, "commutative"): [(0, FIVE)]})
    assert "='1'" in DIALECT.emit(made)
    assert "='5'" in DIALECT.emit(made, commutative_only=True)


@pytest.mark.parametrize(
    ("collective", "choice", "message"),
    [
        (ALLREDUCE, AlgorithmChoice("ring"), "no allreduce 'ring': it has preset_0 to preset_32"),
        (BCAST, AlgorithmChoice("preset_23"), "it has preset_0 to preset_22"),
        (BCAST, AlgorithmChoice("preset_01"), "no bcast 'preset_01'"),
        (BCAST, AlgorithmChoice("preset_1", {"segment": 8}), "takes no parameters"),
        (BCAST, AlgorithmChoice("preset_1", runner="schedule"), "no bcast"),
        (Collective.REDUCE_SCATTER, ONE, "reduce_scatter are not supported"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(
    collective: Collective, choice: AlgorithmChoice, message: str
) -> None:
    with pytest.raises(InputError, match=rf"{collective} on 8 ranks, \[.*{message}"):
        DIALECT.emit(table({(collective, 8): [(0, ONE), (64, choice)]}))


def test_rules_for_device_memory_and_huge_bounds_are_refused() -> None:
    rule = TABLE.rules[0]
    device = replace(rule, stop_bytes=float("inf"), key=replace(rule.key, memory="cuda"))
    with pytest.raises(InputError, match="cannot be limited to 'cuda'"):
        DIALECT.emit(TuningTable(CLUSTER, "intelmpi 2021.18.1", (device,)))
    with pytest.raises(InputError, match="bounds up to 2147483647 bytes"):
        DIALECT.emit(table({(BCAST, 8): [(0, ONE), (1 << 32, FIVE)]}))


def line(value: str, name: str = "ALLREDUCE") -> str:
    return f"export I_MPI_ADJUST_{name}='{value}'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line("5:0-1k;1"), "'5:0-1k' is not a PRESET or PRESET:FIRST-LAST in bytes"),
        (line("5:0-1023@4;1"), "is not a PRESET or"),
        (line("5 : 0-1023 ; 1"), "is not a PRESET or"),
        (line("5:0-1023;"), "'' is not a PRESET or"),
        (line("5:4095;1"), "'5:4095' is not a PRESET or"),
        (line("-1"), "'-1' is not a PRESET"),
        *((line(number), "'.* is not a PRESET or") for number in MISREAD),
        *((line(f"5:0-{number};1"), "'5:0-.* is not a PRESET or") for number in MISREAD),
        (line(""), "'' is not a PRESET"),
        (line("5:0-1023,1"), "is not a PRESET or"),
        (line("33"), "no preset 33, the largest is 32"),
        (line("23", "BCAST"), "no preset 23, the largest is 22"),
        (line("5:0-1023;16:2048-4095;1"), "'16:2048-4095' should begin at 1024"),
        (line("5:1024-4096;1"), "should begin at 0"),
        (line("5:0-1023;16:1024-1023;1"), "should begin at 1024 and end above"),
        (line("5:0-1023;16:1024-4095"), "the last entry '16:1024-4095' takes all larger"),
        (line("5;16:0-100"), "nothing is left for '16:0-100'"),
        (line("5:0-2147483648;1"), "at most at 2147483647"),
        (line("5", "IBCAST"), "I_MPI_ADJUST_IBCAST is none of"),
        ("unset I_MPI_ADJUST_IBCAST\n", "I_MPI_ADJUST_IBCAST is none of"),
        (line("5") + "unset I_MPI_ADJUST_ALLREDUCE\n", "line 2: .* is set twice"),
        ("unset I_MPI_ADJUST_ALLREDUCE I_MPI_ADJUST_BCAST\n", "or unset NAME"),
        (line("5") * 2, "line 2: I_MPI_ADJUST_ALLREDUCE is set twice"),
        ("I_MPI_ADJUST_ALLREDUCE=5\n", "line 1: .* is not an export NAME='VALUE'"),
        ("export I_MPI_ADJUST_ALLREDUCE=5;16\n", "is not an export"),
    ],
)
def test_values_that_the_library_would_misread_or_leave_out(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DIALECT.parse(text)


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("0-1023;16:1024", "0-1022;16:1023", "allreduce of 1023 bytes on 3 ranks: the table says"),
        ("4095;1", "4095;2", "allreduce of 4096 bytes"),
        ("0-999", "0-998", "allgather of 2997 bytes"),
        ("unset I_MPI_ADJUST_GATHER\n", line("3", "GATHER"), "gather of 0 bytes"),
        ("unset I_MPI_ADJUST_BCAST\n", line("7", "BCAST"), "bcast of 0"),
        (
            "export I_MPI_ADJUST_ALLGATHER='3:0-999;2'",
            "unset I_MPI_ADJUST_ALLGATHER",
            "allgather of 0 bytes on 3 ranks: the table says preset_3; the variables say default",
        ),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str) -> None:
    assert old in FILE
    found = DIALECT.check(TABLE, FILE.replace(old, new))
    assert any(difference in sentence for sentence in found), found
