"""`tuner open`: files of every kind, two runs, and a run beside a machine."""

import gzip
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.call_profile import CallProfile, ProfiledCall, write_call_profile
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.importers import UserMetadata, write_measurements
from tuner.overview import Overview, open_file

OSU = """# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)
1024                    20.0
65536                   80.0
"""
FLAT = "name: flat8\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n"
TRACE: dict[str, Any] = {
    "distributedInfo": {"world_size": 8, "rank": 0},
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 900,
         "pid": 1, "tid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 500, "pid": 1, "tid": 1},
    ],
}  # fmt: skip
CLUSTER = Cluster("one", 8, 1, "", 0)
RULES = "a rules file ({})"
KEY = RuleKey(Collective.BCAST, 8, 1)


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def _opened(path: Path, text: str, **told: Any) -> Overview:
    return open_file(_written(path, text), UserMetadata(**told))


def _json(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_results_say_what_they_are_and_lack(tmp_path: Path) -> None:
    found = _opened(tmp_path / "osu.txt", OSU)
    assert found.kind == "benchmark results (osu)"
    assert found.facts == [
        "allreduce of 1KiB to 64KiB; times: mean over ranks",
        "it does not say where it was measured: add --ranks and --nodes",
    ]
    words = [shlex.split(one.text) for one in found.commands]
    assert words[0][:3] == ["tuner", "import-results", str(tmp_path / "osu.txt")]
    assert "--ranks" in words[0]


def test_options_complete_results(tmp_path: Path) -> None:
    found = _opened(tmp_path / "osu.txt", OSU, p=64, nodes=8)
    assert found.facts == [
        "allreduce of 1KiB to 64KiB on 64 ranks of 8 nodes; times: mean over ranks"
    ]
    assert not found.unknown
    assert "--ranks 64 --nodes 8" in found.commands[0].text


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"ppn": 3}, "add --nodes and --ranks"),
        ({"nodes": 3}, "add --ppn"),
        ({"p": 8}, "add --nodes"),
    ],
    ids=["ranks per node", "nodes", "ranks"],
)
def test_one_count_alone_lacks_another(told: dict[str, int], said: str, tmp_path: Path) -> None:
    found = _opened(tmp_path / "osu.txt", OSU, **told)
    assert found.facts[-1] == f"it does not say where it was measured: {said}"
    ((name, value),) = told.items()
    assert f"--{'ranks' if name == 'p' else name} {value} " in found.commands[0].text


def test_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    gather = OSU.replace("Allreduce", "Allgather")
    assert _opened(tmp_path / "osu.txt", gather).facts[0].startswith("allgather of 1KiB to 64KiB;")


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 4"):
        _opened(tmp_path / "osu.txt", OSU.replace("80.0", "eighty"))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("flat.yaml", FLAT, "a machine"),
        ("trace.json", json.dumps(TRACE), "a recorded iteration of training"),
        ("study.yaml", "name: s\ntopology: a\ncollectives: [bcast]\nsizes: [1KiB]\n", "a study"),
        (
            "job.yaml",
            "model: resnet50\nbatch: 64\nframework: horovod\ntopology: preset:summit\nranks: 6\n",
            "a training workload",
        ),
        (
            "recorded.yaml",
            "recorded: t.json\ntopology: preset:summit\nranks: 6\n",
            "a training workload of a recorded iteration",
        ),
        ("my.rules", "1 # collectives\n7\n1\n2\n1\n0 3 0 0\n", RULES.format("openmpi")),
        (
            "rules.json",
            '{"rule_file_version": 3, "module": "tuned", "collectives": {"bcast": []}}',
            RULES.format("openmpi-json"),
        ),
        ("layers.csv", "name,forward_ms,backward_ms,elements\nfc,1,2,1000\n", "a model"),
    ],
)
def test_each_kind_is_known_by_its_content(tmp_path: Path, name: str, text: str, kind: str) -> None:
    found = _opened(tmp_path / name, text)
    assert found.kind == kind
    assert found.commands


def test_a_rules_file_is_asked_about_a_collective_that_it_has(tmp_path: Path) -> None:
    (explain,) = _opened(tmp_path / "my.rules", "1\n7\n1\n2\n1\n0 3 0 0\n").commands
    assert "--collective bcast " in explain.text


def test_a_trace_says_on_which_gpus_it_was_recorded(tmp_path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    found = _opened(tmp_path / "t.json", json.dumps({**TRACE, "deviceProperties": devices}))
    assert found.facts[0].endswith(", recorded on 8 ranks on NVIDIA H100 80GB HBM3")


def test_bytes_of_several_calls_are_together(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[256]], "Input type": ["float"]}
    calls = [
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": moment, "dur": 5,
         "pid": 1, "tid": 1, "args": shapes} for moment in (600, 700)
    ]  # fmt: skip
    for number, said in ((1, "1 call of 1KiB"), (2, "2 calls of 2KiB together")):
        events = [*TRACE["traceEvents"], *calls[:number]]
        found = _opened(tmp_path / "t.json", json.dumps({**TRACE, "traceEvents": events}))
        assert found.facts[-1] == f"allreduce: {said}"


@pytest.mark.parametrize(
    "text",
    ['{"workload_graph": []}', '{"version": "0.0.4"}{"id": "1"}', '{"schema": "1", "nodes": []}'],
)
def test_json_of_chakra_is_called_what_it_is(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Chakra as JSON|PyTorch's execution trace"):
        _opened(tmp_path / "t.json", text)


def test_files_of_tuner_are_known(tmp_path: Path) -> None:
    rule = Rule(KEY, 0, math.inf, AlgorithmChoice("binomial"), Evidence("none"))
    table = tmp_path / "table.json"
    write_table(TuningTable(CLUSTER, "openmpi 5.0.11", (rule,), {}), table)
    profile = tmp_path / "solver.profile"
    write_call_profile(profile, CallProfile("solver", (ProfiledCall("bcast", 2, 4, 1024, 10),)))
    probe = tmp_path / "probe.ndjson"
    series = Measurement("collective", "bcast", 8, 1, 8, 1024, (1e-5, 2e-5), "default")
    begun = {"when": "2026-11-29T16:17:59Z"}
    write_measurements(Measurements(CLUSTER, "openmpi 5.0.11", begun, (series,)), probe)
    found = [open_file(str(one), UserMetadata()) for one in (table, profile, probe)]
    kinds = [one.kind for one in found]
    assert kinds == ["a tuning table", "a profile of calls", "measurements"]
    assert "measured on 2026-11-29" in found[-1].facts[0]


def test_a_database_is_known(tmp_path: Path) -> None:
    path = tmp_path / "tuner.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    assert "tuner serve" in open_file(str(path), UserMetadata()).commands[0].text


def test_a_damaged_table_of_layers_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layers.csv: line 1: .*forward"):
        _opened(tmp_path / "layers.csv", "name,parameters\nfc,1000\n")


def test_any_other_text_names_the_known_forms(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in no form that is read \(results of OSU.*'Dear"):
        _opened(tmp_path / "letter.txt", "Dear all,\nhello\n")


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [], "metadata": {"kernelspec": {\n"name": "python3"}}}',
        '"""Ask a service."""\n\nimport json\n\nasked = {\n    "nodes": 1}\n',
    ],
    ids=["notebook", "program"],
)
def test_keys_inside_a_file_of_another_form_make_no_topology(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in no form that is read"):
        _opened(tmp_path / "file", text)


def test_a_damaged_topology_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 4: not YAML"):
        _opened(tmp_path / "flat.yaml", "# ours\n" + FLAT.replace("nodes: 8", "nodes: [8"))


def test_the_summary_says_what_it_compares_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _compared(tmp_path, capsys, (OSU, SLOWER))
    assert found["summary"] == (
        "calls take 1.22 times as long as before (geometric mean of 2): 1 over 5 % slower, 0 over"
        " 5 % faster"
    )


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.txt: expected the path of a file"):
        open_file(str(tmp_path / "gone.txt"), UserMetadata())


def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _written(tmp_path / "before.txt", OSU)
    after = _written(tmp_path / "after.txt", OSU.replace("80.0", "120.0"))
    (found,) = _json(["open", before, after], capsys)["comparisons"]
    assert found["columns"] == ["before", "after"]
    assert [one["ratio"] for one in found["calls"]] == pytest.approx([1.0, 1.5])


def test_a_run_is_compared_with_a_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, flat = _written(tmp_path / "osu.txt", OSU), _written(tmp_path / "flat.yaml", FLAT)
    words = ["open", results, flat, "--ranks", "8", "--nodes", "8"]
    (found,) = _json(words, capsys)["comparisons"]
    assert found["columns"] == ["predicted", "measured"]
    main(
        ["simulate", "--topology", flat, "--collective", "allreduce", "--sizes", "64KiB", "--json"]
    )
    best = json.loads(capsys.readouterr().out)[0]
    last = found["calls"][-1]
    assert (last["algorithm"], last["reference"]) == (
        best["algorithm"], pytest.approx(best["seconds"])
    )  # fmt: skip
    assert last["ratio"] == pytest.approx(80e-6 / best["seconds"])


def test_what_cannot_be_compared_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, flat = _written(tmp_path / "osu.txt", OSU), _written(tmp_path / "flat.yaml", FLAT)
    (found,) = _json(["open", results, flat], capsys)["comparisons"]
    assert found["note"].endswith("does not say where it was measured: add --ranks and --nodes")
    (found,) = _json(["open", results, flat, "--ranks", "16", "--nodes", "16"], capsys)[
        "comparisons"
    ]
    assert found["note"] == (
        "not compared: 16 ranks do not fit on topology flat8: 8 nodes x 1 rank per node = 8: give"
        " more ranks per node (--ppn), fewer ranks, or a larger machine"
    )


def test_unlike_statistics_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSU.replace("Latency(us)", "Latency(us)  Min Latency(us)  Max Latency(us)  Iterations")
    full = full.replace("20.0", "20.0 18.0 25.0 100").replace("80.0", "80.0 70.0 95.0 100")
    names = [_written(tmp_path / "mean.txt", OSU), _written(tmp_path / "full.txt", full)]
    (found,) = _json(["open", *names], capsys)["comparisons"]
    assert found["note"] == (
        "not compared: the times before are mean over ranks, those after slowest rank"
    )


def test_a_run_on_known_ranks_is_not_compared_with_one_on_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = "collective,p,nodes,nbytes,median_us\nallreduce,2,1,1024,20\n"
    names = [_written(tmp_path / "osu.txt", OSU), _written(tmp_path / "table.csv", table)]
    (found,) = _json(["open", *names], capsys)["comparisons"]
    assert "osu.txt does not say where it was measured" in found["note"]


def test_slower_calls_are_named_in_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _written(tmp_path / "before.txt", OSU)
    after = _written(tmp_path / "after.txt", OSU.replace("80.0", "120.0"))
    (found,) = _json(["open", before, after], capsys)["comparisons"]
    assert "--collectives allreduce --sizes 65536" in found["commands"][0]["text"]


def _compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], texts: tuple[str, str], *words: str
) -> Any:
    """Return the comparison of two results, the later of which is slower."""
    names = [_written(tmp_path / f"{n}.txt", text) for n, text in enumerate(texts, 1)]
    return _json(["open", *names, *words], capsys)["comparisons"][0]


SLOWER = OSU.replace("80.0", "120.0")
PLACED = ("--ranks", "8", "--nodes", "2")
CLASSIC = "1\n2\n1\n8\n2\n0 1 0 0\n4096 3 0 0\n"


def test_a_rules_file_among_the_files_is_asked_about_the_first_slower_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = _written(tmp_path / "my.rules", CLASSIC)
    found = _compared(tmp_path, capsys, (OSU, SLOWER), rules, *PLACED)
    *_, last = found["commands"]
    assert last["purpose"] == "which line decides the first of them:"
    assert shlex.split(last["text"]) == [
        *("tuner", "table", "explain", rules, "--library", "openmpi", "--collective", "allreduce"),
        *("--ranks", "8", "--nodes", "2", "--size", "65536"),
    ]
    assert main(shlex.split(last["text"])[1:]) == 0
    assert "by line 7" in capsys.readouterr().out


def test_without_a_rules_file_the_command_has_a_place_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _compared(tmp_path, capsys, (OSU, SLOWER))
    assert found["commands"][-1] == {
        "purpose": "which line of a rules file decides the first of them, if you use one:",
        "text": "tuner table explain RULES --collective allreduce --ranks RANKS --size 65536",
    }
    assert _compared(tmp_path, capsys, (OSU, OSU))["commands"] == []


LIBRARY_TABLE = "collective,p,nodes,library,algorithm,nbytes,median_us\n"


@pytest.mark.parametrize(
    ("library", "algorithm", "said"),
    [
        ("openmpi 5.0.7", "default", ["RULES --library openmpi@5.0.7"]),
        ("cray_mpich 8.1.29", "default", []),
        ("openmpi 5.0.7", "ring", []),
    ],
    ids=["reads rules", "reads no rules", "was forced"],
)
def test_a_library_and_its_own_decision_are_explained_alone(
    library: str,
    algorithm: str,
    said: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = f"{LIBRARY_TABLE}allreduce,8,2,{library},{algorithm},1024,"
    found = _compared(tmp_path, capsys, (f"{row}20\n", f"{row}30\n"))
    explained = [one["text"] for one in found["commands"] if "explain" in one["text"]]
    assert [one.partition("explain ")[2].partition(" --collective")[0] for one in explained] == said


def test_rules_of_another_library_do_not_explain_a_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = _written(tmp_path / "my.rules", CLASSIC)
    row = f"{LIBRARY_TABLE}allreduce,8,2,mpich 4.2,default,1024,"
    found = _compared(tmp_path, capsys, (f"{row}20\n", f"{row}30\n"), rules)
    assert not any("explain" in one["text"] for one in found["commands"])


def test_the_buffer_of_blocks_is_unknown_without_the_number_of_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = OSU.replace("Allreduce", "Allgather"), SLOWER.replace("Allreduce", "Allgather")
    tune, explain = (one["text"] for one in _compared(tmp_path, capsys, texts)["commands"])
    assert "--collectives allgather --sizes SIZE " in tune
    assert explain.endswith("--ranks RANKS --size SIZE")


def test_messages_beside_collectives_leave_these_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latency = OSU.replace("MPI Allreduce Latency", "MPI Latency")
    texts = latency + OSU, latency.replace("80.0", "120.0") + SLOWER
    found = _compared(tmp_path, capsys, texts, *PLACED)
    assert [one["collective"] for one in found["calls"] if one["ratio"] > 1] == [
        "OSU MPI Latency",
        "allreduce",
    ]
    assert "--collectives allreduce " in found["commands"][0]["text"]


def test_results_without_dates_are_compared_in_the_order_of_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _compared(tmp_path, capsys, (SLOWER, OSU))
    first, second = (tmp_path / f"{n}.txt" for n in (1, 2))
    said = f"before is {first} and after is {second}: the order in which they are named"
    assert found["note"] == said
    assert found["calls"][-1]["ratio"] == pytest.approx(80 / 120)


IMB = """#    Intel(R) MPI Benchmarks 2021.9, MPI-1 part
# Date                  : {}
# Benchmarking Bcast
# #processes = 4
#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]
1024 100 1.0 {} 1.5
# All processes entering MPI_Finalize
"""


def test_results_with_dates_are_compared_from_the_older_to_the_newer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dates = "Fri Jun 12 14:40:55 2026", "Mon Jun  1 09:05:00 2026"
    texts = IMB.format(dates[0], "3.0"), IMB.format(dates[1], "2.0")
    found = _compared(tmp_path, capsys, texts, "--ppn", "2")
    first, second = (tmp_path / f"{n}.txt" for n in (1, 2))
    assert found["note"] == (
        f"before is {second}, measured on 2026-06-01 09:05; after is {first}, measured on"
        " 2026-06-12 14:40"
    )
    assert found["calls"][0]["ratio"] == pytest.approx(1.5)
    undated = texts[0], IMB.format("(removed)", "2.0")
    assert (
        "the order in which they are named"
        in _compared(tmp_path, capsys, undated, "--ppn", "2")["note"]
    )


def test_one_bad_file_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat = _written(tmp_path / "flat.yaml", FLAT)
    letter = _written(tmp_path / "letter.txt", "Dear all,\n")
    assert main(["open", letter, flat]) == 1
    printed = capsys.readouterr().out
    assert "letter.txt: not read" in printed
    assert "flat.yaml: a machine" in printed


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (OSU.encode("utf-16"), "expected text in UTF-8 or a trace of Chakra"),
        (gzip.compress(FLAT.encode(), mtime=0), "only traces are read compressed: unpack it"),
        (b'{"kind": "letter"}', "unknown kind of files 'letter'"),
    ],
    ids=["UTF-16", "compressed", "unknown kind"],
)
def test_what_is_not_read_is_called_so(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        open_file(str(path), UserMetadata())


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert _opened(tmp_path / "osu.txt", "\ufeff" + OSU).kind == "benchmark results (osu)"


def test_a_long_word_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["a" * 5000])
    with pytest.raises(InputError):
        open_file("a" * 5000, UserMetadata())


def test_calls_without_data_have_no_size(tmp_path: Path) -> None:
    table = "collective,p,nodes,nbytes,median_us\nbarrier,8,8,0,20\n"
    assert _opened(tmp_path / "table.csv", table).facts[0].startswith("barrier on 8 ranks")


def test_a_file_alone_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([_written(tmp_path / "flat.yaml", FLAT)]) == 0
    assert "flat.yaml: a machine\n  flat8: 8 nodes of 1 core" in capsys.readouterr().out


def test_a_command_goes_before_a_file_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("algorithms").write_text(FLAT)
    assert main(["algorithms"]) == 0
    assert "a machine" not in capsys.readouterr().out
