"""Debian's packages of Open MPI, in an overlay of the file system that is thrown away."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.mpi4py_suite import SHARED_CORES
from tests.support.site import Site, project_overlay

PACKAGES = ("openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev", "time")
ENVIRONMENT = {
    **SHARED_CORES,
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TUNER_TUNE_AFTER": "0s",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Open MPI of the distribution; unmounted at the end."""
    with project_overlay(tmp_path_factory.mktemp("overlay"), PACKAGES) as overlay:
        yield Site(overlay, "openmpi", sys.executable, ENVIRONMENT)
