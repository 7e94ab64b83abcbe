"""OSU micro-benchmarks: titles, columns, sizes, and what is said about damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.osu_files import ALLREDUCE, FULL
from tuner.base.errors import InputError, UsageError
from tuner.importers import BenchmarkResult, RankCounts, UserMetadata, parse_results, read_results

EIGHT = UserMetadata(p=8, nodes=2)


def title(name: str, columns: str, *rows: str, interface: str = "MPI") -> str:
    return "\n".join([f"# OSU {interface} {name} Test v7.3", f"# Size   {columns}", *rows, ""])


def only(text: str, told: UserMetadata = EIGHT) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def complaint(text: str, told: UserMetadata = EIGHT, form: str = "auto") -> str:
    with pytest.raises(InputError) as refused:
        parse_results(text, form, told)
    return str(refused.value)


def test_a_table_is_read_row_by_row() -> None:
    first, second = parse_results(ALLREDUCE, metadata=EIGHT, source="a.out")
    assert (first.line, first.nbytes, second.line, second.nbytes) == (4, 4, 5, 1024)
    assert first.samples == pytest.approx((10.5e-6,))
    assert second.samples == pytest.approx((20.25e-6,))
    assert (first.benchmark.kind, first.benchmark.subject) == ("collective", "allreduce")
    assert first.statistic == "mean over ranks"
    assert (first.source, first.algorithm, first.memory) == ("a.out", "default", "host")
    assert first.rank_counts == RankCounts(8, 2, 4)


def test_the_slowest_rank_counts_where_it_is_told() -> None:
    reading = only(FULL)
    assert reading.samples == pytest.approx((9e-6,))
    assert reading.statistic == "slowest rank"
    assert (reading.min_seconds, reading.max_seconds) == pytest.approx((1e-6, 9e-6))


@pytest.mark.parametrize(
    ("name", "subject", "factor"),
    [
        ("Allreduce Latency", "allreduce", 1),
        ("Broadcast Latency", "bcast", 1),
        ("Reduce Latency", "reduce", 1),
        ("Reduce_scatter Latency", "reduce_scatter", 1),
        ("Reduce_scatter_block Latency", "reduce_scatter", 1),
        ("Allgather Latency", "allgather", 8),
        ("Gather Latency", "gather", 8),
        ("Scatter Latency", "scatter", 8),
        ("All-to-All Personalized Exchange Latency", "alltoall", 8),
    ],
)
def test_sizes_become_those_of_the_whole_buffer(name: str, subject: str, factor: int) -> None:
    reading = only(title(name, "Avg Latency(us)", "64   3.25"))
    assert (reading.benchmark.subject, reading.nbytes) == (subject, 64 * factor)


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_latency_is_that_of_one_way_between_two_ranks(nodes: int) -> None:
    text = title("Latency", "Latency (us)", "0   1.50")
    reading = only(text, UserMetadata(nodes=nodes))
    assert (reading.benchmark.kind, reading.nbytes) == ("pingpong", 0)
    assert reading.samples == pytest.approx((1.5e-6,))
    assert reading.rank_counts == (RankCounts(2, 1, 2) if nodes == 1 else RankCounts(2, 2, 1))


def test_a_bandwidth_is_a_window_of_messages() -> None:
    reading = only(title("Bandwidth", "Bandwidth (MB/s)", "1000   500.00"), UserMetadata(nodes=2))
    assert (reading.benchmark.kind, reading.params) == ("burst", {"messages": 64})
    assert reading.samples == pytest.approx((64 * 1000 / 500e6,))


def test_both_directions_move_twice_the_bytes() -> None:
    text = title("Bi-Directional Bandwidth", "Bandwidth (MB/s)", "1000   500.00")
    reading = only(text, UserMetadata(nodes=2))
    assert reading.benchmark.kind == "exchange"
    assert reading.samples == pytest.approx((2 * 64 * 1000 / 500e6,))


def test_several_pairs_say_how_many_and_their_window() -> None:
    text = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v5.7\n"
        "# [ pairs: 4 ] [ window size: 32 ]\n"
        "# Size                  MB/s        Messages/s\n"
        "1000   500.00   500000.00\n"
    )
    reading = only(text, UserMetadata(nodes=2))
    assert (reading.rank_counts, reading.params) == (RankCounts(8, 2, 4), {"messages": 32})
    assert reading.samples == pytest.approx((32 * 4 * 1000 / 500e6,))
    varied = only(text.replace("32", "varied"), UserMetadata(nodes=2))
    assert "varied" in varied.exclusion_reason
    assert not varied.samples


def test_several_latencies_need_the_ranks() -> None:
    text = title("Multi Latency", "Latency (us)", "8   1.50")
    assert only(text, UserMetadata(p=4, nodes=2)).rank_counts == RankCounts(4, 2, 2)
    assert complaint(text, UserMetadata(nodes=2)) == (
        "results: line 3: the file does not say how many ranks were on each of its 2 nodes: add"
        " --ppn"
    )


def test_the_memory_is_in_the_title_unless_said_otherwise() -> None:
    text = title("Latency", "Latency (us)", "8   1.50", interface="MPI-CUDA")
    assert only(text, UserMetadata(nodes=1)).memory == "cuda"
    host = "# Send Buffer on HOST (H) and Receive Buffer on HOST (H)\n# Size"
    assert only(text.replace("# Size", host), UserMetadata(nodes=1)).memory == "host"
    assert only(text, UserMetadata(nodes=1, memory="host")).memory == "host"


@pytest.mark.parametrize("accelerator", ["CUDA", "ROCM", "OPENACC", "SYCL", "ZE"])
def test_the_memory_of_every_gpu_has_one_name(accelerator: str) -> None:
    text = title("Latency", "Latency (us)", "8   1.50", interface=f"MPI-{accelerator}")
    assert only(text, UserMetadata(nodes=1)).memory == "cuda"


def test_other_memory_is_refused_and_two_kinds_are_left_out() -> None:
    text = title("Latency", "Latency (us)", "8   1.50", interface="MPI-TAPE")
    said = complaint(text, UserMetadata(nodes=1))
    assert said.startswith("results: line 3: 'TAPE' in its title is not an accelerator known here")
    assert said.endswith("add --memory")
    assert only(text, UserMetadata(nodes=1, memory="cuda")).memory == "cuda"
    both = "# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n# Size"
    mixed = text.replace("TAPE", "CUDA").replace("# Size", both)
    found = only(mixed, UserMetadata(nodes=1))
    assert found.exclusion_reason == "one buffer was on the host and one on the device"


def test_what_runs_by_another_algorithm_is_told() -> None:
    reading = only(FULL, UserMetadata(p=8, nodes=2, algorithm="ring", params={"segment": 64}))
    assert (reading.algorithm, reading.params) == ("ring", {"segment": 64})


def test_banners_around_and_between_are_not_rows() -> None:
    text = (
        "Welcome to the machine\n3 jobs are waiting\n"
        + ALLREDUCE.replace("1024 ", "[node1:77] btl: no such device\n\nUCX  WARN  slow\n1024 ")
        + "srun: job finished\n"
    )
    assert [reading.nbytes for reading in parse_results(text, metadata=EIGHT)] == [4, 1024]


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 12: "])
def test_lines_that_the_launcher_labels(label: str) -> None:
    text = "".join(f"{label}{line}\n" for line in ALLREDUCE.split("\n")[:-1])
    found = parse_results(text, metadata=EIGHT)
    assert found == parse_results(ALLREDUCE, metadata=EIGHT)


def test_several_tables_in_one_file_and_carriage_returns() -> None:
    text = (ALLREDUCE + FULL).replace("\n", "\r\n")
    found = parse_results("\ufeff" + text, metadata=EIGHT)
    assert [reading.benchmark.subject for reading in found] == ["allreduce", "allreduce", "bcast"]


def test_what_is_no_measurement_is_read_all_the_same() -> None:
    found = parse_results(title("Init", "", "   5.25") + ALLREDUCE, metadata=EIGHT)
    assert [reading.benchmark.kind for reading in found] == ["", "collective", "collective"]


@pytest.mark.parametrize(
    ("columns", "row", "seconds"),
    [
        ("Avg Latency(us)", "5.25", 5.25e-6),
        (
            "Avg Latency(us)     Min Latency(us)     Max Latency(us)  Iterations",
            "5.25   4.00   6.50   1000",
            6.5e-6,
        ),
    ],
)
def test_a_barrier_has_no_size(columns: str, row: str, seconds: float) -> None:
    reading = only(f"# OSU MPI Barrier Latency Test v7.3\n# {columns}\n   {row}\n")
    assert (reading.benchmark.subject, reading.nbytes) == ("barrier", 4)
    assert reading.samples == pytest.approx((seconds,))


def test_wrong_results_are_no_measurements() -> None:
    text = title(
        "Allreduce Latency", "Avg Latency(us)   Validation", "4   3.25   Pass", "8   3.25   Fail"
    )
    assert [r.exclusion_reason for r in parse_results(text, metadata=EIGHT)] == [
        "",
        "the result was wrong",
    ]


@pytest.mark.parametrize(
    ("told", "demand"),
    [
        (UserMetadata(), "on how many ranks and nodes it was measured: add --ranks and --nodes"),
        (UserMetadata(p=8), "on how many nodes its 8 ranks were: add --nodes"),
        (UserMetadata(nodes=2), "how many ranks were on each of its 2 nodes: add --ppn"),
        (UserMetadata(ppn=4), "on how many nodes of 4 ranks it was measured: add --nodes"),
    ],
)
def test_what_the_file_does_not_say_is_demanded(told: UserMetadata, demand: str) -> None:
    assert complaint(ALLREDUCE, told) == f"results: line 4: the file does not say {demand}"


def test_two_ranks_need_to_know_whether_they_share_a_node() -> None:
    text = title("Latency", "Latency (us)", "8   1.50")
    assert complaint(text, UserMetadata(p=8)).endswith(
        "add --nodes 1, or --nodes 2 for one rank on each"
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"p": 8, "nodes": 3},
            "8 ranks cannot be spread evenly over 3 nodes: correct --ranks or --nodes",
        ),
        (
            {"p": 8, "ppn": 3},
            "8 ranks cannot be spread over nodes of 3 ranks each: correct --ranks or --ppn",
        ),
        (
            {"p": 8, "nodes": 1, "ppn": 4},
            "8 ranks are not 1 node of 4 ranks each: correct --ranks or --nodes or --ppn",
        ),
    ],
)
def test_options_that_contradict_one_another_are_named_without_a_file(
    told: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        UserMetadata(**told)
    assert str(refused.value) == said


@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_options_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(InputError, match="--nodes"):
        UserMetadata(nodes=value)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("10.50", "10.5x", "line 4: the latency cannot be '10.5x'"),
        ("10.50", "-10.50", "line 4: the latency cannot be '-10.50'"),
        ("10.50", "1e999", "line 4: the latency cannot be '1e999'"),
        ("1024 ", "1O24 ", "line 5: the size cannot be '1O24'"),
        ("1024 ", "-1024 ", "line 5: the size cannot be '-1024'"),
        ("1024 ", "x ", "line 5: the size cannot be 'x'"),
        ("20.25", "", "line 5: 1 fields where the header names 2"),
        ("20.25", "20.25 7", "line 5: 3 fields where the header names 2"),
        ("# Size         Avg Latency(us)\n", "", "line 3: a row before the header"),
        ("Avg Latency(us)", "Cost(EUR)", "line 4: expected a latency or a bandwidth in the header"),
    ],
)
def test_damage_is_refused_with_its_line(before: str, after: str, said: str) -> None:
    assert said in complaint(ALLREDUCE.replace(before, after))


def test_what_is_cut_off_is_refused() -> None:
    assert "line 5: cut off" in complaint(ALLREDUCE[:-2])
    assert "line 2: no row follows" in complaint(ALLREDUCE[: ALLREDUCE.index("4  ")])
    assert "line 8: no row follows" in complaint(ALLREDUCE + "\n" + FULL[: FULL.index("8  ")])


def test_every_prefix_gives_the_first_rows_or_a_sentence() -> None:
    text = ALLREDUCE + FULL
    whole = parse_results(text, metadata=EIGHT)
    refused = 0
    for end in range(len(text)):
        try:
            found = parse_results(text[:end], "osu", EIGHT)
        except InputError:
            refused += 1
        else:
            assert found == whole[: len(found)]
    assert refused > len(text) / 2


def test_a_form_that_it_is_not_is_refused() -> None:
    assert "title" in complaint("collective,nodes,size_bytes,time_us\n", form="osu")
    assert "unknown format of results 'hpl'" in complaint(ALLREDUCE, form="hpl")


@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("allreduce", "collective", 15),
        ("bcast_f", "collective", 17),
        ("bw", "burst", 23),
        ("latency", "pingpong", 24),
    ],
)
def test_the_samples_are_read(shared: Path, name: str, kind: str, rows: int) -> None:
    found = read_results(
        shared / f"data/samples/osu/osu_{name}.out", metadata=UserMetadata(p=2, nodes=1)
    )
    assert len(found) == rows
    assert {(reading.benchmark.kind, reading.exclusion_reason) for reading in found} == {(kind, "")}
    assert sorted(reading.nbytes or 0 for reading in found) == [r.nbytes for r in found]
