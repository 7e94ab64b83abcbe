"""The whole way on an emulated cluster: probe its hosts, calibrate, make and export a table; or all
of it by one command.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MPICH_PYTHON
from tests.emulation.topologies import FLAT
from tests.support.waiting import patience
from tuner.base.statistics import midmean
from tuner.core.calibration import Calibration, read_calibration
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.table import read_table

TUNER = (sys.executable, "-m", "tuner.cli.main")
HOSTS = ("--hosts", "node0,node1,node2,node3", "--sizes", "16KiB,256KiB", "--repetitions", "6")
PROBE = (
    "probe",
    "run",
    *HOSTS,
    "--measure",
    "messages,collectives",
    "--budget",
    "60s",
    "--shapes",
    "4x1",
    "--out",
    "m.ndjson",
)
BUDGET = 60.0  # seconds
GOOD = 0.99  # mean regret
TUNE = (
    "tune",
    *HOSTS,
    "--topology",
    "flat.yaml",
    "--budget",
    f"{BUDGET}s",
    "--target-regret",
    f"{GOOD}",
    "--measurements",
    "m.ndjson",
    "--calibration",
    "c.json",
    "--out",
    "t.json",
)
ROUND = re.compile(
    r"after (\d+) s a table would have a mean regret of ([\d.]+)% \(the default: [\d.]+%\), with"
    r" 95 % certainty below ([\d.]+)%"
)
RATE = 100e6 / 8 * 8948 / 9014  # bytes of messages per second, without what headers take


def tuner(*words: str, folder: Path) -> str:
    """One command in `folder`, which must succeed; what it said beside its result."""
    done = subprocess.run(
        [*TUNER, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience(40),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stderr.split())


def on_hosts(*words: str, folder: Path) -> str:
    """`tuner`, on the first host of the flat cluster."""
    return tuner("emulate", "run", "flat.yaml", "--", *TUNER, *words, folder=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the flat cluster was probed and calibrated."""
    made = tmp_path_factory.mktemp("chain")
    (made / "flat.yaml").write_text(FLAT)
    on_hosts(*PROBE, folder=made)
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
    beta = calibration.path_cost("network").segments[-1].beta
    assert 1 / beta.value == pytest.approx(RATE, rel=0.02)


def test_how_a_library_sends_is_found(calibration: Calibration, tmp_path: Path) -> None:
    """MPICH's senders wait for acknowledgements, and of long messages until they are asked for,
    when these are there already; those of Open MPI do neither.
    """
    (tmp_path / "flat.yaml").write_text(FLAT)
    on_hosts(
        "probe",
        "run",
        "--library",
        "mpich",
        *HOSTS,
        "--topology",
        "flat.yaml",
        "--measure",
        "messages",
        "--budget",
        "45s",
        "--out",
        "m.ndjson",
        folder=tmp_path,
    )
    tuner("calibrate", "m.ndjson", "--topology", "flat.yaml", "--out", "c.json", folder=tmp_path)
    open_mpi, mpich = (
        c.path_cost("network") for c in (calibration, read_calibration(tmp_path / "c.json"))
    )
    assert (open_mpi.sync_ack_threshold, open_mpi.early_push_limit) == (math.inf, 0.0)
    assert 64 < mpich.sync_ack_threshold < 1024
    assert mpich.eager_limit < 2**16 < mpich.early_push_limit


def test_a_table_for_the_cluster_becomes_rules_that_the_library_reads(folder: Path) -> None:
    tuner(
        "tune",
        "--measurements",
        "m.ndjson",
        "--calibration",
        "c.json",
        "--topology",
        "flat.yaml",
        "--out",
        "t.json",
        folder=folder,
    )
    tuner("table", "export", "t.json", "--format", "openmpi", "--out", "o.rules", folder=folder)
    tuner("table", "check", "o.rules", "--table", "t.json", folder=folder)


def stages(said: str) -> list[tuple[float, float]]:
    """After every round: seconds spent, and the bound of the mean regret."""
    return [(float(spent), float(below) / 100) for spent, _, below in ROUND.findall(said)]


def test_one_command_measures_until_the_table_is_good_enough_and_goes_on_from_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT)
    *before, (spent, bound) = stages(on_hosts(*TUNE, folder=tmp_path))
    assert all(below > GOOD and seconds < BUDGET for seconds, below in before)
    assert bound <= GOOD or spent >= BUDGET - 1  # it is rounded

    measured = read_measurements(tmp_path / "m.ndjson").series
    assert "collective" in {one.kind for one in measured}
    assert read_calibration(tmp_path / "c.json").provenance["topology"] == "flat4"
    keys = {(key.collective, key.nodes, key.ppn) for key in read_table(tmp_path / "t.json").keys}
    assert keys == {(name, n, 1) for name in ("bcast", "allreduce") for n in (2, 3, 4)}

    # Which sizes half way are added goes with what is known after each round.
    again = stages(on_hosts(*TUNE, folder=tmp_path))[0][1]
    assert again == pytest.approx(bound, rel=0.1, abs=0.01)
    assert read_measurements(tmp_path / "m.ndjson").series[: len(measured)] == measured


def test_messages_of_two_hosts_never_wait_for_the_library_to_look(tmp_path: Path) -> None:
    """Unless connections are opened one way, in half of the probes each takes 4.5 ms instead of
    0.24 (decision 0016).
    """
    (tmp_path / "flat.yaml").write_text(FLAT)
    for run in range(4):
        on_hosts(
            "probe",
            "run",
            "--hosts",
            "node0,node1",
            "--measure",
            "messages",
            "--sizes",
            "4KiB",
            "--budget",
            "8s",
            "--out",
            f"{run}.ndjson",
            folder=tmp_path,
        )
        series = read_measurements(tmp_path / f"{run}.ndjson").series
        empty = next(one for one in series if (one.kind, one.nbytes) == ("pingpong", 0))
        assert midmean(empty.samples) < 2e-3


def test_a_small_budget_leaves_out_the_largest_messages_not_all(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT)
    on_hosts(
        "probe",
        "run",
        "--hosts",
        "node0,node1",
        "--measure",
        "messages",
        "--sizes",
        "8MiB",
        "--budget",
        "25s",
        "--out",
        "m.ndjson",
        folder=tmp_path,
    )
    found = read_measurements(tmp_path / "m.ndjson")
    sizes = [one.nbytes for one in found.series if one.kind == "pingpong"]
    assert 2**16 <= max(sizes) < 2**23
    left_out = found.provenance["excluded"]
    assert any(line.startswith("pingpong network 2x1: 8388608 B: takes too") for line in left_out)
    tuner("calibrate", "m.ndjson", "--topology", "flat.yaml", "--out", "c.json", folder=tmp_path)


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_a_host_that_the_cluster_lacks_is_named(tmp_path: Path, library: str) -> None:
    if library == "mpich" and not MPICH_PYTHON.exists():
        pytest.skip("needs the environment of MPICH")
    (tmp_path / "flat.yaml").write_text(FLAT)
    done = subprocess.run(
        [
            *TUNER,
            "emulate",
            "run",
            "flat.yaml",
            "--",
            *TUNER,
            "probe",
            "run",
            "--library",
            library,
            "--hosts",
            "node0,nowhere",
            "--measure",
            "messages",
            "--out",
            "m.ndjson",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(40),
        check=False,
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert re.search(
        r"host nowhere (was lost or )?cannot be reached|could not start ranks on every host", said
    ), said
