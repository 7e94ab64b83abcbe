"""`tuner nccl`: what NCCL would choose, from the command line."""

import json
from pathlib import Path

import pytest

from tests.support.backend_times import write_times
from tests.support.nodes import eight
from tuner.cli.main import main


def test_it_prints_the_choice_per_size(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["nccl", "estimate", "--topology", "preset:dgx-h100:4", "--sizes", "8,1MiB,1GiB"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "NCCL 2.32.3, allreduce of 32 GPUs on dgx-h100" in " ".join(printed.split())
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


def test_an_upgrade_is_seen_in_predicted_times(capsys: pytest.CaptureFixture[str]) -> None:
    """Every algorithm takes the same time in both versions, which choose different ones."""
    words = ["nccl", "estimate", "--topology", "preset:dgx-b200:1", "--ppn", "4", "--json"]
    found = []
    for version in ("2.30.3", "2.32.3"):
        asked = ["--collective", "allgather", "--sizes", "16MiB", "--version", version]
        assert main([*words, *asked]) == 0
        records = json.loads(capsys.readouterr().out)
        predicted = {
            (one["algorithm"], one["protocol"]): one["predicted_seconds"] for one in records
        }
        (chosen,) = (one["protocol"] for one in records if one["chosen"])
        found.append((predicted, chosen))
    (before, old), (after, new) = found
    assert before == after
    assert (old, new) == ("Simple", "LL128")


def test_an_all_to_all_has_a_predicted_time_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["nccl", "estimate", "--topology", "preset:dgx-h100:1", "--collective", "alltoall"]
    assert main([*words, "--sizes", "128KiB,1GiB"]) == 0
    printed = capsys.readouterr().out
    assert "alltoall of 8 GPUs on dgx-h100: sends and receives" in " ".join(printed.split())
    small, large = (line.split() for line in printed.splitlines() if "pairwise" in line)
    assert small[:3] == ["128KiB", "pairwise", "LL"]
    assert large[:3] == ["1GiB", "pairwise", "Simple"]
    assert len(small) == len(large) == 5  # a time, and a rate
    assert "times of NCCL's all-to-all were off by" in " ".join(printed.split())
    assert main([*words, "--sizes", "1GiB", "--json"]) == 0
    ll, simple = sorted(json.loads(capsys.readouterr().out), key=lambda one: one["protocol"])
    assert [ll["chosen"], simple["chosen"]] == [False, True]
    assert ll["seconds"] is simple["seconds"] is None
    assert simple["predicted_seconds"] < ll["predicted_seconds"]
    assert main([*words, "--sizes", "1GiB", "--json", "--version", "2.20.3"]) == 0
    assert json.loads(capsys.readouterr().out) == [simple, ll]


def test_a_version_that_no_times_were_compared_with_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2.20 has no NVLSTree, with which the versions before and after it take 256 MiB."""
    words = ["nccl", "estimate", "--topology", "preset:dgx-h100:2", "--sizes", "256MiB"]
    chosen = {"2.19.1": "nvls_tree", "2.20.3": "ring", "2.27.3": "nvls_tree"}
    for version, algorithm in chosen.items():
        assert main([*words, "--version", version]) == 0
        printed = capsys.readouterr().out
        assert f"256MiB {algorithm} Simple" in " ".join(printed.split())
        told = "Times of NCCL before 2.27.3 were not compared" in " ".join(printed.split())
        assert told == (version != "2.27.3")


def test_any_release_counts_as_the_newest_that_is_not_newer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["nccl", "estimate", "--topology", "preset:dgx-h100:2", "--sizes", "1MiB"]
    assert main([*words, "--version", "2.27.5"]) == 0
    assert capsys.readouterr().out.startswith("NCCL 2.27.3, ")


def test_a_release_before_the_earliest_known_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["nccl", "estimate", "--topology", "preset:summit:2", "--sizes", "1MiB"]
    with pytest.raises(SystemExit):
        main([*words, "--version", "2.3.7"])
    assert "argument --version: cannot be '2.3.7'" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "is_told"), [("2.20.5", True), ("2.27.3", False)])
def test_a_version_that_is_older_than_the_gpus_is_told(
    version: str, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["nccl", "estimate", "--topology", "preset:dgx-b200:2", "--sizes", "1MiB"]
    assert main([*words, "--version", version]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ("counts GPUs of compute capability 10.0 as those of 9.0" in told) == is_told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--topology", "preset:dgx-h100:1", "--ppn", "9"], "do not fit|one GPU per rank"),
        (["--topology", "preset:piz-daint:1"], "single rank"),
        (["--topology", "preset:dgx-h100:1", "--collective", "scatter"], "not for scatter"),
        (["--topology", "preset:mi300x:1", "--collective", "alltoall"], "of sends and receives"),
        (
            ["--topology", "preset:dgx-h100:1", "--collective", "alltoall", "--version", "2.8.4"],
            "of sends and receives",
        ),
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


TIMES = {
    ("H100", "nccl", 8): (10, 10, 20, 40),
    ("H100", "vllm", 8): (5, 5, 10, 50),
    ("H100", "sglang", 8): (5, 5, 30, 50),
    ("H100", "nccl", 4): (10, 10, 20, 40),
    ("H100", "vllm", 4): (5, 5, 10, 20),
}


def test_backends_prints_cut_offs_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times, out = write_times(tmp_path / "times.csv", TIMES), tmp_path / "cut offs"
    words = ["nccl", "backends", str(times), "--gpu", "H100", "--out", str(out)]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "H100 vllm 1.0 8 up to 1MiB 25% 4MiB" in printed
    assert "H100 vllm 1.0 4 all sizes 4MiB" in printed
    assert 'vLLM: CUSTOM_ALL_REDUCE_MAX_SIZES["9.0"][8] = 1048592' in printed
    assert f"export PYTHONPATH='{out}'${{PYTHONPATH:+:$PYTHONPATH}}" in printed
    assert "SGLang with --tp 8: SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB=64" in printed
    assert "caution" not in printed
    assert "LIMITS = {'9.0': {8: 1048592}}" in (out / "tuner_vllm_cutoffs.py").read_text()


def test_backends_says_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["nccl", "backends", "--gpu", "B300", "--tp", "2", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "B200 vllm 0.24.0 2 up to 1MiB 26% 8MiB" in printed
    assert "B300 was not measured: these are cut-offs of B200, the nearest, and engines" in printed
    assert "vLLM: its own limits stay, and" in printed
    assert "SGLang: its own limit stays" in printed
    assert not (tmp_path / "out").exists()


def test_backends_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {("A100", "nccl", 2): (1, 1, 1, 1), ("A100", "vllm", 2): (2, 2, 2, 2)}
    times = write_times(tmp_path / "times.csv", slow)
    assert main(["nccl", "backends", str(times), "--gpu", "A100", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {
        "cut_offs": [
            {
                "gpu": "A100",
                "engine": "vllm",
                "version": "1.0",
                "gpus": 2,
                "nbytes": 0,
                "largest": 4 << 20,
                "gain": 1.0,
            }
        ],
        "vllm": {},
        "sglang": {},
        "cautions": [
            "on 2 GPUs NCCL is faster at all sizes: give vLLM --disable-custom-all-reduce"
        ],
    }


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["--tp", "3"], 1, "--tp 3: measured were 2, 4, 8 GPUs"),
        (["--out", "here"], 2, "--out needs --gpu, whose limits it writes"),
        (["--gpu", "H10"], 1, "unknown GPU 'H10': choose one of A100"),
        (["none.csv"], 1, "none.csv: expected the path of a file"),
    ],
)
def test_backends_refuses_in_a_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], status: int, sentence: str
) -> None:
    assert main(["nccl", "backends", *words]) == status
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
