"""Facts of MPI libraries that depend on the release."""

from __future__ import annotations

import pytest

from tuner.mpi_libraries.profiles import profile_of


@pytest.mark.parametrize(
    ("library", "number"),
    [
        ("openmpi 4.1.4", 1),
        ("openmpi 4.0.7", 1),
        ("openmpi 4.1.6", 1),
        ("openmpi 4.1.7", 0),
        ("openmpi 5.0.0", 1),
        ("openmpi 5.0.5", 1),
        ("openmpi 5.0.6", 0),
        ("openmpi 5.0.11", 0),
        ("openmpi 6.0.0", 0),
        ("openmpi", 1),
        ("spectrummpi 10.4.0", 1),
        ("mpich 5.0.0", 0),
    ],
)
def test_releases_of_open_mpi_that_read_forcing_settings_at_the_start_get_them(
    library: str, number: int
) -> None:
    assert len(profile_of(library).start_settings(library)) == number
