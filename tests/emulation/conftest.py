"""Labs for the tests, each brought up once and taken down at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.labs import FLAT, RACKS, lab_of
from tuner.emulation import Lab, missing


@pytest.fixture(scope="session", autouse=True)
def possible() -> None:
    """Everything here needs a lab."""
    reason = missing()
    if reason:
        pytest.skip(reason)


def _used(text: str) -> Iterator[Lab]:
    lab = lab_of(text)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def flat() -> Iterator[Lab]:
    """Four hosts at one switch."""
    yield from _used(FLAT)


@pytest.fixture(scope="session")
def racks() -> Iterator[Lab]:
    """Two racks of two, joined by one link of half the speed."""
    yield from _used(RACKS)


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """The flat one as a file of its own, which no other lab is of."""
    path = tmp_path / "flat.yaml"
    path.write_text(FLAT, encoding="utf-8")
    return path
