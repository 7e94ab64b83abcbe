"""Tuning, and following a table, in jobs of a real Slurm with the scripts of the documents."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MPICH_PYTHON, ROOT
from tests.emulation.topologies import private_cluster
from tests.support import slurm
from tests.support.ladders import Rungs, spread
from tests.support.overlay import OverlayError
from tests.support.slurm import Slurm
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, read_table, write_table

HOSTS = 3
PPN = 2
TOPOLOGY = f"{{name: batch, nodes: {HOSTS}, latency: 200us, bandwidth: 100Mbit/s}}"
SCRIPTS = ROOT / "docs" / "examples"
SUMS = ROOT / "tests" / "emulation" / "programs" / "sums.py"
PAIRED = ROOT / "tests" / "emulation" / "programs" / "paired.py"
SHAPE = (f"--nodes={HOSTS}", f"--ntasks-per-node={PPN}")
BUDGET = "40s"
LONGEST = 240.0  # seconds of a job
PYTHONS = {"openmpi": Path(sys.executable), "mpich": MPICH_PYTHON}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Slurm on three hosts."""
    cluster = private_cluster(TOPOLOGY)
    try:
        cluster.up()
        with slurm.started(cluster, tmp_path_factory.mktemp("slurm"), cores=4) as running:
            yield running
    except OverlayError as reason:
        pytest.skip(str(reason))
    finally:
        cluster.down()


@pytest.mark.parametrize("launch", ["mpirun", "srun"])
@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_a_job_is_tuned_and_another_one_follows_the_table(
    batch: Slurm, library: str, launch: str
) -> None:
    python = PYTHONS[library]
    if not python.exists():
        pytest.skip(f"needs the environment of {library}: make test sets it up")
    folder = batch.home / f"{library}-{launch}"
    folder.mkdir()
    options = ["--budget", BUDGET, "--library", library, "--python", str(python)]
    options += ["--launcher", library] if launch == "mpirun" else []
    said = batch.submit(
        SCRIPTS / "tune.sbatch", folder, SHAPE, options, environment("openmpi", library), LONGEST
    )
    table = read_table(folder / "table.json")
    assert table.library.startswith(library), said
    assert {(key.nodes, key.ppn) for key in table.keys} >= {(HOSTS, PPN)}
    # Which rules it has, if any, depends on the times; accepting them would take minutes.
    ladder: Rungs = [(0, AlgorithmChoice("binomial", runner=SCHEDULE))]
    accepted = spread(HOSTS, PPN, {Collective.BCAST: ladder}, table.library)
    write_table(accepted, folder / "accepted.json")
    followed = batch.submit(
        SCRIPTS / "follow.sbatch", folder, SHAPE, [SUMS], environment(library, library), LONGEST
    )
    ranks = HOSTS * PPN
    assert f"{ranks} of {ranks} ranks have the right results" in followed
    assert " followed the table (" in followed


def environment(python: str, library: str) -> dict[str, str]:
    """Return what a user of that interpreter exports for jobs of that library."""
    return {
        "PATH": os.pathsep.join([str(PYTHONS[python].parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "SLURM_MPI_TYPE": {"openmpi": "pmix", "mpich": "pmi2"}[library],
    }


def test_ranks_that_do_not_know_each_other_are_explained(batch: Slurm) -> None:
    folder = batch.home / "alone"
    folder.mkdir()
    exported = {**environment("openmpi", "openmpi"), "SLURM_MPI_TYPE": "none"}
    with pytest.raises(AssertionError, match="export SLURM_MPI_TYPE=pmix") as raised:
        batch.submit(
            SCRIPTS / "tune.sbatch", folder, SHAPE, ["--budget", BUDGET], exported, LONGEST
        )
    assert "started every rank as a program of its own" in str(raised.value)


def test_two_launches_take_turns_in_a_job(batch: Slurm) -> None:
    folder = batch.home / "paired"
    folder.mkdir()
    script = folder / "paired.sbatch"
    script.write_text(f'#!/bin/sh\nexec python {PAIRED} "$PWD"\n', encoding="utf-8")
    said = batch.submit(script, folder, SHAPE, [], environment("openmpi", "openmpi"), LONGEST)
    assert "4 and 4 conditions were timed" in said


@pytest.mark.parametrize("given", ["", "--export=NONE", "--export=PATH,TUNER_KEPT"])
def test_srun_hands_variables_to_the_ranks_on_every_host(batch: Slurm, given: str) -> None:
    """Also beside the LD_PRELOAD that processes of emulated hosts have."""
    show = batch.home / "show.sh"
    show.write_text(
        '#!/bin/sh\necho "$SLURMD_NODENAME|$LD_PRELOAD|$TUNER_FLAT_TABLE|$TUNER_KEPT"\n',
        encoding="utf-8",
    )
    show.chmod(0o755)
    variables = {"LD_PRELOAD": "/no/library.so", "TUNER_FLAT_TABLE": "/comma,equals=.flat"}
    words = [f"{name}={value}" for name, value in variables.items()]
    srun = ["srun", *filter(None, [given]), f"--nodes={HOSTS}", f"--ntasks={HOSTS}", str(show)]
    prepare = [sys.executable, "-m", "tests.support.prepared", *words, "--", *srun]
    said = batch.run("env", f"PYTHONPATH={ROOT}", "TUNER_KEPT=1", *prepare)
    ranks = sorted(line.split("|") for line in said.splitlines() if "|" in line)
    assert [rank[0] for rank in ranks] == list(batch.cluster.network.hosts)
    kept = {"": "1", "--export=NONE": "", "--export=PATH,TUNER_KEPT": "1"}[given]
    for _, preload, table, other in ranks:
        assert preload.split(":")[0] == variables["LD_PRELOAD"]
        assert (":" in preload) is (given == "")
        assert (table, other) == (variables["TUNER_FLAT_TABLE"], kept)
