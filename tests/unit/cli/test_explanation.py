"""`tuner table explain`: the printed screen, its JSON, and what must be given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.trees import Node
from tuner.cli.main import main

RULES = """2  # collectives
2  # allreduce
2  # sizes of communicators
16
1
0 2 0 0
5
2
0 1 0 0
65536 5 0 8192
0  # allgather
1
2
2
0 6 0 0
1024 8 0 0
"""
HEAD = "my.rules: 5 rules in the format openmpi, as Open MPI 5.0 reads it\n"
CAUTIONS = """\
caution: line 7: communicator size 5 follows 16; sizes must ascend
caution: line 10: segmented_ring is for commutative operators: with another one Open MPI gives \
wrong results or runs a slower algorithm
caution: line 15: two_proc is refused by 3 ranks: such calls fail
caution: line 16: algorithm 8 does not exist, the largest is 7
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("my.rules").write_text(RULES)
    return "my.rules"


def explain(*words: str) -> int:
    return main(["table", "explain", *words])


ASKED = ("--collective", "allreduce", "--ranks", "64", "--size", "256KiB")


def test_a_call_is_decided_by_a_line(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(rules, *ASKED, "--nodes", "1") == 0
    assert capsys.readouterr().out == (
        f"{HEAD}allreduce of 256KiB on 64 ranks (1 x 64): segmented_ring (segment=8KiB),"
        " algorithm 5, by line 10\n  line 10: 65536 5 0 8192\n"
        "  calls: ranks 16 and more, bytes 65536 and more\n"
        "caution: segmented_ring runs as ring because a share of 262144/64 bytes is below a"
        f" segment\n{CAUTIONS}"
    )


def test_what_decides_before_the_file_is_named(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "caution: on several nodes han takes this call before these rules"
    assert explain(rules, *ASKED) == 0
    assert said in capsys.readouterr().out
    assert explain(rules, *ASKED, "--library", "openmpi@4.1.4") == 0
    assert said not in capsys.readouterr().out
    leaf: Node = {"comm_type=intra": {"algorithm=MPIR_Bcast_intra_binomial": {}}}
    Path(rules).write_text(json.dumps({"collective=bcast": leaf}))
    assert explain(rules, "--collective", "bcast") == 0
    assert "caution: the device layer answers before this file: set" in capsys.readouterr().out


def test_a_rule_in_json_is_found_by_its_place(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(rules).write_text(
        '{"rule_file_version": 3, "module": "tuned", "collectives": {"bcast": [{"rules": [\n'
        '{\n"alg": 6}]}]}}'
    )
    asked = ("--collective", "bcast", "--ranks", "8", "--nodes", "1", "--size", "8")
    assert explain(rules, *asked) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "bcast of 8B on 8 ranks (1 x 8): binomial, algorithm 6, by line 2",
        "  calls: bcast, entry 0, rule 0: all calls",
    ]


def test_without_a_call_only_the_file_is_checked(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(rules) == 0
    assert capsys.readouterr().out == HEAD + CAUTIONS
    Path(rules).write_text("1\n7\n1\n0\n1\n0 6 0 0\n")
    assert explain(rules, "--library", "openmpi@5.0.9") == 0
    assert capsys.readouterr().out == (
        "my.rules: 1 rule in the format openmpi, as Open MPI 5.0.9 reads it\n"
        "every rule is reached by some call, and nothing in it is known to do harm\n"
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('{"rule_file_version": 3, "module": "tuned", "collectives": {}}', "Open MPI 6.0"),
        ("MPIR_CVAR_BCAST_INTRA_ALGORITHM=tree\n", "MPICH 5.0"),
        ("broadcast,0,99,ring,ll,4,2,-1\n", "NCCL"),
        ("UCC_TL_UCP_TUNE=bcast:@dbt\n", "UCC"),
    ],
)
def test_the_library_that_is_assumed_is_named_with_its_release(
    text: str, title: str, rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(rules).write_text(text)
    assert explain(rules) == 0
    assert f", as {title} reads it\n" in capsys.readouterr().out


def test_a_file_without_rules_is_not_praised(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(rules).write_text("# nothing\n")
    assert explain(rules, "--library", "nccl") == 0
    assert capsys.readouterr().out == (
        "my.rules: 0 rules in the format nccl, as NCCL reads it\nthe file has no rules\n"
    )


def test_one_rank_is_not_on_several_nodes(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(rules).write_text("1\n7\n1\n0\n1\n0 6 0 0\n")
    assert explain(rules, "--collective", "bcast", "--ranks", "1", "--size", "8") == 0
    said = capsys.readouterr().out
    assert "by line 6" in said
    assert "several nodes" not in said


def test_only_the_beginning_of_a_long_line_is_shown(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [{"rules": [{"alg": 6}]}] * 50
    root = {"rule_file_version": 3, "module": "tuned", "collectives": {"bcast": entries}}
    Path(rules).write_text(json.dumps(root))
    assert explain(rules, "--collective", "bcast", "--ranks", "4", "--nodes", "1") == 0
    shown = next(
        one for one in capsys.readouterr().out.splitlines() if one.startswith("  line 1: {")
    )
    assert shown.endswith(" ...")
    assert len(shown) < 100


def test_a_call_without_a_rule_is_left_to_the_library(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(rules, "--collective", "bcast", "--nodes", "4", "--ppn", "2", "--size", "8") == 0
    said = "bcast of 8B on 8 ranks (4 x 2): no rule is for it, Open MPI decides\n"
    assert said in capsys.readouterr().out


def test_the_record_names_the_lines(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(rules, *ASKED, "--library", "openmpi@4.1.4", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["library"] == "openmpi 4.1.4"
    assert (record["format"], record["rules"]) == ("openmpi", 5)
    assert record["decision"]["line"] == 10
    assert record["decision"]["note"].startswith("segmented_ring runs as ring")
    assert {"lines": [16], "text": "algorithm 8 does not exist, the largest is 6"} in record[
        "cautions"
    ]


def test_what_was_assumed_of_a_call_is_said(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(rules).write_text("allreduce,0,99,ring,ll,4,2,-1,1,-1\n")
    asked = ("--collective", "allreduce", "--size", "8")
    assert explain(rules, *asked, "--nodes", "2", "--ppn", "8") == 0
    assert "  assumed: one call at a time\n" in capsys.readouterr().out
    assert explain(rules, *asked) == 2
    said = capsys.readouterr().err
    assert "line 1 of the file decides by nodes: give --nodes or --ppn, with --ranks" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ranks", "8"), "of which collective? give --collective, too"),
        (("--library", "openmp@5"), "unknown library 'openmp' (did you mean 'openmpi'?)"),
        (("--library", "openmpi@5..0"), "expected a version as in openmpi@4.1.4, got '5..0'"),
        (("--library", "openmpi@"), "expected a version as in openmpi@4.1.4, got ''"),
        (("--library", "@5.0"), "unknown library ''"),
        (("--library", "openmpi@new"), "expected a version as in openmpi@4.1.4, got 'new'"),
        (
            ("--library", "mpich"),
            "my.rules: expected a rules file in one of the formats mpich-device",
        ),
        (("--collective", "allreduce", "--size", "8"), "decides by ranks: give --ranks"),
    ],
)
def test_what_is_missing_is_named(
    rules: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(rules, *words) != 0
    assert message in capsys.readouterr().err
