"""What NCCL's Inspector plugin recorded: every version, many files, damage, one time per call."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inspector import (
    BATCHED,
    SELF_CONTAINED,
    VERSIONS,
    call,
    dump,
    header,
    line,
    metadata,
    metric,
    own,
    ran,
)
from tests.support.properties import examples
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.measurement import read_measurements
from tuner.importers import (
    BenchmarkResult,
    RankCounts,
    UserMetadata,
    inspector,
    inspector_calls,
    parse_results,
    read_all,
    read_results,
)
from tuner.importers.inspector_calls import MAX_SAMPLES_PER_CALL
from tuner.importers.streaming import RawLine


def only(text: str, told: UserMetadata | None = None) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def complaint(text: str, told: UserMetadata | None = None) -> str:
    with pytest.raises(InputError) as refused:
        parse_results(text, metadata=told)
    return str(refused.value)


def job(folder: Path, *texts: str) -> Path:
    """A folder with the file of each process."""
    folder.mkdir(exist_ok=True)
    for i, text in enumerate(texts):
        (folder / f"node{i}-pid{i}.log").write_text(text)
    return folder


# ---- one file


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: str) -> None:
    reading = only(dump([call(1, 50), call(2, 70)], version, p2p=2))
    assert (reading.benchmark.name, reading.benchmark.subject) == ("AllReduce", "allreduce")
    assert reading.samples == pytest.approx((50e-6, 70e-6))
    assert (reading.nbytes, reading.memory, reading.algorithm) == (1024, "cuda", "default")
    assert (reading.rank_counts, reading.exclusion_reason) == (RankCounts(4, 2, 2), "")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (ran("RING", "LL128"), "ring_ll128"),
        (ran("Ring", "Simple"), "ring_simple"),
        (ran("COLLNET_DIRECT", "SIMPLE"), "collnet_direct_simple"),
        (ran("CollNetChain", "Simple"), "collnet_chain_simple"),
        (ran("NVLSTree", "SIMPLE"), "nvls_tree_simple"),
        (ran("PAT", "SIMPLE"), "pat_simple"),
        (ran("unknown", "unknown"), "default"),
        ({}, "default"),
        (ran("New", "LL"), "new_ll"),
    ],
)
def test_the_algorithm_is_called_as_in_tables(words: dict[str, Any], name: str) -> None:
    assert only(dump([call(**words)])).algorithm == name
    assert only(dump([call(**words)]), UserMetadata(algorithm="mine")).algorithm == "mine"


@pytest.mark.parametrize(
    ("function", "subject", "whole"),
    [
        ("AllReduce", "allreduce", 1024),
        ("Broadcast", "bcast", 1024),
        ("Reduce", "reduce", 1024),
        ("AllGather", "allgather", 4096),
        ("ReduceScatter", "reduce_scatter", 4096),
    ],
)
def test_sizes_are_of_the_whole_buffer(function: str, subject: str, whole: int) -> None:
    reading = only(dump([call(function=function)]))
    assert (reading.benchmark.subject, reading.nbytes) == (subject, whole)


def test_what_differs_is_not_thrown_together() -> None:
    calls = [
        call(1),
        call(2, size=2048),
        call(1, function="Broadcast"),
        call(3, **ran("TREE", "LL")),
        call(4, function="AlltoAll"),
    ]
    text = dump(calls) + dump([call(1)], p=8, nodes=2, comm="0x2") + dump([call(1)], comm="0x3")
    found = parse_results(text)
    assert [len(reading.samples) for reading in found] == [2, 1, 1, 1, 1, 1]
    assert [reading.benchmark.kind for reading in found] == ["collective"] * 4 + ["", "collective"]
    assert {reading.rank_counts for reading in found} == {RankCounts(4, 2, 2), RankCounts(8, 2, 4)}
    assert [reading.line for reading in found] == [2, 3, 4, 5, 6, 8]


def test_unequal_numbers_of_ranks_on_the_nodes_are_said() -> None:
    assert only(dump([call()], p=5, nodes=2)).rank_counts == RankCounts(5, 2, 0)


@pytest.mark.parametrize(
    ("other", "place", "reason"),
    [
        ({"coll_timing_source": "collective_cpu"}, {}, "timed by the CPU"),
        ({"coll_timing_source": "kernel_cpu"}, {}, "timed by the CPU"),
        ({"coll_timing_source": "unknown"}, {}, "timed by the CPU"),
        ({"size": 2**64 - 4096}, {}, "of a type that the plugin did not know"),
        ({"micros": 0}, {}, "no time is told"),
        ({}, {"p": 1, "nodes": 1}, "on one rank"),
    ],
)
def test_what_is_no_measurement_is_left_out(
    other: dict[str, Any], place: dict[str, Any], reason: str
) -> None:
    assert reason in only(dump([call(**other)], **place)).exclusion_reason


def test_a_file_of_the_first_version_without_a_timer_is_the_gpu_s() -> None:
    untold = call()
    del untold["coll_timing_source"]
    assert only(dump([untold], "v4.0")).exclusion_reason == ""


def test_options_that_every_line_answers_are_refused() -> None:
    for told in (
        UserMetadata(p=4),
        UserMetadata(nodes=2),
        UserMetadata(ppn=2),
        UserMetadata(collective="bcast"),
    ):
        assert "leave --" in complaint(dump([call()]), told)
    assert only(dump([call()]), UserMetadata(memory="host", params={"x": 1})).memory == "host"


# ---- damage


DAMAGE = [
    ("coll_sn", -1, "coll_sn cannot be -1"),
    ("coll_sn", "1", "coll_sn cannot be '1'"),
    ("coll_msg_size_bytes", 1.5, "coll_msg_size_bytes cannot be 1.5"),
    ("coll_msg_size_bytes", 2**64, "coll_msg_size_bytes cannot be 18446744073709551616"),
    ("coll_exec_time_us", -3, "coll_exec_time_us cannot be -3"),
    ("coll_exec_time_us", True, "coll_exec_time_us cannot be True"),
    ("coll_exec_time_us", 1e13, "coll_exec_time_us cannot be 1"),
    ("coll_exec_time_us", None, "coll_exec_time_us cannot be None"),
    ("coll_exec_time_us", float("nan"), "not JSON as"),
    ("coll_exec_time_us", float("inf"), "not JSON as"),
    ("coll", 7, "coll cannot be 7"),
    ("coll", "", "coll cannot be ''"),
    ("coll", "All\x1bReduce", "coll cannot be"),
    ("coll_algo", "\x1b[2J", "expected a name like LL"),
    ("coll_proto", 1, "expected a name like LL, not 1"),
]


@pytest.mark.parametrize(("name", "value", "said"), DAMAGE)
def test_a_damaged_call_is_refused_with_its_line(name: str, value: object, said: str) -> None:
    text = dump([call(), call(**ran()) | {name: value}, call()])
    assert complaint(text).startswith("results: line 3: ")
    assert said in complaint(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": 4}, "rank cannot be 4"),
        ({"rank": -1}, "rank cannot be -1"),
        ({"n_ranks": 0}, "n_ranks cannot be 0"),
        ({"n_ranks": 2**31}, "n_ranks cannot be"),
        ({"nnodes": 0}, "nnodes cannot be 0"),
        ({"nnodes": 5}, "4 ranks cannot be on 5 nodes"),
        ({"id": ""}, "the communicator's id cannot be ''"),
        ({"id": None}, "id cannot be None"),
    ],
)
def test_a_damaged_header_is_refused_with_its_line(change: dict[str, Any], said: str) -> None:
    bad = {"header": header() | change, "metadata": metadata(), "coll_perf": call()}
    text = own(coll_perf=call()) + line(bad)
    assert "line 2: " in complaint(text)
    assert said in complaint(text)


@pytest.mark.parametrize("version", ["v5.0", "4.0", "v3.9", "v4", None, 4])
def test_a_version_that_is_not_known_is_refused(version: Any) -> None:
    text = line(
        {
            "header": header(),
            "metadata": metadata() | {"inspector_output_format_version": version},
            "coll_perf": call(),
        }
    )
    assert "of which versions v4.x are read" in complaint(text)


def test_lines_that_are_something_else_are_refused() -> None:
    assert "line 2: none of coll_perf, " in complaint(own(coll_perf=call()) + line({"x": 1}))
    assert "line 2: not JSON as" in complaint(own(coll_perf=call()) + "[1]\n")
    assert "line 2: damaged" in complaint(own(coll_perf=call()) + "{'a': 1}\n")


def test_a_line_that_has_lost_its_batch_is_refused() -> None:
    whole = dump([call(1), call(2)])
    first, *rest = whole.splitlines(keepends=True)
    assert "line 1: it does not say of which communicator" in complaint("".join(rest))
    assert "line 4: it does not say of which" in complaint(whole + rest[0])
    assert "line 3: 1 line missing of those that line 1 announces" in complaint(
        first + rest[0] + whole
    )


@pytest.mark.parametrize("version", ["v4.1", "v4.2"])
def test_lines_with_their_own_header_may_be_picked_out(version: str) -> None:
    begin, first, second = dump([call(1), call(2)], version).splitlines(keepends=True)
    assert len(only(first + second).samples) == 2
    assert len(only(begin + first + begin + second).samples) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_job_leaves_what_is_before_the_last_line(version: str, tmp_path: Path) -> None:
    text = dump([call(1, 50), call(2, 70)], version)
    last = text.rindex("\n", 0, -1) + 1
    for end in range(last, len(text) + 1):
        folder = job(tmp_path / "job", text[:end])
        (reading,), notes = read_all([folder])
        complete = end >= len(text) - 1
        assert reading.samples == pytest.approx((50e-6, 70e-6)[: 1 + complete])
        whole = complete or (end == last and version in SELF_CONTAINED)
        assert bool([note for note in notes if "killed" in note]) == (not whole)
        if last < end and not complete:
            assert f"its last line ({text.count(chr(10))}) is cut off" in notes[0]
        elif version in BATCHED and not complete:
            assert "1 line missing of those that line 1 announces, as a job" in notes[0]


@pytest.mark.parametrize(("version", "later"), [("v4.4", False), ("v4.5", True), ("v4.10", True)])
def test_a_later_version_is_read_with_a_caution(version: str, later: bool, tmp_path: Path) -> None:
    (reading,), notes = read_all([job(tmp_path / "job", dump([call(1, 50)], version))])
    assert reading.samples == pytest.approx((50e-6,))
    assert [note for note in notes if "format" in note] == [
        f"format {version} of NCCL's Inspector is later than v4.4, the last one known here:"
        " compare some times with the files before you rely on them"
    ] * later


def test_a_damaged_line_with_its_line_break_is_no_killed_job(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", own(coll_perf=call()), own(coll_perf=call())[:-9] + "\n")
    with pytest.raises(InputError, match=r"node1-pid1.log: line 1: damaged or cut off at char"):
        read_all([folder])


def test_nothing_in_it_is_said(tmp_path: Path) -> None:
    assert complaint(dump([], p2p=1)) == "results: line 1: expected collectives in the file"
    with pytest.raises(InputError, match=r"pid0.log: line 1: expected collectives in the file"):
        read_all([job(tmp_path / "job", dump([], p2p=1))])
    assert "line 1" in complaint(own(coll_perf=call())[:40])


@given(st.data())
@settings(max_examples=examples(300))
def test_any_damage_gives_readings_or_one_sentence(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    text = dump([call(1, 50, **ran()), call(2, function="AllGather")], version, p2p=1)
    text += metric() * data.draw(st.integers(0, 1))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(at + 40, len(text))))
        put = data.draw(st.text(st.sampled_from('019.-+eE,:"{}[] \nntrue\0é'), max_size=6))
        text = text[:at] + put + text[until:]
    try:
        for reading in parse_results(text, "inspector"):
            assert all(0 < sample <= 1e6 for sample in reading.samples)
            assert reading.nbytes is None or reading.nbytes >= 0
            assert reading.rank_counts is not None
    except InputError as reason:
        said = str(reason)
    else:
        said = "line "
    assert "line " in said
    assert "\n" not in said
    assert len(said) < 500


# ---- one time per call


def test_the_rank_that_arrives_last_tells_the_time(tmp_path: Path) -> None:
    """Waiting is in the times of the others."""
    times = {0: (90, 50), 1: (40, 80), 2: (70, 70), 3: (60, 60)}
    texts = [dump([call(1, one), call(2, two)], rank=rank) for rank, (one, two) in times.items()]
    (reading,), notes = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((40e-6, 50e-6))
    assert notes == []


@pytest.mark.parametrize(
    ("function", "micros"),
    [("AllGather", 20), ("ReduceScatter", 20), ("Broadcast", 50), ("Reduce", 50)],
)
def test_of_calls_with_a_root_the_longest_counts(
    function: str, micros: float, tmp_path: Path
) -> None:
    """The root of a broadcast leaves before the others have everything."""
    texts = [dump([call(1, 20 + 10 * r, function=function)], rank=r) for r in range(4)]
    (reading,), _ = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((micros * 1e-6,))


def test_calls_that_all_ranks_recorded_are_taken_alone(tmp_path: Path) -> None:
    texts = [dump([call(1, 10 + r)], rank=r) for r in range(4)]
    texts[0] += dump([call(2, 900), call(3, 800)], rank=0)
    texts[1] += dump([call(3, 700)], rank=1)
    (reading,), notes = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((10e-6,))
    assert notes == []


def test_without_such_calls_all_are_taken_and_that_is_said(tmp_path: Path) -> None:
    texts = [dump([call(1, 60 - 10 * r), call(2 + r, 90)], rank=r) for r in range(3)]
    (reading,), (note,) = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((40e-6, 90e-6, 90e-6, 90e-6))
    assert note.startswith("4 calls recorded by some of the ranks alone: ")


def test_a_complete_call_of_another_communicator_counts_too(tmp_path: Path) -> None:
    """Both have one shape: what is known for sure of one is taken of both."""
    texts = [dump([call(1, 20 + r)], rank=r, comm="0x1") for r in range(4)]
    texts.append(dump([call(1, 500)], rank=0, comm="0x2"))
    (reading,), notes = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((20e-6,))
    assert notes == []


def test_communicators_with_equal_numbers_are_not_merged(tmp_path: Path) -> None:
    texts = [
        dump([call(1, 20 + r)], rank=r, comm="0x1") + dump([call(1, 80 + r)], rank=r, comm="0x2")
        for r in range(4)
    ]
    (reading,), _ = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((20e-6, 80e-6))


def test_calls_without_a_time_do_not_count_as_recorded(tmp_path: Path) -> None:
    texts = [dump([call(1, 0 if r == 2 else 30), call(2, 40)], rank=r) for r in range(4)]
    (reading,), _ = read_all([job(tmp_path / "job", *texts)])
    assert reading.samples == pytest.approx((40e-6,))


def test_a_file_and_its_copy_are_one(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", *[dump([call(1, 50)], rank=0)] * 4)
    (reading,), (note,) = read_all([folder, folder / "node0-pid0.log"])
    assert len(reading.samples) == 1
    assert "1 call recorded by some of the ranks" in note


def test_jobs_in_several_folders_are_several_launches(tmp_path: Path) -> None:
    """Their communicators may be called alike, and their calls have the same numbers."""
    folders = [
        job(tmp_path / name, *[dump([call(1, micros + r)], rank=r) for r in range(4)])
        for name, micros in (("one", 20), ("two", 60))
    ]
    first, second = read_all(folders)[0]
    assert first.samples == pytest.approx((20e-6,))
    assert second.samples == pytest.approx((60e-6,))
    assert {first.run, second.run} == {str(folder) for folder in folders}


def test_many_calls_are_thinned_evenly() -> None:
    calls = [call(i, 100 + i % 900) for i in range(3 * MAX_SAMPLES_PER_CALL)]
    random.Random(0).shuffle(calls)
    reading = only(dump(calls, p=2, nodes=1))
    assert len(reading.samples) == MAX_SAMPLES_PER_CALL
    wanted = [(100 + 3 * i % 900) * 1e-6 for i in range(MAX_SAMPLES_PER_CALL)]
    assert reading.samples == pytest.approx(wanted)
    assert median(reading.samples) == pytest.approx(median(wanted))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 99)),
        min_size=1,
        max_size=40,
        unique_by=lambda each: each[:2],
    )
)
@settings(max_examples=examples(100))
def test_merging_is_what_the_definition_says(rows: list[tuple[int, int, int]]) -> None:
    text = "".join(dump([call(sn, micros)], rank=rank) for rank, sn, micros in rows)
    by_call: dict[int, list[int]] = {}
    for _, sn, micros in rows:
        by_call.setdefault(sn, []).append(micros)
    complete = {sn: own for sn, own in by_call.items() if len(own) == 4} or by_call
    wanted = [min(complete[sn]) * 1e-6 for sn in sorted(complete)]
    assert only(text).samples == pytest.approx(wanted)


# ---- files


def test_packed_files_are_read(tmp_path: Path) -> None:
    text = dump([call(1, 50), call(2, 70)])
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    (reading,) = read_results(tmp_path / "a.log.gz")
    assert reading.samples == pytest.approx((50e-6, 70e-6))
    noise = dump([call(i, 50 + i * 7919 % 4001) for i in range(9000)])
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(noise.encode())[:-1000])
    with pytest.raises(InputError, match=r"b.log.gz: cannot be read: packed by gzip, and damaged"):
        read_results(tmp_path / "b.log.gz")


def test_a_folder_stands_for_the_plugin_s_files_in_it(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", *[dump([call(1, 20 + r)], rank=r) for r in range(4)])
    (folder / "train.out").write_text("step 1 loss 2.3\n")
    (folder / "inside").mkdir()
    (reading,) = read_results(folder)
    assert reading.samples == pytest.approx((20e-6,))
    assert reading.source == str(folder / "node0-pid0.log")


def test_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector_calls, "MAX_RECORDS", 10)
    folder = job(tmp_path / "job", dump(map(call, range(6))), dump(map(call, range(6)), rank=1))
    with pytest.raises(InputError, match=r"pid1.log: line .*: more than 10 records: give fewer"):
        read_results(folder)


def test_what_is_known_of_communicators_is_bounded() -> None:
    lines = (own(comm=f"0x{i}", coll_perf=call()) for i in range(10_500))
    reader = inspector.InspectorFile()
    records = reader.records(RawLine(i, words.encode()) for i, words in enumerate(lines, 1))
    assert len({record.communicator for record in records}) == 10_500
    assert len(reader._communicators) <= 10_000
    with pytest.raises(InputError, match="line 1: the communicator's id cannot be"):
        parse_results(own(comm="x" * 201, coll_perf=call()))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", dump([call()]))
    (folder / "node0-pid0.log").chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_all([folder / "node0-pid0.log"], "inspector")


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    text = dump([call(i) for i in range(40_000)])
    folder = job(tmp_path / "job", text, dump([call(1)], rank=1))
    heard: list[tuple[int, int]] = []
    read_all([folder], progress=lambda done, total: heard.append((done, total)))
    whole = sum(path.stat().st_size for path in folder.iterdir())
    assert heard
    assert heard == sorted(heard)
    assert all(0 < done <= total == whole for done, total in heard)


# ---- Prometheus


def test_metrics_of_the_first_versions_are_calls(tmp_path: Path) -> None:
    texts = [
        metric(str(60 + r), rank=str(r)) + metric("1.5", "nccl_bus_bandwidth_gbs") for r in range(4)
    ]
    folder = tmp_path / "job"
    folder.mkdir()
    for i, text in enumerate(texts):
        (folder / f"nccl_inspector_metrics_{i}.prom").write_text(text)
    (reading,), notes = read_all([folder])
    assert reading.samples == pytest.approx((60e-6,))
    assert notes == []
    assert (reading.nbytes, reading.rank_counts) == (2 << 20, RankCounts(4, 2, 2))


@pytest.mark.parametrize(
    ("labels", "nbytes"),
    [
        ({"message_size": "512B"}, 512),
        ({"message_size": "64.00KB"}, 65536),
        ({"message_size": "1.50GB"}, 3 << 29),
        ({"message_size": "0B"}, 0),
        ({"collective": "AllGather", "message_size": "1.00KB"}, 4096),
        ({"collective": "Broadcast", "message_size": "1.00TB"}, 1 << 40),
    ],
)
def test_sizes_of_metrics(labels: dict[str, str], nbytes: int) -> None:
    assert only(metric(**labels)).nbytes == nbytes


def test_metrics_of_ranges_are_no_measurement() -> None:
    labels = {"message_size": "4-5GB", "algo_proto": "Ring_ll", "comm_name": "DP Group 0"}
    reading = only(metric(**labels))
    assert (reading.algorithm, reading.nbytes, reading.samples) == ("ring_ll", None, ())
    assert "NCCL_INSPECTOR_PROM_DUMP=0" in reading.exclusion_reason


def test_other_metrics_of_a_node_pass_by() -> None:
    text = "# HELP nccl_x y\nnode_load1 0.5\n" + metric() + metric("x", "nccl_p2p_exec_time")
    assert only(text).samples == pytest.approx((61e-6,))
    assert only(metric().replace("nranks", "n_ranks")).rank_counts == RankCounts(4, 2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (metric(nranks="0"), "line 2: the label nranks cannot be '0'"),
        (metric(nranks="x"), "line 2: the label nranks cannot be 'x'"),
        (metric(nranks=str(2**31)), "line 2: the label nranks cannot be"),
        (metric(n_nodes="9"), "on 4 ranks of 9 nodes"),
        (metric(collective=""), "line 2: no ''"),
        (metric(message_size="2 apples"), "message_size cannot be '2 apples'"),
        (metric("-1"), "the time cannot be '-1'"),
        (metric("NaN"), "the time cannot be 'NaN'"),
        (metric(coll_sn="-1"), "coll_sn cannot be '-1'"),
        (metric(rank=""), "rank cannot be ''"),
        (metric(rank="4"), "line 2: the rank must be below 4, not 4"),
        (metric().replace("} 61", "}61"), "line 2: damaged: no metric"),
        (metric().replace('"4"', '4"'), "line 2: damaged: no metric"),
    ],
)
def test_damaged_metrics_are_refused(text: str, said: str) -> None:
    assert said in complaint(metric() + text)


def test_metrics_that_are_being_written_are_read_so_far(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "a.prom").write_text(metric() + metric()[:-20])
    _, notes = read_all([folder])
    assert "its last line (2) is cut off" in notes[0]


# ---- the command line


def test_a_job_becomes_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [[call(i, 50 + i + r, **ran()) for i in range(5)] for r in range(4)]
    texts = [dump(own, rank=r, dropped=3) for r, own in enumerate(calls)]
    texts[0] += dump([call(9, function="AlltoAll")])[:-30]
    folder, out = job(tmp_path / "job", *texts), tmp_path / "m.ndjson"
    words = [str(folder), "--library", "nccl 2.30.7", "--cluster", "dgx", "--out", str(out)]
    assert main(["import-results", *words]) == 0
    said = capsys.readouterr()
    assert "nccl 2.30.7 on cluster dgx (2 hosts): 1 series of 1 readings" in said.out
    assert "its last line (8) is cut off, as a job that was killed leaves it" in " ".join(
        said.err.split()
    )
    assert "12 collectives dropped by the plugin" in " ".join(said.err.split())
    found = read_measurements(out)
    (series,) = found.series
    assert (series.kind, series.subject, series.memory) == ("collective", "allreduce", "cuda")
    assert (series.nodes, series.ppn, series.nbytes) == (2, 2, 1024)
    assert (series.algorithm, series.params) == ("ring_ll", {})
    assert series.samples == pytest.approx([(50 + i) * 1e-6 for i in range(5)])
    assert found.provenance["sources"] == [str(folder / "node0-pid0.log")]


def test_what_the_files_do_not_say_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = job(tmp_path / "job", dump([call()])), tmp_path / "m.ndjson"
    for words, status, said in (
        ([], 1, "name it with --cluster"),
        (["--cluster", "dgx"], 1, "name it with --library"),
        (["--cluster", "dgx", "--library", "nccl"], 2, "--library says no version of nccl"),
        (["--ranks", "4"], 2, "leave --ranks out"),
    ):
        assert main(["import-results", str(folder), "--out", str(out), *words]) == status
        assert said in " ".join(capsys.readouterr().err.split())
        assert not out.exists()


def test_what_is_imported_can_be_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files as they are, without importing them first."""
    texts = [
        dump(
            [
                call(i, 50 + 10 * (i % 2), 1 << (10 + i), **ran("RING" if i % 2 else "TREE"))
                for i in range(12)
            ],
            rank=r,
        )
        for r in range(4)
    ]
    folder = job(tmp_path / "job", *texts)
    main(["evaluate", str(folder)])
    assert "no reading" not in capsys.readouterr().err


def test_a_large_job_shows_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.terminal.progress.LARGE_INPUT_BYTES", 1)
    folder, out = job(tmp_path / "job", dump([call()])), tmp_path / "m.ndjson"
    words = [str(folder), "--library", "nccl 2.30.7", "--cluster", "dgx", "--out", str(out)]
    assert main(["import-results", *words, "--json"]) == 0
    said = capsys.readouterr()
    assert "reading" in said.err
    assert json.loads(said.out)["samples"] == 1
