"""Finding out what Open MPI's default decides on several hosts, and where coll/han decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.emulation.topologies import FLAT
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, PLACEMENTS
from tuner.launch import Launcher
from tuner.mpi_libraries.default_algorithms import (
    DEFAULT_ALGORITHMS_KEY,
    DefaultAlgorithms,
    PlacedCollective,
    default_algorithms_from_provenance,
)

PROGRAM = (sys.executable, "-m", "tests.emulation.programs.decided")
EMULATED = (sys.executable, "-m", "tuner.cli.main", "emulate", "run", "flat.yaml", "--")


@pytest.fixture
def decided(launcher: Launcher, tmp_path: Path) -> dict[PlacedCollective, DefaultAlgorithms]:
    """Check shapes of four ranks, with one or two on a host."""
    (tmp_path / "flat.yaml").write_text(FLAT)
    done = subprocess.run(
        [*EMULATED, *PROGRAM, "node0,node1", "2"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    decisions = default_algorithms_from_provenance(
        {DEFAULT_ALGORITHMS_KEY: found}, "openmpi", "the program"
    )
    return {each.placed_collective: each for each in decisions}


def test_one_rank_on_each_host_is_coll_tuneds_business_and_several_are_hans(
    decided: dict[PlacedCollective, DefaultAlgorithms],
) -> None:
    for name in (Collective.BCAST, Collective.ALLREDUCE):
        assert len(decided[name, 2, 1, BLOCK].thresholds) > 2
        assert None not in decided[name, 2, 1, BLOCK].choices
        assert all(decided[name, 2, 2, kind].thresholds == () for kind in PLACEMENTS)
