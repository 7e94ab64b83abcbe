"""Files of calibrations: written and read, refused where damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.core.calibration import (
    Calibration,
    CostSegment,
    Estimate,
    PathCost,
    ReductionCost,
    read_calibration,
    write_calibration,
)


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
