"""The Intel MPI Benchmarks: blocks, their ranks and sizes, and what is said about damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.imb_files import END, ROW, TIMES, block, whole
from tuner.base.errors import InputError
from tuner.importers import BenchmarkResult, RankCounts, UserMetadata, parse_results, read_results

RATES = "       #bytes #repetitions      t[usec]   Mbytes/sec"
TWO = UserMetadata(ppn=2)


def only(text: str, told: UserMetadata = TWO) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def complaint(text: str, told: UserMetadata = TWO) -> str:
    with pytest.raises(InputError) as refused:
        parse_results(text, metadata=told)
    return str(refused.value)


def test_a_block_is_read() -> None:
    reading = only(whole(block("Bcast", 2, ROW)))
    assert (reading.benchmark.subject, reading.nbytes, reading.line) == ("bcast", 16, 9)
    assert reading.samples == pytest.approx((2.5e-6,))
    assert (reading.min_seconds, reading.max_seconds) == pytest.approx((1.25e-6, 2.5e-6))
    assert reading.statistic == "slowest rank"
    assert reading.rank_counts == RankCounts(2, 1, 2)


def test_defects_are_wrong_results() -> None:
    header = f"{TIMES}      defects"
    rows = [f"{ROW}         {defects}" for defects in ("0.00", "4.00")]
    right, wrong = parse_results(whole(block("Reduce", 2, *rows, header=header)), metadata=TWO)
    assert (right.exclusion_reason, wrong.exclusion_reason) == ("", "the result was wrong")


def test_the_memory_of_a_program_for_gpus_is_told_or_demanded() -> None:
    text = f"# ./IMB-MPI1-GPU -mem_alloc_type device Bcast\n{block('Bcast', 2, ROW)}{END}"
    assert only(text).memory == "cuda"
    assert only(text.replace("device", "cpu")).memory == "host"
    assert complaint(text.replace("device", "tape")) == (
        "results: line 1: 'tape' is not a memory known here: add --memory"
    )
    silent = text.replace("-mem_alloc_type device ", "")
    assert "line 1: it does not say which memory was used: add --memory" in complaint(silent)
    assert only(silent, UserMetadata(ppn=2, memory="cuda")).memory == "cuda"


def test_an_excerpt_without_beginning_needs_no_end() -> None:
    assert only(block("Bcast", 2, ROW)).nbytes == 16


@pytest.mark.parametrize(
    ("name", "subject", "factor"),
    [
        ("Allreduce", "allreduce", 1),
        ("Reduce", "reduce", 1),
        ("Allgather", "allgather", 4),
        ("Gather", "gather", 4),
        ("Scatter", "scatter", 4),
        ("Alltoall", "alltoall", 4),
        ("Reduce_scatter", "reduce_scatter", 1),
        ("Reduce_scatter_block", "reduce_scatter", 4),
    ],
)
def test_sizes_become_those_of_the_whole_buffer(name: str, subject: str, factor: int) -> None:
    reading = only(whole(block(name, 4, ROW)))
    assert (reading.benchmark.subject, reading.nbytes) == (subject, 16 * factor)


def test_blocks_of_fewer_ranks_fill_nodes_in_turn() -> None:
    idle = "# ( {} additional processes waiting in MPI_Barrier)"
    blocks = [
        block("Bcast", p, ROW, remark=idle.format(8 - p) if p < 8 else "") for p in (2, 4, 6, 7, 8)
    ]
    expected = [
        RankCounts(2, 1, 2),
        RankCounts(4, 1, 4),
        RankCounts(6, 2, 0),
        RankCounts(7, 2, 0),
        RankCounts(8, 2, 4),
    ]
    assert [
        r.rank_counts for r in parse_results(whole(*blocks), metadata=UserMetadata(ppn=4))
    ] == expected
    assert [
        r.rank_counts for r in parse_results(whole(*blocks), metadata=UserMetadata(nodes=2))
    ] == expected


def test_messages_of_two_ranks() -> None:
    row = "           16           20         1.25        12.80"
    found = parse_results(
        whole(
            block("PingPong", 2, row, header=RATES),
            block("PingPing", 2, row, header=RATES),
            block("Sendrecv", 2, ROW),
            block("Sendrecv", 4, ROW),
            block("Exchange", 2, ROW),
        ),
        metadata=TWO,
    )
    assert [r.benchmark.kind for r in found] == ["pingpong", "exchange", "exchange", "", ""]
    assert found[0].samples == pytest.approx((1.25e-6,))
    assert found[2].samples == pytest.approx((2.5e-6,))


def test_what_was_not_run_or_not_alone_is_left_out() -> None:
    missing = '      4194304 out-of-mem.; needed X=    0.016 GB; use flag "-mem X"'
    assert only(whole(block("Bcast", 2, missing))).exclusion_reason == "it was not run"
    groups = "# ( 2 groups of 2 processes each running simultaneous ) "
    assert "same time" in only(whole(block("Bcast", 2, ROW, remark=groups))).exclusion_reason


def test_barriers_have_no_size_and_banners_do_no_harm() -> None:
    header = " #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]"
    barrier = block("Barrier", 2, "           20    1.25   2.50   1.75", header=header)
    text = whole(barrier, block("Bcast", 2, ROW, "[node1] ucx: retry", "", ROW))
    found = parse_results(text, metadata=TWO)
    assert [reading.benchmark.subject for reading in found] == ["barrier", "bcast", "bcast"]
    assert found[0].nbytes == 4
    assert found[0].samples == pytest.approx((2.5e-6,))


def test_what_the_file_does_not_say_is_demanded() -> None:
    assert complaint(whole(block("Bcast", 2, ROW)), UserMetadata()) == (
        "results: line 9: the file does not say how many ranks were on each node: add --ppn"
    )
    assert "--ranks says 4" in complaint(whole(block("Bcast", 2, ROW)), UserMetadata(p=4, ppn=2))
    assert "3 nodes" in complaint(whole(block("Bcast", 8, ROW)), UserMetadata(nodes=3))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("2.50", "2.5O", "line 9: t_max[usec] cannot be '2.5O'"),
        ("           16 ", "           1_6 ", "line 9: the size cannot be '1_6'"),
        ("         1.75", "", "line 9: 4 fields where the header names 5"),
        ("#processes = 2", "#processes = 0", "line 9: a row before"),
        ("t_max[usec]", "t_most", "line 9: expected t_max[usec] or t[usec]"),
        ("# #processes = 2 \n", "", "line 8: a row before"),
        (ROW + "\n", "", "line 5: no row follows `Benchmarking Bcast`"),
        (END, "\n", "line 10: it ends without `# All processes entering MPI_Finalize`"),
        ("\n" + END, "", "line 9: cut off"),
    ],
)
def test_damage_is_refused_with_its_line(before: str, after: str, said: str) -> None:
    text = whole(block("Bcast", 2, ROW))
    assert before in text
    assert said in complaint(text.replace(before, after))


def test_every_prefix_gives_a_sentence() -> None:
    text = whole(
        block("Bcast", 2, ROW, ROW), block("PingPong", 2, "16 20 1.25 12.80", header=RATES)
    )
    for end in range(len(text) - len("entering MPI_Finalize\n")):
        assert "line " in complaint(text[:end])


def test_the_sample_is_read(shared: Path) -> None:
    found = read_results(shared / "data/samples/imb/imb_mpi1_2021.out", metadata=TWO)
    assert len(found) == 24
    assert [found[i].benchmark.subject for i in (0, 8, 16)] == ["bcast", "allreduce", ""]
    assert found[-1].benchmark.kind == "pingpong"
    assert found[-1].samples == pytest.approx((0.19e-6,))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"nodes": 3}, "4 ranks cannot be spread evenly over 3 nodes: correct --nodes"),
        (
            {"nodes": 4, "ppn": 4},
            "4 ranks are not 4 nodes of 4 ranks each: correct --nodes or --ppn",
        ),
    ],
)
def test_options_that_do_not_fit_the_processes_are_named(told: dict[str, Any], said: str) -> None:
    text = (
        "# Benchmarking Bcast\n# #processes = 4\n#bytes #repetitions t_max[usec]\n1024 100 2.0\n"
        "# All processes entering MPI_Finalize\n"
    )
    with pytest.raises(InputError) as refused:
        parse_results(text, "imb", UserMetadata(**told))
    assert str(refused.value) == f"results: line 4: {said}"
