"""The record of a run, from files that we wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.path_classes import CYCLIC
from tuner.core.table import RuleKey
from tuner.preload.run_record import read_record

RANKS = ["0 rank 2000000000 0", "1 rank 2000000000 3"]
# rank collective nodes ppn is_cyclic commutes choice nbytes calls time least median most samples
# sampled waiting
KINDS = [
    "0 allreduce 2 2 1 1 1 64 10 500 20 40 90 1 100 50",
    "1 allreduce 2 2 1 1 1 64 10 700 30 50 80 1 100 0",
    "0 allreduce 2 2 1 0 0 64 4 100 25 25 25 0 0 0",
    "1 allreduce 2 2 1 0 0 64 4 100 25 25 25 0 0 0",
]


def guideline(names: str, halves: int, *nanoseconds: int) -> str:
    times = " ".join(map(str, nanoseconds))
    return f"0 guideline allreduce 2 2 1 64 {names} {halves} {times}"


def written(folder: Path, *lines: str) -> Path:
    """Write the lines as the library does, which ends those of calls by one of its own."""
    path = folder / "record"
    calls = [line for line in lines if " guideline " not in line]
    text = [*calls, "0 complete", *lines[len(calls) :]]
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return path


def test_calls_of_all_ranks_are_put_together(tmp_path: Path) -> None:
    found = read_record(written(tmp_path, *RANKS, *KINDS), ["default", "ring(segment=64)"])
    assert (found.ranks, found.unrecorded, found.tried) == (2, 3, 0)
    first, second = found.kinds
    assert (first.rank_calls, first.calls, first.choice) == (20, 5, "ring(segment=64)")
    assert first.seconds == pytest.approx(1200e-9)
    assert (first.least_s, first.median_s, first.most_s) == pytest.approx((30e-9, 50e-9, 90e-9))
    assert first.waiting == 0.25
    assert first.key == RuleKey(Collective.ALLREDUCE, 2, 2, "host", "commutative", CYCLIC)
    assert (second.key.operators, second.waiting) == ("any", None)


def test_the_service_takes_medians(tmp_path: Path) -> None:
    found = read_record(written(tmp_path, *RANKS, *KINDS), ["default", "ring(segment=64)"])
    summary = found.summaries()[0].record()
    assert {name: summary[name] for name in ("algorithm", "calls", "nbytes", "placement")} == {
        "algorithm": "ring",
        "calls": 5,
        "nbytes": 64,
        "placement": CYCLIC,
    }
    assert summary["median_s"] == pytest.approx(50e-9)


def test_the_service_takes_what_it_can(tmp_path: Path) -> None:
    """Barriers have the size of probes, refused calls none, and there is a most for calls."""
    lines = [
        "0 barrier 1 1 0 0 0 0 7 70 5 10 20 0 0 0",
        "0 bcast 1 1 0 0 0 -1 7 70 5 10 20 0 0 0",
        "0 bcast 1 1 0 0 0 8 3000000 70 5 10 20 0 0 0",
    ]
    found = read_record(written(tmp_path, RANKS[0], *lines))
    told = [item.record() for item in found.summaries()]
    assert [(one["collective"], one["nbytes"], one["calls"]) for one in told] == [
        ("bcast", 8, 1_000_000),
        ("barrier", 4, 7),
    ]


@pytest.mark.parametrize(
    ("rows", "instead"),
    [
        ([("reduce+bcast", 2, 500), ("allreduce", 4, 900)], "reduce+bcast"),
        ([("reduce+bcast", 2, 900), ("allreduce", 4, 500)], "twice the bytes"),
        ([("reduce+bcast", 2, 990), ("allreduce+allreduce", 1, 800)], "half the bytes, twice"),
        ([("reduce+bcast", 2, 990), ("allreduce", 4, 1000)], None),
    ],
)
def test_the_guideline_that_is_broken_most(
    tmp_path: Path, rows: list[tuple[str, int, int]], instead: str | None
) -> None:
    lines = [guideline("allreduce", 2, *(1000 + n for n in range(9)))]
    lines += [guideline(names, halves, *(t + n for n in range(9))) for names, halves, t in rows]
    found = read_record(written(tmp_path, *RANKS, *lines))
    assert found.tried == 1
    assert [one.instead for one in found.broken] == ([instead] if instead else [])


def test_a_run_that_is_interrupted_keeps_the_guidelines_that_are_whole(tmp_path: Path) -> None:
    lines = [guideline(names, 2, 1000, 1001, 1002) for names in ("allreduce", "reduce+bcast")]
    path = written(tmp_path, *RANKS, *KINDS, *lines)
    whole = path.read_text(encoding="utf-8")
    begins = whole.index("0 guideline")
    for length in range(begins, len(whole)):
        path.write_text(whole[:length], encoding="utf-8")
        found = read_record(path, ["default", "ring"])
        assert (found.ranks, len(found.kinds), found.tried) == (2, 2, 0)
    path.write_text(whole[: begins - 1], encoding="utf-8")
    with pytest.raises(InputError, match="has left no record"):
        read_record(path, ["default", "ring"])


@pytest.mark.parametrize("line", ["what is this", "0 guideline allreduce 1 2 0 8 allreduce x"])
def test_a_file_of_something_else(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match="has left no record"):
        read_record(written(tmp_path, RANKS[0], line, line))
