"""Programs of MPICH's suite in Fortran have the result under a table that they have without one."""

from __future__ import annotations

import re
import sys

import pytest

from tests.site.conftest import DISTRIBUTION, SOURCE
from tests.support.mpich_suite import source
from tests.support.site import ROOT, Site
from tests.support.waiting import patience

TABLES = ("schedule", "forced", "mixed")
LEAST = 60  # programs that pass alone, of the three bindings together


@pytest.mark.parametrize(
    "site", [("openmpi", DISTRIBUTION), ("mpich", SOURCE)], indirect=True, ids=("openmpi", "mpich")
)
def test_fortran_as_without_the_preloaded_library(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        source()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    module = [sys.executable, "-m", "tests.support.mpich_suite", "fortran", site.python]
    ran = site.run(*module, timeout=patience(1800), folder=str(ROOT))
    with capsys.disabled():
        print(f"\n{ran.stdout}{ran.stderr}")
    assert ran.returncode == 0
    passed = [int(number) for number in re.findall(r"(\d+) pass alone", ran.stdout)]
    assert len(passed) == len(TABLES)
    assert min(passed) >= LEAST
