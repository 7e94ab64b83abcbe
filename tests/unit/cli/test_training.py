"""The commands of predicted training: what they print and write, and one sentence for bad input."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.workloads import RECORD
from tuner.base.signals import EXIT_SIGNAL
from tuner.cli.main import main
from tuner.cli.views.training_sweep_view import format_cost
from tuner.training.sweep import format_epoch
from tuner.training.workload import read_workload

RACKS = Path(__file__).parents[3] / "docs" / "examples" / "racks.yaml"
SWEEP = {
    "vary": {"bandwidth": ["1GB/s", "2GB/s"]},
    "epoch": 1_000_000,
    "cost": {"node": 50_000, "gpu": 0, "nic": 1000, "switch": 9000, "cable": 100},
}


def written(folder: Path, **changed: Any) -> str:
    """Write a workload; keys that become None are left out."""
    record = {key: value for key, value in {**RECORD, **changed}.items() if value is not None}
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump(record))
    return str(path)


def test_run_prints_what_a_user_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published = [{"ranks": 8, "efficiency": "71%", "source": "a poster"}]
    assert main(["training", "run", written(tmp_path, published=published)]) == 0
    text = capsys.readouterr().out
    assert "AlexNet on eight nodes" in text
    (row,) = [line for line in text.splitlines() if line.startswith("    8  ") and "71" in line]
    assert "  71.0%  " in row
    for words in ("images/s", "where the time goes", "times as fast with this twice as fast"):
        assert words in text
    assert "calls of an iteration on 8 ranks" in text
    assert "ring" in text
    assert "via schedule" not in text
    assert "One rank alone: 500 images/s (given: the workload)" in text
    assert "Published for 8 ranks: a poster" in text
    assert "Accuracy on flat: simulated times were not compared" in " ".join(text.split())


def test_run_writes_json_csv_and_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, trace = tmp_path / "all.csv", tmp_path / "trace.json"
    outputs = ["--json", "--csv", str(table), "--trace", str(trace)]
    assert main(["training", "run", written(tmp_path), *outputs]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [point["ranks"] for point in record["points"]] == [1, 4, 8]
    assert record["accuracy"] == (
        "Accuracy on flat: simulated times were not compared with measurements."
    )
    assert record["points"][2]["limits"]["computation"] > 1.0
    assert record["points"][2]["calls"][0]["nbytes"] > 0
    rows = list(csv.DictReader(table.open()))
    assert [int(row["ranks"]) for row in rows] == [1, 4, 8]
    for row, point in zip(rows, record["points"], strict=True):
        assert float(row["seconds"]) == point["seconds"]
        shares = sum(float(value) for name, value in row.items() if name.startswith("share_"))
        assert shares == pytest.approx(1.0)
    assert json.loads(trace.read_text())["traceEvents"]


def test_tokens_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, model="gpt2_small", batch=2, rate=10, ranks=2)
    assert main(["training", "run", path, "--no-limits"]) == 0
    text = capsys.readouterr().out
    assert "tokens/s" in text
    assert "One rank alone: 10,240 tokens/s" in text
    assert "twice as fast" not in text


def test_tune_prints_settings_and_writes_the_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, framework={"name": "horovod", "cycle_time": "50ms"})
    out = tmp_path / "tuned.yaml"
    assert main(["training", "tune", path, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "times as fast" in text
    assert "cycle_time=50ms" in text
    assert "  export HOROVOD_CYCLE_TIME=" in text
    tuned: Any = read_workload(out).framework
    assert tuned.cycle_time < 50e-3
    assert main(["training", "tune", path, "--ranks", "4", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["ranks"] == 4
    assert record["speedup"] > 1.0
    assert record["before"]["settings"]["cycle_time"] == 0.05
    assert record["after"]["seconds"] < record["before"]["seconds"]


def test_sweep_prints_time_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "all.csv"
    path = written(tmp_path, **SWEEP)
    assert main(["training", "sweep", path, "--csv", str(table), "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "AlexNet on eight nodes: time and cost of an epoch" in text
    assert "In short: " in text
    assert "Bandwidth 2GB/s against 1GB/s: " in text
    assert "Prices of parts are spread over 4 years (default) of use" in text
    rows = list(csv.DictReader(table.open()))
    assert [(row["ranks"], row["bandwidth"]) for row in rows] == [
        (ranks, rate) for ranks in ("1", "4", "8") for rate in ("1000000000.0", "2000000000.0")
    ]
    assert main(["training", "sweep", path, "--json", "--jobs", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [point["epoch_cost"] for point in record["points"]] == [
        pytest.approx(float(row["cost"])) for row in rows
    ]


@pytest.mark.extended
@pytest.mark.slow
def test_plots_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "plots"
    assert main(["training", "run", written(tmp_path), "--plots", str(folder)]) == 0
    path = written(tmp_path, **SWEEP)
    assert main(["training", "sweep", path, "--plots", str(folder), "--jobs", "1"]) == 0
    names = ("scaling", "shares", "timeline", "sweep-ranks", "sweep-bandwidth")
    assert {file.name for file in folder.iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }
    assert "6 plots are in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": None}, "the workload lacks 'model'"),
        ({"model": "resnet51"}, "unknown model 'resnet51' (did you mean 'resnet50'?)"),
        ({"colour": 1}, "the workload has an unknown key"),
        ({"batch": -1}, "batch must be a whole number from 1"),
        ({"framework": "keras"}, "framework: 'keras' is none of horovod"),
        (
            {"framework": {"name": "horovod", "cycle_time": "-5ms"}},
            "framework horovod: cycle_time: '-5ms' is not a time",
        ),
        ({"ranks": 64, "topology": str(RACKS)}, "64 ranks need 64 nodes of 1 rank,"),
        ({"algorithms": "none.json"}, "none.json"),
        ({"topology": "none.yaml"}, "none.yaml"),
        ({"noise": 2}, "noise is a share from 0 to 1, such as 2%, not 2"),
        ({"published": [{"ranks": 8}]}, "published: result 1 must have one of"),
        (
            {"model": "llama2_7b", "topology": "preset:summit", "algorithms": None, "ranks": 6},
            "llama2_7b needs 100GiB on each of 6 ranks",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_workloads_are_one_sentence(
    changed: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for action, option in (("run", "--csv"), ("tune", "--out")):
        words = ["training", action, written(tmp_path, **changed), option, str(out)]
        assert main(words) == 1
        said = capsys.readouterr()
        error = [line for line in said.err.splitlines() if line.startswith("tuner: ")][-1]
        assert reason in error
        assert said.out == ""
        assert not out.exists()


@pytest.mark.parametrize("action", ["run", "tune", "sweep"])
def test_unreadable_files_are_one_sentence(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content, reason in (
        ("none.yaml", None, "none.yaml: cannot be read: No such file or directory"),
        ("bytes.yaml", b"\xff\xfe\x00", "bytes.yaml: not text in UTF-8"),
        ("list.yaml", b"[1, 2]", "list.yaml: the "),
        ("broken.yaml", b"a: [1", "broken.yaml: "),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert main(["training", action, str(path)]) == 1
        assert reason in capsys.readouterr().err


def test_inputs_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    for words in (["run", path, "--trace", path], ["tune", path, "--out", path]):
        assert main(["training", *words]) == 1
        assert "is read as well: give another name to write to" in capsys.readouterr().err
    assert yaml.safe_load(Path(path).read_text())["model"] == "alexnet"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["run", "--csv"], "tuner.training.scaling.predict_iteration"),
        (["tune", "--out"], "tuner.training.search.predict_iteration"),
        (["sweep", "--csv"], "tuner.training.sweep.predict_iteration"),
    ],
    ids=["run", "tune", "sweep"],
)
def test_an_interruption_leaves_nothing(
    words: list[str],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, ended)
    action, option = words
    extra = ["--jobs", "1"] if action == "sweep" else []
    out = tmp_path / "out"
    vary = SWEEP["vary"] if action == "sweep" else None
    asked = ["training", action, written(tmp_path, vary=vary), option, str(out), *extra]
    assert main(asked) == EXIT_SIGNAL + signal.SIGINT
    assert "tuner: interrupted; nothing was written that is not whole" in capsys.readouterr().err
    assert not out.exists()


def test_times_and_costs_of_epochs() -> None:
    assert [format_epoch(seconds) for seconds in (90.0, 300.0, 10_000.0)] == [
        "90s",
        "5min",
        "2.78h",
    ]
    assert [format_cost(cost) for cost in (0.01234, 12.345, 12_345.6)] == [
        "0.0123",
        "12.3",
        "12,346",
    ]


def test_published_results_for_other_ranks_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = [{"ranks": ranks, "efficiency": "71%"} for ranks in (8, 16)]
    path = written(tmp_path, published=published)
    assert main(["training", "run", path, "--no-limits"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "caution: published results for 16 ranks are compared only if ranks has 16" in told


def test_a_trace_without_calls_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5, "pid": 1, "tid": 1}
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    path = tmp_path / "workload.yaml"
    record = {"recorded": "trace.json", "topology": RECORD["topology"], "ranks": 2}
    path.write_text(yaml.safe_dump({**record, "algorithms": "best"}))
    assert main(["training", "run", str(path)]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "caution: trace has no collective calls, so that computation alone is predicted" in told


@pytest.mark.parametrize("action", ["run", "tune"])
def test_errors_of_predictions_name_the_file(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, framework={"name": "megatron", "tensor": 2}, ranks=4)
    assert main(["training", action, path]) != 0
    assert (
        f"{path}: megatron: the model must be a transformer, not alexnet"
        in capsys.readouterr().err.replace("\n", " ")
    )
