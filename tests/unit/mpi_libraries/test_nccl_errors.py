"""The comparison of measured times of NCCL on one node, on rows made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.nccl_errors import (
    Row,
    chosen_way,
    errors_of_lines,
    jumps,
    predictor_of,
    read_rows,
    spreads,
    terms,
)
from tuner.mpi_libraries.nccl import AlgoProto

MIB = 1 << 20
HEADER = "system,recorded_version,collective,gpus,dtype,size_bytes,time_us,run\n"


def predicted(row: Row) -> Row:
    """Return the row with the time that is predicted of it."""
    seconds = terms(*row.call).seconds(predictor_of(row.system, 2).costs)
    return replace(row, seconds=seconds)


def test_nvswitches_sum_no_bytes(tmp_path: Path) -> None:
    """NCCL runs a ring for these, but gathers any type over NVSwitches."""
    calls = [("all_reduce", "half"), ("all_reduce", "int8"), ("all_gather", "int8")]
    lines = [f"h100_sxm,2.29.2,{one},8,{dtype},536870912,2000,1\n" for one, dtype in calls]
    data = tmp_path / "times.csv"
    data.write_text(HEADER + "".join(lines))
    rows, others = read_rows([data])
    assert not others
    ways = [chosen_way(*row.call) for row in rows]
    assert ways[:2] == [AlgoProto("nvls", "Simple"), AlgoProto("ring", "Simple")]
    assert ways[2] == chosen_way(*replace(rows[2], dtype="half").call)


def test_rows_without_a_datatype_are_of_half(tmp_path: Path) -> None:
    data = tmp_path / "times.csv"
    data.write_text("system,collective,gpus,size_bytes,time_us\nh100_sxm,all_reduce,8,1024,20\n")
    assert read_rows([data])[0][0].dtype == "half"


def test_a_jump_is_told_from_a_cost_that_is_off_everywhere() -> None:
    sizes = [16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB]
    rows = [predicted(Row("a100_sxm", "all_gather", 2, size, 0.0)) for size in sizes]
    rows = [replace(row, seconds=1.2 * row.seconds) for row in rows]
    rows[1] = replace(rows[1], seconds=1.1 * rows[1].seconds)
    found = {row.nbytes: jump for row, jump in jumps(rows)}
    assert found == pytest.approx({32 * MIB: 0.1, 64 * MIB: 1.1**-0.5 - 1})


def test_no_jump_is_told_where_the_protocol_changes() -> None:
    rows = [Row("a100_sxm", "all_reduce", 8, size << 20, 1e-4) for size in (2, 4, 8, 16)]
    assert len({chosen_way(*row.call) for row in rows}) == 2
    assert [row.nbytes for row, _ in jumps(rows)] == [8 * MIB]


def test_a_line_for_each_protocol_and_type_leaves_nothing_of_lines() -> None:
    rows = [
        Row("a100_sxm", "all_gather", 2, size << 20, start + size * 4e-6, dtype=dtype)
        for dtype, start in (("half", 3e-5), ("int8", 6e-5))
        for size in (16, 32, 64, 128)
    ]
    own = [error for _, error in errors_of_lines(rows, by_type=True)]
    assert own == pytest.approx([0.0] * 8, abs=1e-6)
    assert max(abs(error) for _, error in errors_of_lines(rows, by_type=False)) > 0.1


def test_repeated_rows_are_compared_with_their_median() -> None:
    row = Row("a100_sxm", "all_gather", 2, MIB, 1e-5)
    rows = [row, replace(row, seconds=1.1e-5), replace(row, seconds=0.9e-5)]
    single = replace(row, nbytes=2 * MIB)
    found = [spread for _, spread in spreads([*rows, single])]
    assert found == pytest.approx([0.0, 0.1, -0.1])
