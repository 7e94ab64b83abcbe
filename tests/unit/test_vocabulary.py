"""Units, files, measurements, calibrations and tables: right in, right out, one sentence else."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.collective import Collective
from tuner.cost import (
    Calibration,
    Estimate,
    PathCost,
    ReductionCost,
    Segment,
    read_calibration,
    write_calibration,
)
from tuner.errors import InputError
from tuner.files import write_atomically
from tuner.measurement import (
    Cluster,
    Measurement,
    end_line,
    header_line,
    read_measurements,
    read_partial,
    series_line,
)
from tuner.table import Choice, Evidence, Key, Rule, TuningTable, read_table, write_table
from tuner.units import (
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
    parse_time,
)

LAB = Cluster("lab", 1, 4, "a CPU", 2**34)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65536),
        ("1.5MiB", 1572864),
        ("1 kB", 1000),
        ("2GiB", 2**31),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "64k", "1e400", "NaN", "64 KiB s", None, []]
)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(InputError, match="write it like 64KiB"):
        parse_size(text)


def test_times_and_rates() -> None:
    assert parse_time("2us") == pytest.approx(2e-6)
    assert parse_bandwidth("12.5GB/s") == 12.5e9
    assert parse_bandwidth("100Gb/s") == 12.5e9
    for parse, text in ((parse_time, "2"), (parse_bandwidth, "12.5"), (parse_bandwidth, "0GB/s")):
        with pytest.raises(InputError, match="write it like"):
            parse(text)


@given(st.integers(0, 2**50))
def test_sizes_survive_being_written(nbytes: int) -> None:
    assert parse_size(format_size(nbytes)) == nbytes


def test_times_are_readable() -> None:
    assert [format_time(t) for t in (1.5, 2.5e-3, 12.34e-6, 5e-9)] == [
        "1.5s",
        "2.5ms",
        "12.3us",
        "5ns",
    ]
    assert format_size(math.inf) == "inf"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on file sizes refuses the write half-way, as a full disk does."""
    path = tmp_path / "table.json"
    write_atomically(path, "old")
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tuner.errors import InputError; from tuner.files import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_atomically(Path(sys.argv[1]), 'new' * 10_000)\n"
        "except InputError as reason: print(reason)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True,
                         check=True)  # fmt: skip
    assert "table.json: cannot be written: File too large; nothing was changed" in run.stdout
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


SERIES = [
    Measurement("collective", "bcast", 1, 4, 4, 1024, (1e-6, 2e-6), "chain", {"segment": 512}),
    Measurement("pingpong", "node", 1, 2, 2, 8, (5e-7,)),
]


def written(path: Path, *, end: bool = True, cut: int = 0) -> Path:
    lines = [header_line(LAB, "openmpi 5.0.11", {"host": "h"}), *map(series_line, SERIES)]
    text = "\n".join([*lines, *([end_line(2)] if end else [])]) + "\n"
    path.write_text(text[: len(text) - cut])
    return path


def test_measurements_survive_being_written(tmp_path: Path) -> None:
    read = read_measurements(written(tmp_path / "m.ndjson"))
    assert (read.cluster, read.library, list(read.series)) == (LAB, "openmpi 5.0.11", SERIES)


@pytest.mark.parametrize(("end", "cut"), [(False, 0), (False, 30), (True, 1), (True, 10)])
def test_unfinished_measurements_are_refused_but_resumed(
    tmp_path: Path, end: bool, cut: int
) -> None:
    path = written(tmp_path / "m.ndjson", end=end, cut=cut)
    with pytest.raises(
        InputError, match=r"incomplete, it ends after . series; run the probe again"
    ):
        read_measurements(path)
    _, series, ended = read_partial(path)
    assert not ended
    assert series == SERIES[: len(series)]
    assert len(series) == (1 if cut == 30 else 2)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda t: t.replace('"pingpong"', "pingpong"), "line 3: not a measurement"),
        (lambda t: t.replace('"nbytes"', '"size"'), "lacks or has an unknown field"),
        (lambda t: t.replace('"version": 1', '"version": 2'), "line 1: not the header"),
        (lambda t: t.replace('"lines": 2', '"lines": 3'), "3 series were written but 2 are there"),
        (lambda t: "\n" + t, "line 1: not a measurement"),
        (lambda _: "", "incomplete"),
    ],
)
def test_damaged_measurements_are_named(tmp_path: Path, spoil: object, sentence: str) -> None:
    path = written(tmp_path / "m.ndjson")
    path.write_text(spoil(path.read_text()))  # type: ignore[operator]
    with pytest.raises(InputError, match=sentence):
        read_measurements(path)
    with pytest.raises(InputError, match=r"cannot be read as measurements"):
        read_measurements(tmp_path / "absent.ndjson")


def test_calibrations_survive_being_written(tmp_path: Path) -> None:
    value = Estimate(1e-6, 0.9e-6, 1.2e-6)
    segments = (Segment(0, 100, value, value), Segment(100, math.inf, value, value))
    calibration = Calibration(
        "lab", "openmpi 5.0.11", {("node", "host"): PathCost(segments, 4096, value)},
        {"host": ReductionCost(value, value)}, {"memory_bus": value}, provenance={"a": [1, "b"]},
    )  # fmt: skip
    write_calibration(calibration, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == calibration
    assert calibration.path("node").seconds(50) == pytest.approx(1e-6 + 1e-6 + 50e-6)
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(InputError, match="not a calibration"):
        read_calibration(tmp_path / "c.json")


KEY = Key(Collective.BCAST, 1, 4)


def rule(lo: int, hi: float, name: str = "default") -> Rule:
    choice = Choice(name, {"segment": 8} if name == "chain" else {})
    evidence = Evidence("measured", (lo,), (2e-6,), (1e-6,), (), 2.0, (1.8, 2.2), "linear")
    return Rule(KEY, lo, hi, choice, evidence)


def test_tables_survive_being_written(tmp_path: Path) -> None:
    table = TuningTable(
        LAB, "openmpi 5.0.11", (rule(100, math.inf, "chain"), rule(0, 100)), {"x": 1}
    )
    write_table(table, tmp_path / "t.json")
    read = read_table(tmp_path / "t.json")
    assert (read.rules, read.cluster, read.provenance) == (table.rules, LAB, {"x": 1})


@pytest.mark.parametrize(
    ("nbytes", "name"), [(0, "a"), (99, "a"), (100, "b"), (199, "b"), (200, "c"), (10**12, "c")]
)
def test_lookup_at_the_boundaries(nbytes: int, name: str) -> None:
    table = TuningTable(
        LAB, "x", (rule(0, 100, "a"), rule(100, 200, "b"), rule(200, math.inf, "c"))
    )
    found = table.lookup(KEY, nbytes)
    assert found is not None
    assert found.choice.algorithm == name
    assert table.lookup(replace(KEY, ppn=3), nbytes) is None


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([rule(1, math.inf)], "should start at 0"),
        ([rule(0, 10), rule(11, math.inf)], "should start at 10"),
        ([rule(0, 10), rule(9, math.inf)], "should start at 10"),
        ([rule(0, 10)], "the last rule must end at inf"),
        ([rule(0, 0), rule(0, math.inf)], "end above its start"),
    ],
)
def test_gaps_and_overlaps_are_refused(rules: list[Rule], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TuningTable(LAB, "x", tuple(rules))


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for text in ("", "[]", "{}", json.dumps({"kind": "table", "version": 9}), '{"kind": "table"'):
        path.write_text(text)
        with pytest.raises(InputError, match="not a tuning table"):
            read_table(path)
