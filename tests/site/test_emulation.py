"""The launchers of a distribution's MPI on an emulated cluster."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest

from tests.support.overlay import Overlay
from tests.support.site import WORK, Site
from tests.support.waiting import patience

SOURCE = """
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char host[256];
    MPI_Init(&argc, &argv);
    gethostname(host, sizeof host);
    puts(host);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""
TOPOLOGY = "name: two_hosts\nnodes: 2\nlatency: 200us\nbandwidth: 100Mbit/s\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces")
@pytest.mark.parametrize("base", ["openmpi", "mpich"])
def test_a_bare_launcher_starts_ranks_on_all_hosts(overlay: Overlay, base: str) -> None:
    """Open MPI 4 and MPICH 4 are started by other names of variables than their successors."""
    site = Site(overlay, base, sys.executable)
    topology = f"{WORK}/two-hosts-{base}.yaml"
    program = f"{WORK}/where-{base}"
    overlay.write(topology, TOPOLOGY)
    overlay.write(f"{program}.c", SOURCE)
    compiled = site.run(f"mpicc.{base}", f"{program}.c", "-o", program)
    assert compiled.returncode == 0, compiled.stderr
    tuner = [sys.executable, "-m", "tuner.cli.main", "emulate", "run", topology, "--ppn", "2"]
    command = [f"mpirun.{base}", "-n", "4", program]
    ran = site.run(*tuner, "--", *command, timeout=patience(60))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert Counter(ran.stdout.split()) == {"node0": 2, "node1": 2}
