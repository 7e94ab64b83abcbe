"""`tuner nccl`: what NCCL would choose, from the command line."""

import json
from pathlib import Path

import pytest

from tests.support.nodes import eight
from tuner.cli.main import main


def test_it_prints_the_choice_per_size(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["nccl", "estimate", "--topology", "preset:dgx-h100:4", "--sizes", "8,1MiB,1GiB"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "NCCL 2.30.7, allreduce of 32 GPUs on dgx-h100" in " ".join(printed.split())
    rows = [
        line.split()[:3] for line in printed.splitlines() if " Simple " in line or " LL" in line
    ]
    assert rows == [
        ["8B", "tree", "LL"],
        ["1MiB", "tree", "LL128"],
        ["1GiB", "nvls_tree", "Simple"],
    ]


def test_json_has_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "nccl",
        "estimate",
        "--topology",
        "preset:summit:64",
        "--version",
        "2.4.8",
        "--sizes",
        "64MiB",
    ]
    assert main([*words, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(r["algorithm"], r["chosen"]) for r in records] == [("ring", True), ("tree", False)]
    assert main([*words, "--all"]) == 0
    assert "chosen" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--topology", "preset:dgx-h100:1", "--ppn", "9"], "do not fit|one GPU per rank"),
        (["--topology", "preset:piz-daint:1"], "single rank"),
        (["--topology", "preset:dgx-h100:1", "--collective", "scatter"], "not for scatter"),
    ],
)
def test_what_cannot_be_answered(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["nccl", "estimate", "--sizes", "8", *words]) == 1
    error = capsys.readouterr().err
    assert any(part in error for part in sentence.split("|"))
    assert error.count("\n") == 1


def test_a_gpu_that_the_file_does_not_name_is_named_by_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix").write_text(eight(18, "PXB"))
    words = ["nccl", "estimate", "--topology", str(tmp_path / "matrix"), "--sizes", "1MiB"]
    assert main(words) == 1
    assert "or with --gpu of `tuner nccl estimate`" in capsys.readouterr().err
    assert main([*words, "--gpu", "GB200"]) == 0
    said = capsys.readouterr()
    assert "allreduce of 8 GPUs" in said.out
    assert said.err == ""
