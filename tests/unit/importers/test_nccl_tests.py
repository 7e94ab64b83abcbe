"""nccl-tests, as text and as JSON: ranks, columns of all versions, and damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.nccl_tests_files import (
    COLUMNS,
    FOOT,
    FOUR,
    ROW,
    TIMES,
    UNITS,
    rank,
    record,
    table,
)
from tuner.base.errors import InputError
from tuner.importers import BenchmarkResult, RankCounts, UserMetadata, parse_results, read_all


def only(text: str, told: UserMetadata | None = None) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def complaint(text: str, told: UserMetadata | None = None) -> str:
    with pytest.raises(InputError) as refused:
        parse_results(text, metadata=told)
    return str(refused.value)


def test_a_table_says_it_all() -> None:
    reading = only(table(ROW))
    assert (reading.benchmark.name, reading.benchmark.subject) == ("all_reduce_perf", "allreduce")
    assert reading.samples == pytest.approx((20.5e-6,))
    assert (reading.nbytes, reading.memory, reading.library) == (1024, "cuda", "nccl 2.29.7")
    assert (reading.rank_counts, reading.exclusion_reason) == (RankCounts(4, 2, 2), "")


@pytest.mark.parametrize(
    ("program", "subject"),
    [
        ("all_gather", "allgather"),
        ("reduce_scatter", "reduce_scatter"),
        ("broadcast", "bcast"),
        ("reduce", "reduce"),
        ("alltoall", "alltoall"),
        ("gather", "gather"),
        ("scatter", "scatter"),
    ],
)
def test_sizes_are_those_of_the_whole_buffer(program: str, subject: str) -> None:
    reading = only(table(ROW, program=f"{program}_perf"))
    assert (reading.benchmark.subject, reading.nbytes) == (subject, 1024)


def test_results_of_rccl_tests_are_of_rccl() -> None:
    unknown = table(ROW).replace("nccl-library=22907", "")
    assert only(unknown.replace("NVIDIA H100", "AMD Instinct MI300X")).library == "rccl"
    assert only("rccl-tests: Version develop:0123abc\n" + unknown).library == "rccl"
    assert only(table(ROW).replace("NVIDIA H100", "AMD Instinct MI300X")).library == "rccl 2.29.7"
    assert only("Model name: AMD EPYC 7763\n" + unknown).library == "nccl"
    ranks = [rank(number, "AMD-0") for number in range(2)]
    assert only(table(ROW, ranks=ranks)).library == "nccl 2.29.7"
    mixed = unknown.replace("NVIDIA H100", "AMD Instinct MI300X") + unknown
    assert [one.library for one in parse_results(mixed)] == ["rccl", "nccl"]
    devices = [
        {"rank": i, "group": 0, "hostname": "node0", "device_info": "AMD Instinct MI300X"}
        for i in range(4)
    ]
    found = only(json.dumps(record(config={"devices": devices}, nccl_version=22203)))
    assert found.library == "rccl 2.22.3"


@pytest.mark.parametrize(
    ("said", "library"),
    [
        ("RCCL version : 2.22.3-HEAD:7d8d67c", "rccl 2.22.3"),
        ("NCCL version 2.18.5+cuda12.0", "nccl 2.18.5"),
        ("HIP version  : 6.4.43484-123eb5128", "nccl"),
    ],
)
def test_the_library_says_its_version_before_the_rows(said: str, library: str) -> None:
    """Read what NCCL_DEBUG=VERSION prints; rccl-tests of 2025 also list ranks without groups."""
    text = table(ROW).replace("nccl-library=22907", "")
    begun = text.index("#       size")
    found = only(f"{text[:begun]}{said}\nROCm version : 6.4.2.0-120-e7d83f5\n{text[begun:]}")
    assert found.library == library


def test_excerpts_of_two_runs_are_not_one() -> None:
    excerpt = "\n".join([*FOUR, COLUMNS, UNITS, ROW, FOOT])
    readings = parse_results(excerpt * 2, metadata=UserMetadata(collective="allreduce"))
    assert [one.exclusion_reason for one in readings] == ["", ""]
    assert readings[1].rank_counts == RankCounts(4, 2, 2)


def test_older_versions_leave_names_blank_and_call_errors_otherwise() -> None:
    row = (
        "        1024           256     float                "
        "     20.50    0.05    0.09    N/A    21.50    0.05    0.09  2e-07"
    )
    columns = COLUMNS.replace("#wrong", " error")
    text = table(row, columns=columns, ranks=[rank(i, "a", group="") for i in range(2)])
    text = text.replace("# Collective test starting: ", "$ mpirun ./build/")
    reading = only(text)
    assert reading.samples == pytest.approx((20.5e-6,))
    assert (reading.rank_counts, reading.exclusion_reason) == (RankCounts(2, 1, 2), "")


def test_times_with_a_time_stamp() -> None:
    reading = only(table(f"{ROW}   2025-07-01 12:00:01", columns=f"{COLUMNS}  timestamp"))
    assert reading.samples == pytest.approx((20.5e-6,))


def test_in_place_stands_in_where_out_of_place_was_not_run() -> None:
    row = ROW.replace("20.50", "  N/A", 1)
    assert only(table(row)).samples == pytest.approx((21.5e-6,))
    neither = only(table(row.replace("21.50", "  nan", 1)))
    assert (neither.samples, neither.exclusion_reason) == ((), "no time is told")


def test_what_is_no_measurement_is_read_all_the_same() -> None:
    wrong = ROW.replace("0.09      0    21.50", "0.09      3    21.50")
    assert only(table(wrong)).exclusion_reason == "the result was wrong"
    host = only(table(ROW, columns=COLUMNS.replace("   time", "cputime")))
    assert "CPU" in host.exclusion_reason
    assert only(table(ROW, program="hypercube_perf")).benchmark.kind == ""
    assert only(table(ROW, program="sendrecv_perf")).benchmark.kind == ""
    pair = [rank(0, "node0"), rank(1, "node1")]
    assert only(table(ROW, program="sendrecv_perf", ranks=pair)).benchmark.kind == "exchange"


def test_versions_of_libraries() -> None:
    assert only(table(ROW).replace("nccl-library=22907", "nccl-library=2804")).library == (
        "nccl 2.8.4"
    )
    assert only(table(ROW).replace("nccl-l", "rccl-l")).library == "rccl 2.29.7"
    assert only(table(ROW).replace("nccl-library=22907", "")).library == "nccl"


def test_one_group_of_columns_is_enough() -> None:
    columns = COLUMNS[: -len(TIMES)]
    row = ROW[: ROW.index("    21.50")]
    assert only(table(row, columns=columns)).samples == pytest.approx((20.5e-6,))


def test_unequal_nodes_and_groups() -> None:
    assert only(table(ROW, ranks=FOUR[:3])).rank_counts == RankCounts(3, 2, 0)
    groups = [*FOUR[:2], *(line.replace("Group  0", "Group  1") for line in FOUR[2:])]
    assert only(table(ROW, ranks=groups)).rank_counts == RankCounts(2, 1, 2)


def test_what_the_file_does_not_say_is_demanded() -> None:
    bare = "\n".join([COLUMNS, UNITS, ROW, FOOT])
    assert complaint(bare).endswith("which collective was measured: add --collective")
    told = UserMetadata(collective="allreduce")
    assert complaint(bare, told).endswith("was measured: add --ranks and --nodes")
    assert only(bare, UserMetadata(p=8, nodes=1, collective="allreduce")).rank_counts == RankCounts(
        8, 1, 8
    )
    assert "the file says that p is 4, but --ranks says 8" in complaint(
        table(ROW), UserMetadata(p=8)
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("20.50", "2O.50", "line 13: the time cannot be '2O.50'"),
        ("20.50", "-20.5", "line 13: the time cannot be '-20.5'"),
        ("        1024 ", "        10k4 ", "line 13: the size cannot be '10k4'"),
        ("    20.50    0.05    0.09      0", "    20.50    0.05    0.09", "line 13: 12 fields"),
        ("      0    21.50", "", "line 13: 11 fields"),
        (ROW, f"{ROW} 7", "line 13: 14 fields where the header names 13"),
        (ROW + "\n", "", "line 1: expected a table below"),
        (FOOT, "", "line 13: it ends without `# Avg bus bandwidth`: the run that began on line 3"),
        ("\n" + FOOT, "", "line 13: cut off"),
    ],
)
def test_damage_is_refused_with_its_line(before: str, after: str, said: str) -> None:
    text = table(ROW)
    assert before in text
    assert said in complaint(text.replace(before, after))


def test_every_prefix_gives_a_sentence() -> None:
    text = table(ROW, ROW)
    for end in range(len(text) - len(FOOT)):
        assert "line " in complaint(text[:end])


# ---- JSON


def changed(**other: Any) -> str:
    whole = record()
    whole["results"][0].update(other)
    return json.dumps(whole)


def test_json_says_what_the_text_says() -> None:
    text, found = only(table(ROW)), only(json.dumps(record()))
    assert found.samples == pytest.approx(text.samples)
    assert (found.benchmark, found.nbytes, found.rank_counts, found.library, found.memory) == (
        text.benchmark,
        text.nbytes,
        text.rank_counts,
        text.library,
        text.memory,
    )
    assert found.algorithm == "default"


def test_json_with_each_iteration_has_all_samples() -> None:
    reading = only(changed(out_of_place_per_iter={"times_us": [20.0, 22.0, 21.0]}))
    assert reading.samples == pytest.approx((20e-6, 22e-6, 21e-6))


def test_json_knows_the_algorithm_that_was_forced() -> None:
    assert only(json.dumps(record(env=["NCCL_ALGO=Ring"]))).algorithm == "ring"
    assert only(json.dumps(record(env=["NCCL_ALGO=^Ring"]))).algorithm == "default"
    assert (
        only(json.dumps(record(env=["NCCL_ALGO=Ring"])), UserMetadata(algorithm="x")).algorithm
        == "x"
    )


def test_json_without_numbers() -> None:
    place = {"time": "nan", "nwrong": None}
    assert only(changed(out_of_place=place)).samples == pytest.approx((21.5e-6,))
    assert only(changed(out_of_place=None)).samples == pytest.approx((21.5e-6,))
    assert only(changed(out_of_place={"time": 1.0, "nwrong": 2.0})).exclusion_reason
    assert "CPU" in only(changed(out_of_place={"cpu_time": 1.0, "nwrong": 0})).exclusion_reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(record())[:-40], "line 1: damaged or cut off at character"),
        (json.dumps(record(), indent=1)[:-40], "line 5"),
        (json.dumps(record(results=[])), "line 1: no `results`"),
        ("{}", "line 1: no `results`"),
        ("{" * 100_000, "line 1"),
        ('{"results": ' + "[" * 100_000, "line 1: not JSON"),
        (changed(size=-1), "line 1: result 1: the size cannot be -1"),
        (changed(size="64"), "line 1: result 1: the size cannot be '64'"),
        (changed(size=2**63), "line 1: result 1: the size cannot be"),
        (changed(out_of_place=[1]), "line 1: result 1: out_of_place cannot be"),
        (changed(out_of_place={"time": -1.0}), "line 1: result 1: the time cannot be -1.0"),
        (changed(out_of_place={"time": 10**400}), "line 1: result 1: the time cannot be"),
        (changed(out_of_place={"time": float("nan")}), "line 1: not JSON"),
        (changed(out_of_place={"time": True}), "line 1: result 1: the time cannot be True"),
        (json.dumps(record(results=[7])), "line 1: result 1: the size cannot be None"),
        (json.dumps(record(config={"devices": [{"rank": "x"}]})), "not a device"),
    ],
)
def test_damaged_json_is_refused(text: str, said: str) -> None:
    assert said in complaint(text)
    assert len(complaint(text)) < 400


def test_json_on_many_lines_names_the_line() -> None:
    whole = record()
    whole["results"].append({**whole["results"][0], "out_of_place": {"time": "x"}})
    text = json.dumps(whole, indent=1)
    line = 1 + [i for i, words in enumerate(text.split("\n")) if '"size":' in words][1]
    assert f"line {line}: result 2: the time cannot be 'x'" in complaint(text)


@pytest.mark.parametrize(
    ("units", "said"),
    [
        (UNITS.replace("(us)", "(ms)", 1), "line 12: the unit '(ms)' where nccl-tests writes (us)"),
        (UNITS.replace("(GB/s)", "(us)"), "the unit '(us)' where nccl-tests writes (GB/s)"),
        ("# (KiB) (elements)", "the unit '(KiB)' where nccl-tests writes (B)"),
    ],
)
def test_units_are_those_of_the_columns_in_order(units: str, said: str) -> None:
    assert said in complaint(table(ROW).replace(UNITS, units))


def test_other_comments_with_brackets_are_no_units() -> None:
    text = f"# (a) (b) (c) a note\n{table(ROW)}"
    assert only(text).samples == only(table(ROW)).samples
    assert only(text.replace(UNITS, f"{UNITS}\n# (ms) (ms) (ms)")).samples == pytest.approx(
        (20.5e-6,)
    )
    unknown = table(f"{ROW} 7", columns=f"{COLUMNS} p99").replace(UNITS, f"{UNITS} (us)")
    assert only(unknown).samples == pytest.approx((20.5e-6,))


@pytest.mark.parametrize("names", [("sum", "-1"), ("", "-1"), ("", "")])
def test_a_row_after_the_end_is_refused_with_blank_names_too(names: tuple[str, str]) -> None:
    row = ROW.replace("sum      -1", "  ".join(names))
    assert only(table(row)).samples == pytest.approx((20.5e-6,))
    assert "line 17: a row after the end of its run" in complaint(f"{table(row)}{row}\n")


def test_blank_names_are_no_operator() -> None:
    assert only(table(ROW.replace("sum      -1", ""))).operands == "float"


def test_a_column_that_is_not_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text(table(f"{ROW} 7", columns=f"{COLUMNS} p99"))
    readings, notes = read_all([tmp_path / "n.txt"])
    assert readings[0].samples == pytest.approx((20.5e-6,))
    assert notes == [f"{tmp_path / 'n.txt'}: line 11: columns not used: 'p99'"]


def test_ranks_whose_lines_are_missing_are_refused() -> None:
    said = "line 12: of the ranks up to 3 only 3 are listed before it"
    with pytest.raises(InputError, match=said):
        parse_results(table(ROW, ranks=[FOUR[0], *FOUR[2:]]))
    devices = [{"rank": rank, "hostname": "a"} for rank in (0, 2)]
    with pytest.raises(InputError, match="of the ranks up to 2 only 2 are listed"):
        parse_results(json.dumps(record(config={"devices": devices})))


def test_a_header_without_a_time_is_refused() -> None:
    said = complaint(table(ROW, columns=COLUMNS.replace("time", "took")))
    assert said.endswith("line 11: expected time or cputime in the header")
