"""`ucc.conf` and TUNE strings: what is written, how they decide, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.numbers import MISREAD
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats import ucc
from tuner.formats.ucc import Team
from tuner.formats.ucc.tune_strings import INFINITE_BYTES

ALLREDUCE, BCAST, ALLGATHER = Collective.ALLREDUCE, Collective.BCAST, Collective.ALLGATHER
KNOMIAL, SRA = AlgorithmChoice("knomial"), AlgorithmChoice("sra_knomial")


def rules_on(
    nodes: int, ladders: dict[tuple[Collective, int], Rungs], memory: str = "host"
) -> tuple[Rule, ...]:
    """Ladders of (collective, ppn) on so many nodes."""
    made = table_of(ladders)
    return tuple(replace(r, key=replace(r.key, nodes=nodes, memory=memory)) for r in made.rules)


def table(*rules: Rule, library: str = "ucc 1.8.0") -> TuningTable:
    return TuningTable(CLUSTER, library, rules)


TABLE = table(
    *rules_on(
        2,
        {
            (ALLREDUCE, 8): [(0, KNOMIAL), (4096, SRA)],
            (BCAST, 8): [(0, AlgorithmChoice()), (99, KNOMIAL)],
        },
    ),
    *rules_on(2, {(ALLREDUCE, 8): [(0, AlgorithmChoice("ring"))]}, "cuda"),
    *rules_on(4, {(ALLGATHER, 1): [(0, AlgorithmChoice("bruck")), (1 << 20, AlgorithmChoice())]}),
)
FILE = """\
# Tuning sections of tl/ucp: UCC_CONFIG_FILE names this file.

[team_size=16 ppn=8 nnodes=2]
UCC_TL_UCP_TUNE=allreduce:0-inf:cuda:inf:@ring#allreduce:0-4096:host:inf:@knomial#\
allreduce:4096-inf:host:inf:@sra_knomial#bcast:99-inf:host:inf:@knomial

[team_size=4 ppn=1 nnodes=4]
UCC_TL_UCP_TUNE=allgather:0-1048576:host:inf:@bruck
"""
BIG, SMALL = Team(2, 8), Team(4, 1)


def test_golden_file() -> None:
    assert ucc.emit(TABLE) == FILE


@pytest.mark.parametrize(
    ("collective", "team", "memory", "nbytes", "choice"),
    [
        (ALLREDUCE, BIG, "host", 4095, KNOMIAL),
        (ALLREDUCE, BIG, "host", 4096, SRA),
        (ALLREDUCE, BIG, "host", INFINITE_BYTES - 1, SRA),
        (ALLREDUCE, BIG, "cuda", 4095, AlgorithmChoice("ring")),
        (ALLREDUCE, BIG, "rocm", 4095, AlgorithmChoice()),
        (ALLREDUCE, Team(4, 4), "host", 4095, AlgorithmChoice()),
        (ALLREDUCE, SMALL, "host", 4095, AlgorithmChoice()),
        (BCAST, BIG, "host", 98, AlgorithmChoice()),
        (BCAST, BIG, "host", 99, KNOMIAL),
        (ALLGATHER, SMALL, "host", (1 << 20) - 1, AlgorithmChoice("bruck")),
        (ALLGATHER, SMALL, "host", 1 << 20, AlgorithmChoice()),
    ],
)
def test_decisions(
    collective: Collective, team: Team, memory: str, nbytes: int, choice: AlgorithmChoice
) -> None:
    assert ucc.decide(ucc.parse(FILE), collective, team, memory, nbytes) == choice


def test_what_ucc_ships_is_read_as_ucc_reads_it() -> None:
    """Units, numbers for names, ranges of teams, and what holds outside the sections."""
    conf = ucc.parse(
        "UCC_CL_BASIC_TLS=^sharp,nccl\n"
        "UCC_TL_UCP_TUNE=bcast:@dbt:[2-4,8,32-inf]:host,cuda\n"
        "; a comment\n"
        "[vendor=intel model=skylake team_size=8-9 ppn=1 nnodes=8]\n"
        "UCC_TL_UCP_ALLREDUCE_KN_RADIX=0-8k:host:8,8k-inf:host:2\n"
        "UCC_TL_UCP_TUNE=allreduce:0-4k:@0#allreduce:4kb-1M,2m-inf:@1\n"
    )

    def found(collective: Collective, team: Team, nbytes: int, memory: str = "host") -> str:
        return ucc.decide(conf, collective, team, memory, nbytes).algorithm

    eight = Team(8, 1)
    sizes = (4095, 4096, (1 << 20) - 1, 1 << 20, 2 << 20)
    assert [found(ALLREDUCE, eight, n) for n in sizes] == [
        "knomial",
        "sra_knomial",
        "sra_knomial",
        "default",
        "sra_knomial",
    ]
    assert found(BCAST, eight, 1) == "default", "a section's string replaces the one for all"
    teams = [Team(1, n) for n in (1, 2, 4, 5, 8, 31, 32, 10**6)]
    assert [found(BCAST, t, 1) == "dbt" for t in teams] == [0, 1, 1, 0, 1, 0, 1, 1]
    assert found(BCAST, Team(1, 2), 1, "rocm") == "default"


@pytest.mark.parametrize(
    ("collective", "choice", "message"),
    [
        (
            ALLREDUCE,
            AlgorithmChoice("binomial"),
            "no allreduce algorithm 'binomial' .*: it has knomial, sra",
        ),
        (
            BCAST,
            AlgorithmChoice("knomial", {"radix": 4}),
            "takes no parameters; radices are set by",
        ),
        (BCAST, AlgorithmChoice("knomial", runner="schedule"), "no bcast algorithm 'knomial'"),
        (Collective.GATHER, AlgorithmChoice("knomial"), "rules for gather are not supported"),
        (Collective.REDUCE_SCATTER, AlgorithmChoice("ring"), "bytes of a reduce_scatter in place"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(
    collective: Collective, choice: AlgorithmChoice, message: str
) -> None:
    rungs = [(0, AlgorithmChoice()), (64, choice)]
    with pytest.raises(InputError, match=rf"{collective} on 8 ranks, \[64, inf\) .*{message}"):
        ucc.emit(table(*rules_on(1, {(collective, 8): rungs})))


def test_earlier_releases_have_fewer_algorithms() -> None:
    rules = rules_on(1, {(ALLREDUCE, 8): [(0, AlgorithmChoice("ring"))]})
    with pytest.raises(InputError, match=r"ucc 1\.2\.0 has no allreduce algorithm 'ring'"):
        ucc.emit(table(*rules, library="ucc 1.2.0"))
    assert ucc.emit(table(*rules_on(1, {(ALLREDUCE, 8): [(0, SRA)]}), library="ucc 1.2.0"))


def test_a_line_that_ucc_would_break_is_refused() -> None:
    rungs = [(i, KNOMIAL if i % 2 else SRA) for i in range(300)]
    with pytest.raises(InputError, match="300 rules do not fit into the 8189 bytes"):
        ucc.emit(table(*rules_on(1, {(ALLREDUCE, 8): rungs})))
    with pytest.raises(InputError, match="line 1: longer than 8189 bytes"):
        ucc.parse("UCC_TL_UCP_TUNE=" + "x" * 8190)


HEAD = "[team_size=4 ppn=1 nnodes=4]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "UCC_TL_UCP_TUNE\n", "line 2: 'UCC_TL_UCP_TUNE' is not a UCC_NAME=VALUE"),
        (HEAD + "TUNE=allreduce:@ring\n", "line 2: .* is not a UCC_NAME=VALUE"),
        (HEAD + " UCC_TL_UCP_TUNE=allreduce:@ring\n", "from the first column on"),
        (HEAD + "UCC_TL_UCP_TUNE=allreduce:@ring\n" * 2, "line 3: UCC_TL_UCP_TUNE is listed twice"),
        (HEAD + "UCC_X=1 ; nothing\n", "for a comment"),
        ("[team_size=4\n", r"line 1: '\[team_size=4' is not a section"),
        ("[team size=4]\nUCC_X=1\n", "'team' is not a condition"),
        ("[ranks=4]\nUCC_X=1\n", "'ranks=4' is not a condition"),
        ("[ppn=4 ppn=4]\nUCC_X=1\n", "ppn is listed twice"),
        *((f"[team_size={number}]\nUCC_X=1\n", "team_size=.* is not ") for number in MISREAD),
        *((f"[ppn=1-{number}]\nUCC_X=1\n", "ppn=1-.* is not ") for number in MISREAD),
        ("[ppn=1-1000000000]\nUCC_X=1\n", "'ppn=1-1000000000' is not a condition"),
        ("UCC_\ud800", "'UCC_.ud800' is not a UCC_NAME=VALUE"),
        (f"[{'x' * 128}]\n", "not a section of at most 127"),
    ],
)
def test_files_that_ucc_would_drop_or_misread(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ucc.parse(text)


def test_sections_for_the_same_teams_are_refused() -> None:
    """UCC takes whichever comes last in a hash table."""
    line = "UCC_TL_UCP_TUNE=allreduce:@ring\n"
    with pytest.raises(InputError, match="left to chance"):
        ucc.parse(f"[team_size=2-8]\n{line}[nnodes=4 ppn=1]\n{line}")
    for ends in ("[team_size=2-8]", "[team_size=8-9]"), ("[ppn=8-9]", "[ppn=2-8]"):
        with pytest.raises(InputError, match="left to chance"):
            ucc.parse(f"{ends[0]}\n{line}{ends[1]}\n{line}")
    assert ucc.parse(f"[team_size=2-8]\n{line}[team_size=9-16]\n{line}")
    assert ucc.parse(f"[vendor=amd ppn=1]\n{line}[vendor=intel ppn=1]\n{line}")


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        (
            "allreduce:4k:@ring",
            "'4k' is not a qualifier that UCC knows; it would leave out the whole",
        ),
        ("allreduce:0-4k", "name a collective and an algorithm"),
        ("0-4k:@ring", "name a collective and an algorithm"),
        ("allreduce:@rng", "UCC has no allreduce algorithm 'rng'"),
        ("bcast:@ring", "UCC has no bcast algorithm 'ring'"),
        ("bcast:@3", "UCC has no bcast algorithm '3'"),
        *((f"allreduce:@{number}", "UCC has no allreduce algorithm") for number in MISREAD),
        *((f"allreduce:0-{number}:@ring", "is not a range of sizes") for number in MISREAD),
        *((f"allreduce:[1,{number}]:@ring", "'.* is not ") for number in MISREAD),
        *((f"allreduce:{number}:@ring", "'.* is not a qualifier") for number in MISREAD),
        ("allreduce:0-16777216t:@ring", "is not a range of sizes"),
        ("allreduce:[4294967296]:@ring", "not a list of numbers of ranks"),
        ("allreduce:0-4k:@ring:@dbt", "'@dbt' is not a second qualifier"),
        ("allreduce:0:@ring", "a score of 0 switches the range off"),
        ("allreduce:4k-1k:@ring", "the half-open range '4k-1k' must hold a size"),
        ("allreduce:0-4x:@ring", "'0-4x' is not a range of sizes"),
        ("allreduce:[8-2]:@ring", "not a list of numbers of ranks"),
        ("allreduce:[2-8:@ring", "is not "),
        ("allreduce:0-4k:@ring#", "'' is not a qualifier"),
        ("allreduce:0-4k:@ring#allreduce:4095-inf:@dbt", "overlap: UCC takes neither"),
        ("allreduce:0-4k,1k-inf:@ring#allreduce:cuda:@dbt", "overlap"),
    ],
)
def test_strings_that_ucc_would_leave_out(tune: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ucc.parse_tune(tune)


def test_what_differs_in_teams_or_memory_does_not_overlap() -> None:
    for tune in (
        "allreduce:host:@ring#allreduce:cuda:@dbt",
        "allreduce:@ring:[2-4]#allreduce:@dbt:[5]",
        "allreduce:0-4k:@ring#allreduce:4k-inf:@dbt",
        "allreduce:@ring#bcast:@dbt",
    ):
        assert len(ucc.parse_tune(tune)) == 2


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("0-4096:host", "0-4097:host", None),
        ("0-4096:host", "0-4095:host", "4095 bytes in host memory on 2 x 8 ranks"),
        ("4096-inf:host", "4096-8m:host", "8388608 bytes in host memory"),
        ("cuda:inf:@ring", "cuda,rocm:inf:@ring", "0 bytes in rocm memory"),
        ("nnodes=2]", "nnodes=2-3]", None),
        ("[team_size=4 ppn=1 nnodes=4]", "[ppn=1 nnodes=4-5]", "on 5 x 1 ranks"),
        ("[team_size=4 ppn=1 nnodes=4]", "[ppn=1-2 nnodes=4]", "on 4 x 2 ranks"),
        ("[team_size=4", "[vendor=amd team_size=4", "some processors only"),
        ("[team_size=4", "UCC_TL_SHM_TUNE=bcast:inf\n[team_size=4", "UCC_TL_SHM_TUNE decides"),
    ],
)
def test_check_sees_every_change(old: str, new: str, difference: str | None) -> None:
    assert old in FILE
    changed = FILE.replace(old, new)
    if difference is None and old.startswith("0-"):
        with pytest.raises(InputError, match="overlap"):
            ucc.check(TABLE, changed)
        return
    found = ucc.check(TABLE, changed)
    assert any((difference or "") in sentence for sentence in found) == bool(difference), found
