"""Units, files, measurements and calibrations: right in, right out, one sentence else."""

from __future__ import annotations

import math
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.units import (
    format_exact_size,
    format_range,
    format_size,
    format_time,
    humanize,
    parse_bandwidth,
    parse_duration,
    parse_size,
    parse_time,
)
from tuner.core.calibration import (
    Calibration,
    CostSegment,
    Estimate,
    PathCost,
    ReductionCost,
    read_calibration,
    write_calibration,
)
from tuner.core.measurement import (
    Cluster,
    Measurement,
    end_line,
    header_line,
    read_measurements,
    read_partial,
    series_line,
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
        ("22.6KiB", 23144),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "0.3KiB", "64k", "1e400", "NaN", "64 KiB s", None, []]
)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(InputError, match="write it like 64KiB"):
        parse_size(text)


def test_times_and_rates() -> None:
    assert parse_time("2us") == pytest.approx(2e-6)
    assert parse_time("10min") == parse_duration("10min") == 600.0
    with pytest.raises(InputError, match="write it like 90s, 10min, 2h or 30d"):
        parse_duration("10m")
    assert parse_bandwidth("12.5GB/s") == 12.5e9
    assert parse_bandwidth("100Gb/s") == 12.5e9
    for parse, text in ((parse_time, "2"), (parse_bandwidth, "12.5"), (parse_bandwidth, "0GB/s")):
        with pytest.raises(InputError, match="write it like"):
            parse(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0B"),
        (404, "404B"),
        (1023, "1023B"),
        (65536, "64KiB"),
        (23168, "22.6KiB"),
        (1536, "1.50KiB"),
        (1572864, "1.50MiB"),
        (1000 * 1024, "1000KiB"),
        (10236, "10.0KiB"),
        (2**20 - 1, "1.00MiB"),
        (2**40, "1TiB"),
        (2965820, "2.83MiB"),
        (2**50, "1024TiB"),
    ],
)
def test_sizes_for_people_have_three_significant_figures(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@given(st.integers(0, 2**50))
def test_sizes_that_people_read_can_be_typed(nbytes: int) -> None:
    read = parse_size(format_size(nbytes))
    assert read == pytest.approx(nbytes, rel=0.005, abs=0.5)
    assert read == nbytes or read % 4 == 0  # as probes want it
    assert len(re.sub(r"^0\.|\D", "", format_size(nbytes))) <= 4


@given(st.integers(0, 2**50))
def test_exact_sizes_survive_being_written(nbytes: int) -> None:
    assert parse_size(format_exact_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("lo", "hi", "text"),
    [
        (0, math.inf, "all"),
        (0, 4096, "below 4KiB"),
        (23168, math.inf, "from 22.6KiB"),
        (4096, 1 << 20, "4KiB to 1MiB"),
    ],
)
def test_ranges_of_sizes(lo: float, hi: float, text: str) -> None:
    assert format_range(lo, hi) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("collective bcast p=3 65536 B", "collective bcast p=3 64KiB"),
        ("binomial(segment=8192)", "binomial (segment=8KiB)"),
        (
            "chain(chains=4, segment=131072) via schedule",
            "chain (chains=4, segment=128KiB) via schedule",
        ),
        ("ring", "ring"),
        ("20 Bcasts of (3) at 12 B/s", "20 Bcasts of (3) at 12 B/s"),
        ("up to 1024 B messages queue", "up to 1KiB messages queue"),
    ],
)
def test_technical_names_become_readable(text: str, shown: str) -> None:
    assert humanize(text) == shown


def test_times_are_readable() -> None:
    assert [format_time(t) for t in (1.5, 2.5e-3, 12.34e-6, 5e-9)] == [
        "1.5s",
        "2.5ms",
        "12.3us",
        "5ns",
    ]
    assert format_size(math.inf) == "inf"


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "table.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on file sizes refuses the write half-way, as a full disk does."""
    path = tmp_path / "table.json"
    write_atomically(path, "old")
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tuner.base.errors import InputError\n"
        "from tuner.base.atomic_io import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_atomically(Path(sys.argv[1]), 'new' * 10_000)\n"
        "except InputError as reason: print(reason)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
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
        (
            lambda t: t.replace('"nbytes"', '"size"'),
            "line 2: not a measurement: unknown in the measurement: 'size'",
        ),
        (lambda t: t.replace('"version": 1', '"version": 2'), "line 1: not the header"),
        (lambda t: t.replace('"lines": 2', '"lines": 3'), "3 series were written but 2 are there"),
        (lambda t: "\n" + t, "line 1: not a measurement"),
        (lambda _: "", "incomplete"),
        (lambda t: t.replace('"cluster"', '"where"'), "line 1: not the header"),
        (lambda t: t.replace('"cores": 4', '"cores": "4"'), "line 1: not the header"),
        (lambda t: t.replace("[5e-07]", '["5e-07"]'), "samples cannot be '5e-07'"),
        (lambda t: t.replace("[5e-07]", "[NaN]"), "samples cannot be nan"),
        (lambda t: t.replace("[5e-07]", "[]"), "line 3: .* at least one sample"),
        (lambda t: t.replace('"nbytes": 8', '"nbytes": -8'), "line 3: .* nbytes of at least 0"),
        (lambda t: t.replace('"p": 2', '"p": true'), "p cannot be True"),
        (lambda t: t.replace('{"segment": 512}', "null"), "params cannot be None"),
        (lambda t: "[" * 100_000 + t, "line 1: not a measurement"),
    ],
)
def test_damaged_measurements_are_named(
    tmp_path: Path, spoil: Callable[[str], str], sentence: str
) -> None:
    path = written(tmp_path / "m.ndjson")
    path.write_text(spoil(path.read_text()))
    with pytest.raises(InputError, match=sentence):
        read_measurements(path)
    with pytest.raises(InputError, match=r"cannot be read as measurements"):
        read_measurements(tmp_path / "absent.ndjson")


@pytest.mark.parametrize("wrong", ["-5e-07", "5e-324", "9e-13", "1.1e6", "1e308", '"inf"'])
def test_samples_are_as_long_as_calls_may_take(tmp_path: Path, wrong: str) -> None:
    path = written(tmp_path / "m.ndjson")
    known = path.read_text()
    path.write_text(known.replace("[5e-07]", "[0.0, 1e-12, 1e6]"))
    assert read_measurements(path).series[1].samples == (0.0, 1e-12, 1e6)
    path.write_text(known.replace("[5e-07]", f"[0.0, {wrong}, 5e-07]"))
    with pytest.raises(InputError, match=r"line 3: .* samples are 0 s or 1e-12 to 1e\+06 s"):
        read_measurements(path)


def test_calibrations_survive_being_written(tmp_path: Path) -> None:
    value = Estimate(1e-6, 0.9e-6, 1.2e-6)
    segments = (CostSegment(0, 100, value, value), CostSegment(100, math.inf, value, value))
    calibration = Calibration(
        "lab",
        "openmpi 5.0.11",
        {("node", "host"): PathCost(segments, 4096, value)},
        {"host": ReductionCost(value, value)},
        {"memory_bus": value},
        provenance={"a": [1, "b"]},
    )
    write_calibration(calibration, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == calibration
    assert calibration.path_cost("node").seconds(50) == pytest.approx(1e-6 + 1e-6 + 50e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", ""),
        ('"version": 1', '"version": 2'),
        ('"stop_bytes": "inf"', '"stop_bytes": 200'),
        ('"start_bytes": 100', '"start_bytes": 99'),
        ('"start_bytes": 0', '"start_bytes": 1'),
        ('"low": 9e-07', '"low": NaN'),
        ('"value": 1e-06', '"value": -1e-06'),
        ('"value": 1e-06', '"value": "inf"'),
        ('"value": 1e-06', '"value": "1e-06"'),
        ('"eager_limit": 4096', '"eager_limit": null'),
        ('"nominal": false', '"nominal": 0'),
        ('"launch"', '"start"'),
        ('"memory": "host"', '"kind": "host"'),
        ('"library"', '"mpi"'),
        ('"header_bytes": 0.0', '"header_bytes": -1.0'),
        ('"header_bytes": 0.0', '"header_bytes": "inf"'),
        ('"pointer_query_seconds": 0.0', '"pointer_query_seconds": -1e-06'),
    ],
)
def test_calibrations_that_are_none(tmp_path: Path, old: str, new: str) -> None:
    value = Estimate(1e-6, 9e-7, 1.2e-6)
    segments = (CostSegment(0, 100, value, value), CostSegment(100, math.inf, value, value))
    paths = {("node", "host"): PathCost(segments, 4096, value)}
    made = Calibration("lab", "x", paths, {"host": ReductionCost(value, value)})
    path = tmp_path / "c.json"
    write_calibration(made, path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match="not a calibration"):
        read_calibration(path)


def test_a_cluster_may_be_called_inf(tmp_path: Path) -> None:
    write_calibration(Calibration("inf", "x", {}), tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json").cluster == "inf"
