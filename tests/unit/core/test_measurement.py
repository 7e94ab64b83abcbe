"""Files of measurements: written and read, resumed where unfinished, refused where damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.base.errors import InputError
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
