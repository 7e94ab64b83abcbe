"""The whole way on an emulated cluster: probe its hosts, calibrate, make and export a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.labs import FLAT
from tuner.cost import Calibration, read_calibration
from tuner.measurement import Measurements, read_measurements

PROBE = ("--hosts", "node0,node1,node2,node3", "--budget", "120s", "--sizes", "16KiB,256KiB",
         "--shapes", "4x1", "--repetitions", "6")  # fmt: skip
ENOUGH = 400.0  # seconds
RATE = 100e6 / 8 * 8948 / 9014  # bytes of messages per second, without what headers take


def tuner(*words: str | Path, folder: Path) -> str:
    """One command in `folder`, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "tuner.cli.main", *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=ENOUGH, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the flat cluster was probed and calibrated."""
    made = tmp_path_factory.mktemp("chain")
    (made / "flat.yaml").write_text(FLAT)
    probe = (sys.executable, "-m", "tuner.cli.main", "probe", "run", *PROBE, "--out", "m.ndjson")
    tuner("lab", "run", "flat.yaml", "--", *probe, folder=made)
    tuner("calibrate", "m.ndjson", "--topology", "flat.yaml", "--out", "c.json", folder=made)
    return made


@pytest.fixture
def measured(folder: Path) -> Measurements:
    return read_measurements(folder / "m.ndjson")


@pytest.fixture
def calibration(folder: Path) -> Calibration:
    return read_calibration(folder / "c.json")


def test_every_host_was_measured_on_and_every_algorithm(measured: Measurements) -> None:
    assert measured.provenance["hosts"] == ["node0", "node1", "node2", "node3"]
    assert {s.nodes for s in measured.series if s.kind == "collective"} == {4}
    algorithms = {s.algorithm for s in measured.series if s.subject == "bcast"}
    assert {"default", "linear", "chain", "pipeline", "binomial", "knomial"} <= algorithms


def test_the_links_rate_is_found(calibration: Calibration) -> None:
    beta = calibration.path("network").segments[-1].beta
    assert 1 / beta.value == pytest.approx(RATE, rel=0.02)


def test_a_table_for_the_cluster_becomes_rules_that_the_library_reads(folder: Path) -> None:
    tuner("tune", "--measurements", "m.ndjson", "--calibration", "c.json", "--topology",
          "flat.yaml", "--out", "t.json", folder=folder)  # fmt: skip
    tuner("table", "export", "t.json", "--to", "openmpi", "--out", "o.rules", folder=folder)
    tuner("table", "check", "o.rules", "--table", "t.json", folder=folder)
