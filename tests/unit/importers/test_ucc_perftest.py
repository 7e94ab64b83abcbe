"""Output of ucc_perftest: sizes of all versions, header lines, calls without data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ucc_files import ROW, TOTAL, table
from tuner.base.errors import InputError
from tuner.importers import BenchmarkResult, UserMetadata, as_measurements, parse_results, read_all

TOLD = UserMetadata(p=8, nodes=2)


def read(text: str, told: UserMetadata = TOLD) -> BenchmarkResult:
    (reading,) = parse_results(text, metadata=told)
    return reading


def notes(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "u.txt"
    path.write_text(text)
    return [note.removeprefix(f"{path}: ") for note in read_all([path], metadata=TOLD)[1]]


def test_the_time_of_the_slowest_rank_is_used() -> None:
    reading = read(table())
    assert (reading.benchmark.name, reading.benchmark.subject) == ("UCC Allreduce", "allreduce")
    assert (reading.nbytes, reading.samples) == (1024, (14.75e-6,))
    assert (reading.min_seconds, reading.max_seconds) == (11.25e-6, 14.75e-6)
    assert (reading.statistic, reading.operands, reading.library) == (
        "slowest rank",
        "float32 sum",
        "ucc",
    )
    assert (reading.memory, reading.exclusion_reason) == ("host", "")
    measured = as_measurements([reading], "ucc 1.8.0", "here")
    assert (measured.library, len(measured.series)) == ("ucc 1.8.0", 1)


@pytest.mark.parametrize(
    ("collective", "old", "new"),
    [
        ("Allreduce", 1, 1),
        ("Bcast", 1, 1),
        ("Reduce", 1, 1),
        ("Allgather", 8, 8),
        ("Allgatherv", 8, 8),
        ("Gather", 8, 8),
        ("Alltoall", 8, 1),
        ("Alltoallv", 8, 1),
        ("Scatter", 8, 1),
        ("Reduce_scatter", 8, 1),
    ],
)
def test_sizes_are_of_one_block_or_of_what_is_sent(collective: str, old: int, new: int) -> None:
    """Sizes are of blocks or buffers by collective and version, which the last line tells."""
    sizes = [read(table(collective, total=total)).nbytes for total in ("", "Total time: 1 ms\n")]
    assert sizes == [1024 * old, 1024 * new]
    assert read(table(collective, total="", Iteration_mode="isolated")).nbytes == 1024 * new


def test_bandwidths_are_columns_that_no_time_needs(tmp_path: Path) -> None:
    row = f"{ROW}       24.00       25.27         N/A"
    assert read(table("Allreduce", row, rates=True)).samples == (14.75e-6,)
    assert notes(table("Allreduce", row, rates=True), tmp_path) == []


def test_columns_that_are_not_known_are_named(tmp_path: Path) -> None:
    more = table("Allreduce", f"{ROW} 15.5").replace("max\n", "max p99\n")
    assert read(more).samples == (14.75e-6,)
    assert notes(more, tmp_path) == ["line 14: columns not used: 'p99'"]
    rates = table("Allreduce", f"{ROW} 1 2 3 4", rates=True).replace("  min\n", "  min xx\n")
    assert notes(rates, tmp_path) == ["line 14: columns not used: 'xx'"]
    other = table("Allreduce", f"{ROW} 1 2 3", rates=True).replace("GB/s", "GB/s  Jitter, us")
    assert notes(other, tmp_path) == ["line 13: columns not used: 'Jitter, us'"]


def test_facts_stand_before_the_rows(tmp_path: Path) -> None:
    text = table("Allreduce", ROW, "Memory type: cuda", "Datatype: float64", ROW)
    readings = parse_results(text, metadata=TOLD)
    assert [(one.memory, one.operands) for one in readings] == [("host", "float32 sum")] * 2
    said = "skipped 2 lines among the rows, the first is line 16: 'Memory type: cuda'"
    assert notes(text, tmp_path) == [said]


def test_a_line_with_a_colon_may_come_twice(tmp_path: Path) -> None:
    text = table().replace("Inplace", "Warning: a\nWarning: b\nInplace")
    assert notes(text, tmp_path) == [
        "line 5: not used: 'Warning: a'",
        "line 6: not used: 'Warning: b'",
    ]


def test_a_barrier_has_no_size() -> None:
    row = "         N/A         N/A        5.12        4.80        5.66"
    reading = read(table("Barrier", row, Reduction="N/A", Inplace="N/A"))
    assert (reading.benchmark.subject, reading.samples) == ("barrier", (5.66e-6,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (table(Iteration_mode="streaming"), "calls follow one another without a barrier"),
        (table(Memory_type="cuda-managed"), "in managed memory"),
    ],
)
def test_calls_of_another_kind_are_left_out(text: str, reason: str) -> None:
    assert reason in read(text).exclusion_reason


@pytest.mark.parametrize("name", ["Memcpy", "Reduce_scatterv", "Fanin"])
def test_operations_that_are_not_tuned_have_no_kind(name: str) -> None:
    assert read(table(name)).benchmark.kind == ""


def test_what_is_not_used_is_named(tmp_path: Path) -> None:
    assert notes(table(Inplace="1", Team="3 ranks"), tmp_path) == [
        "line 6: not used: 'Team: 3 ranks'",
        "line 5: measured in place, with one buffer for both ways",
    ]
    assert notes(table(), tmp_path) == []


def test_sizes_that_depend_on_the_version_are_named(tmp_path: Path) -> None:
    """A run of a newer version that was cut off looks like one of an older version."""
    old = (
        "line 1: it ends without a total time, as before version 1.5, whose sizes are of one block"
    )
    assert notes(table("Alltoall", total=""), tmp_path) == [old]
    assert notes(table("Reduce_scatter", total=""), tmp_path) == [old]
    assert notes(table("Alltoall"), tmp_path) == notes(table("Bcast", total=""), tmp_path) == []


def test_memory_of_gpus_is_cuda() -> None:
    assert [read(table(Memory_type=name)).memory for name in ("cuda", "rocm")] == ["cuda"] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (table(Memory_type="ze"), "line 15: 'ze' is not a memory known here .*: add --memory"),
        (table("Allreduce", "255 1024 5 4 6"), "line 15: 255 elements of float32 are not 1024"),
        (table(Datatype="float64"), "line 15: 256 elements of float64 are not 1024 bytes"),
        (table("Allreduce", ROW[:-10]), "line 15: 4 fields where the header names 5"),
        (table("Allreduce", ROW, "512 2048 5 4 x"), "line 16: max cannot be 'x'"),
        (table(total="").rstrip(), "line 15: cut off"),
        (table("Allreduce", "Total"), "line 1: no row follows `Collective: Allreduce`"),
        (table().partition("Warmup")[0], "line 1: no row follows `Collective: Allreduce`"),
        (table().replace("avg", "mean"), "line 15: a row before the header"),
        (table().replace("Time, us", "Time, ms"), "line 15: a row before the header"),
        (table("Allreduce", "256 1024 abc 10 14"), "line 15: avg cannot be 'abc'"),
        (table("Allreduce", "256 1024 12 14 10"), "line 15: avg 12 is not between min 14 and max"),
        (table("Allreduce", "256 1024 9 10 14"), "line 15: avg 9 is not between min 10 and max 14"),
        (f"{table()}{TOTAL}", "line 17: `Total time:` was stated on line 16"),
        (
            table().replace("Datatype:", "Memory type: cuda\nDatatype:"),
            "line 3: `Memory type:` was stated on line 2: several runs are in one table",
        ),
        (table(Inplace="2"), "line 5: Inplace is 0, 1 or N/A, not '2'"),
    ],
)
def test_damaged_tables_are_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_results(text, metadata=TOLD)


def test_several_tables_have_their_own_header_lines() -> None:
    readings = parse_results(
        table(Memory_type="cuda") + table("Bcast", Inplace="N/A"), metadata=TOLD
    )
    assert [(one.benchmark.subject, one.memory) for one in readings] == [
        ("allreduce", "cuda"),
        ("bcast", "host"),
    ]
