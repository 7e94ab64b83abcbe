"""Emulated clusters for the tests, each brought up once and taken down at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.topologies import FLAT, RACKS, private_cluster
from tuner.emulation import EmulatedCluster, missing_requirement


@pytest.fixture(scope="session", autouse=True)
def possible() -> None:
    """Everything here needs an emulated cluster."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)


def _used(text: str) -> Iterator[EmulatedCluster]:
    cluster = private_cluster(text)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def flat() -> Iterator[EmulatedCluster]:
    """Four hosts at one switch."""
    yield from _used(FLAT)


@pytest.fixture(scope="session")
def racks() -> Iterator[EmulatedCluster]:
    """Two racks of two, joined by one link of half the speed."""
    yield from _used(RACKS)


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """The flat one as a file of its own, which no other cluster is of."""
    path = tmp_path / "flat.yaml"
    path.write_text(FLAT, encoding="utf-8")
    return path
