"""The classic rules file of Open MPI: what is written, how it is read back, what is refused."""

from __future__ import annotations

import time

import pytest

from tests.support.ladders import CLUSTER, table_of
from tests.support.numbers import MISREAD
from tuner import algorithms, mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.formats import openmpi
from tuner.formats.openmpi.rules import RuleLine, render
from tuner.mpi_libraries.openmpi import ALGORITHMS

BCAST, ALLREDUCE, ALLTOALL = Collective.BCAST, Collective.ALLREDUCE, Collective.ALLTOALL
CHAIN = AlgorithmChoice("chain", {"chains": 2, "segment": 8192})
SPLIT = AlgorithmChoice("split_binary", {"segment": 1024})
TABLE = table_of(
    {
        (BCAST, 4): [
            (0, AlgorithmChoice()),
            (1024, CHAIN),
            (65536, AlgorithmChoice("scatter_allgather_ring")),
        ],
        (ALLREDUCE, 2): [(0, AlgorithmChoice("recursive_doubling"))],
        (ALLREDUCE, 2, "commutative"): [
            (0, AlgorithmChoice("recursive_doubling")),
            (4096, AlgorithmChoice("ring")),
        ],
    }
)
FILE = """\
2 # collectives
2 # allreduce
3 # communicator sizes
0 # ranks
1 # message sizes
0 0 0 0 # default
2 # ranks
1 # message sizes
0 3 0 0 # recursive_doubling
3 # ranks
1 # message sizes
0 0 0 0 # default
7 # bcast
3 # communicator sizes
0 # ranks
1 # message sizes
0 0 0 0 # default
4 # ranks
3 # message sizes
0 0 0 0 # default
1024 2 2 8192 # chain(chains=2, segment=8192)
65536 9 0 0 # scatter_allgather_ring
5 # ranks
1 # message sizes
0 0 0 0 # default
"""


def test_golden_file() -> None:
    assert openmpi.emit(TABLE) == FILE


@pytest.mark.parametrize(
    ("p", "nbytes", "choice"),
    [
        (4, 1023, AlgorithmChoice()),
        (4, 1024, CHAIN),
        (4, 65535, CHAIN),
        (4, 65536, AlgorithmChoice("scatter_allgather_ring")),
        (4, 1 << 40, AlgorithmChoice("scatter_allgather_ring")),
        (3, 65536, AlgorithmChoice()),
        (5, 65536, AlgorithmChoice()),
        (1000, 65536, AlgorithmChoice()),
    ],
)
def test_decisions(p: int, nbytes: int, choice: AlgorithmChoice) -> None:
    assert openmpi.decide(openmpi.parse(FILE), BCAST, p, nbytes) == choice


def test_without_a_fence_smaller_communicators_get_the_first_entry() -> None:
    rules = openmpi.parse("1\n7\n1\n4\n1\n0 6 0 0\n")
    assert openmpi.decide(rules, BCAST, 2, 1) == AlgorithmChoice("binomial")


def test_commutative_rules_only_on_request() -> None:
    text = openmpi.emit(TABLE, commutative_only=True)
    assert openmpi.decide(openmpi.parse(text), ALLREDUCE, 2, 4096) == AlgorithmChoice("ring")
    assert openmpi.check(TABLE, text, commutative_only=True) == []
    assert "4096 bytes on 2 ranks" in openmpi.check(TABLE, text)[0]


@pytest.mark.parametrize("algorithm", ["ring", "segmented_ring", "rabenseifner"])
def test_algorithms_for_operators_that_commute_are_refused(algorithm: str) -> None:
    table = table_of({(ALLREDUCE, 2): [(0, AlgorithmChoice()), (64, AlgorithmChoice(algorithm))]})
    with pytest.raises(InputError, match=rf"\[64, inf\).*{algorithm}.*non-commutative"):
        openmpi.emit(table)


def test_no_line_names_a_segment_for_calls_without_data() -> None:
    text = openmpi.emit(table_of({(BCAST, 3): [(0, SPLIT)]}))
    assert "2 # message sizes\n0 0 0 0 # default\n1 4 0 1024 # split_binary(segment=1024)" in text
    rules = openmpi.parse(text)
    assert [openmpi.decide(rules, BCAST, 3, n) for n in (0, 1)] == [AlgorithmChoice(), SPLIT]


def test_a_gather_with_a_segment_would_depend_on_the_size() -> None:
    sync = AlgorithmChoice("linear_sync", {"segment": 1024})
    openmpi.emit(table_of({(Collective.GATHER, 3): [(0, AlgorithmChoice("linear_sync"))]}))
    with pytest.raises(InputError, match="gather that depend on the size make programs hang"):
        openmpi.emit(table_of({(Collective.GATHER, 3): [(0, sync)]}))


@pytest.mark.parametrize(("algorithm", "segment"), [(4, 1024), (2, 1), (6, 1 << 20)])
def test_a_file_that_ends_programs_is_refused(algorithm: int, segment: int) -> None:
    with pytest.raises(InputError, match=r"line 6: .*segment.*let the rule start at 1 byte$"):
        openmpi.parse(f"1\n7\n1\n0\n1\n0 {algorithm} 2 {segment}\n")
    openmpi.parse(f"1\n7\n1\n0\n1\n0 {algorithm} 2 0\n")  # without a segment none of them fails
    openmpi.parse(f"1\n7\n1\n0\n2\n0 0 0 0\n1 {algorithm} 2 {segment}\n")


def test_algorithms_that_refuse_a_number_of_ranks_are_refused() -> None:
    two = table_of({(Collective.ALLGATHER, 2): [(0, AlgorithmChoice("two_proc"))]})
    assert openmpi.check(two, openmpi.emit(two)) == []
    with pytest.raises(InputError, match="two_proc is refused by 3 ranks, and every call would"):
        openmpi.emit(table_of({(Collective.ALLGATHER, 3): [(0, AlgorithmChoice("two_proc"))]}))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            AlgorithmChoice("swing"),
            r"\[64, inf\) bytes: 'swing': .* no bcast algorithm 'swing': it has",
        ),
        (AlgorithmChoice("linear", {"segment": 8}), "takes no parameter 'segment'"),
        (AlgorithmChoice("knomial", {"radix": 2}), "one radix, 4, for the whole program"),
    ],
)
def test_inexpressible_rules_are_refused_by_name(choice: AlgorithmChoice, message: str) -> None:
    with pytest.raises(InputError, match=message):
        openmpi.emit(table_of({(BCAST, 2): [(0, AlgorithmChoice()), (64, choice)]}))


def test_gather_must_not_depend_on_size() -> None:
    split = table_of(
        {(Collective.GATHER, 4): [(0, AlgorithmChoice()), (64, AlgorithmChoice("binomial"))]}
    )
    with pytest.raises(InputError, match="hang"):
        openmpi.emit(split)
    whole = table_of({(Collective.GATHER, 4): [(0, AlgorithmChoice("binomial"))]})
    assert "\n0 2 0 0 # binomial\n" in openmpi.emit(whole)


def test_sizes_are_those_of_the_whole_buffer() -> None:
    """As in Open MPI, which multiplies what a rank gives to an allgather by the ranks."""
    table = table_of(
        {
            (Collective.ALLGATHER, 8): [
                (0, AlgorithmChoice("bruck")),
                (8000, AlgorithmChoice("ring")),
            ]
        }
    )
    text = openmpi.emit(table)
    assert "\n8000 4 0 0 # ring\n" in text
    rules = openmpi.parse(text)
    found = [openmpi.decide(rules, Collective.ALLGATHER, 8, n).algorithm for n in (7999, 8000)]
    assert found == ["bruck", "ring"]


def test_keys_with_the_same_ranks_must_agree() -> None:
    def table(other: str) -> TuningTable:
        spread = [RuleKey(BCAST, 1, 4), RuleKey(BCAST, 2, 2)]
        rules = [
            Rule(key, 0, float("inf"), AlgorithmChoice(name), Evidence("measured"))
            for key, name in zip(spread, ["binomial", other], strict=True)
        ]
        return TuningTable(CLUSTER, "openmpi 5.0.11", tuple(rules))

    assert openmpi.emit(table("binomial")).count("0 6 0 0") == 1
    with pytest.raises(InputError, match=r"1 nodes x 4 ranks .* and 2 nodes x 2 ranks .* differ"):
        openmpi.emit(table("linear"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.rsplit("\n", 3)[0], "truncated"),
        ("", "truncated"),
        (FILE + "7\n", "line 26: 7 is beyond the counted rules"),
        (FILE.replace("1024 2 2 8192", "1024 2 2 8192 5"), "line 21: a row of 5 numbers where 4"),
        (FILE.replace("1024 2 2 8192", "1024 2 2"), "line 21: a row of 3 numbers where 4"),
        (FILE.replace("1024 2 2", "1024 17 2"), "line 21: algorithm 17 does not exist"),
        (FILE.replace("1024 2 2", "1024 10 2"), "line 21: algorithm 10 does not exist, .* is 9"),
        *(
            (FILE.replace("1024 2 2", f"{number} 2 2"), "line 21: .* is not a plain decimal")
            for number in MISREAD
        ),
        *(
            (f"rule-file-version-{number}\n{FILE}", "line 1: 'rule-file-version-.* is not a plain")
            for number in MISREAD
        ),
        (FILE.replace("1024 2 2 8192", "1024 2\n2 8192"), "line 21: a row of 2 numbers where 4"),
        ("1\n7\n1\n0\n1 0 1 0\n0\n", "line 5: a row of 4 numbers"),
        (FILE.replace("1024 2 2 8192 #", "9 1024 2 2 8192 #"), "line 21: a row of 5 numbers"),
        (FILE.replace("1024 2 2", "1k 2 2"), "line 21: '1k' is not a plain decimal"),
        (FILE.replace("1024 2 2", "-1 2 2"), "'-1' is not a plain decimal"),
        (FILE.replace("1024 2 2", "70000 2 2"), "sizes must ascend"),
        (FILE.replace("3 # message sizes\n0 0", "3 # message sizes\n1 0"), "must start at 0"),
        (FILE.replace("5 # ranks", "4 # ranks"), "communicator size 4 follows 4"),
        (FILE.replace("7 # bcast", "5 # reduce_local"), "line 13: collective 5 is unknown"),
        (FILE.replace("7 # bcast", "2 # again"), "collective 2 is listed twice"),
        ("# comment first\nrule-file-version-2\n" + FILE, "line 2: 'rule-file-version-2' is not"),
        ("rule-file-version-0\n" + FILE, "version 0 is not known"),
        ("rule-file-version-3\n" + FILE, "version 3 is not known"),
        ("rule-file-version-2\n1\n7\n1\n2\n2\n0 6 0\n1 6 0 0\n", "a row of 3 numbers where 4"),
    ],
)
def test_files_that_the_library_would_drop_or_misread(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        openmpi.parse(text)


def test_a_long_file_takes_no_longer_for_each_rule() -> None:
    rows = "".join(f"{size} 1 0 0\n" for size in range(20_000))
    begun = time.process_time()
    rules = openmpi.parse(f"1\n7\n1\n0\n20000\n{rows}")
    assert time.process_time() - begun < 5  # where each row looks through all others: minutes
    assert openmpi.decide(rules, BCAST, 4, 1) == AlgorithmChoice("linear")


def test_version_two_has_a_fifth_column() -> None:
    rules = openmpi.parse("rule-file-version-2\n1\n7\n1\n2\n2\n0 0 0 0 0\n1 6 0 1024 3\n")
    assert openmpi.decide(rules, BCAST, 2, 1) == AlgorithmChoice("binomial", {"segment": 1024})
    assert openmpi.parse("rule-file-version-2\n" + FILE) == openmpi.parse(FILE)  # it is optional


LIMITED = AlgorithmChoice("spread_out", {"requests": 16})


def test_requests_in_flight_need_version_two() -> None:
    rungs = [(0, AlgorithmChoice("bruck")), (8192, LIMITED)]
    table = table_of({(ALLTOALL, 64): rungs, (BCAST, 64): [(0, AlgorithmChoice("binomial"))]})
    text = openmpi.emit(table)
    assert text.startswith("rule-file-version-2\n2 # collectives\n3 # alltoall\n")
    assert "\n8192 4 0 0 16 # spread_out(requests=16)\n" in text
    assert "\n0 6 0 0 0 # binomial\n" in text
    rules = openmpi.parse(text)
    assert openmpi.decide(rules, ALLTOALL, 64, 8192) == LIMITED
    assert openmpi.decide(rules, ALLTOALL, 64, 8191) == AlgorithmChoice("bruck")
    assert openmpi.decide(rules, ALLTOALL, 64, 0).is_default  # as a call in place is counted
    assert openmpi.check(table, text.replace("0 0 16 #", "0 0 8 #")) != []
    without = openmpi.emit(table_of({(ALLTOALL, 64): rungs[:1]}))
    assert without.startswith("1 # collectives")


@pytest.mark.parametrize(
    "library", ["openmpi 4.1.4", "openmpi 4.0.7", "openmpi 5.0.6", "spectrummpi 10.4.0"]
)
def test_earlier_releases_cannot_limit_requests(library: str) -> None:
    assert not mpi_libraries.openmpi.is_expressible(ALLTOALL, LIMITED, library)
    assert mpi_libraries.openmpi.is_expressible(ALLTOALL, AlgorithmChoice("bruck"), library)
    assert not mpi_libraries.openmpi.is_expressible(ALLTOALL, LIMITED, "openmpi 3.1.6")
    with pytest.raises(InputError, match=f"rules files of {library} cannot limit the requests"):
        openmpi.emit(table_of({(ALLTOALL, 64): [(0, LIMITED)]}, library=library))
    newest = openmpi.emit(table_of({(ALLTOALL, 64): [(0, LIMITED)]}))
    older = table_of({(ALLTOALL, 64): [(0, LIMITED)]}, library=library)
    assert f"{library} reads no files of version 2" in openmpi.check(older, newest)[0]


@pytest.mark.parametrize("library", ["openmpi 4.1.8", "openmpi 5.0.7", "openmpi 6.0.0", ""])
def test_later_releases_can_limit_requests(library: str) -> None:
    assert mpi_libraries.openmpi.is_expressible(ALLTOALL, LIMITED, library)


@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE, ALLTOALL])
@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("nbytes", [4, 64, 65536, 1 << 20])
def test_candidates_are_distinct_known_and_legal(
    collective: Collective, p: int, nbytes: int
) -> None:
    arms = mpi_libraries.openmpi.candidates(collective, p, nbytes)
    assert arms[0].is_default
    assert len(set(arms)) == len(arms)
    for arm in arms[1:]:
        if arm.algorithm == "two_proc":  # a pairwise exchange, for which we have no name
            continue
        algorithm = algorithms.describe(collective, arm.algorithm)
        assert set(arm.params) <= set(algorithm.params)
        assert arm.params.get("segment", 0) < nbytes


def test_large_messages_see_every_algorithm() -> None:
    for collective in (BCAST, ALLREDUCE):
        offered = {
            arm.algorithm for arm in mpi_libraries.openmpi.candidates(collective, 4, 1 << 20)
        }
        assert offered == set(ALGORITHMS[collective])
        assert offered <= {
            *algorithms.algorithm_names(collective),
            "default",
        }  # so they can be simulated


def test_the_default_is_not_forced() -> None:
    assert not mpi_libraries.openmpi.settings(BCAST, AlgorithmChoice())
    for choice in mpi_libraries.openmpi.candidates(BCAST, 8, 1 << 20)[1:]:
        assert mpi_libraries.openmpi.settings(BCAST, choice)["coll_tuned_bcast_algorithm"]
    assert mpi_libraries.openmpi.settings(BCAST, CHAIN) == {
        "coll_tuned_bcast_algorithm": 2,
        "coll_tuned_bcast_algorithm_segmentsize": 8192,
        "coll_tuned_bcast_algorithm_chain_fanout": 2,
    }


FENCE, LINEAR = RuleLine(0, 0), RuleLine(0, 1)
BCAST_ROWS = (
    FENCE,
    RuleLine(100, 3),
    RuleLine(200, 0),
    RuleLine(1024, 2, 2, 8192),
    RuleLine(65536, 9),
)
BCAST_ENTRIES = openmpi.parse(FILE).collectives[7]


@pytest.mark.parametrize(
    ("number", "entries", "difference"),
    [
        (7, ((0, (FENCE,)), (4, BCAST_ROWS), (5, (FENCE,))), "100 bytes on 4 ranks"),
        (7, (*BCAST_ENTRIES, (64, (LINEAR,)), (65, (FENCE,))), "64 ranks"),
        (11, ((0, (LINEAR,)),), "no rules for reduce"),
    ],
)
def test_check_sees_what_the_table_does_not_have(
    number: int, entries: tuple[tuple[int, tuple[RuleLine, ...]], ...], difference: str
) -> None:
    rules = {**openmpi.parse(FILE).collectives, number: entries}
    assert difference in openmpi.check(TABLE, render(openmpi.ClassicRules(rules)))[0]


def test_open_mpi_6_would_read_the_file_otherwise() -> None:
    table = TuningTable(CLUSTER, "openmpi 6.0.0", TABLE.rules)
    with pytest.raises(
        InputError, match=r"openmpi 6\.0\.0 reads .* differently.*--format openmpi-json"
    ):
        openmpi.emit(table)
