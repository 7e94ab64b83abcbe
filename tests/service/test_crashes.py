"""kill -9 at any moment: nothing acknowledged is lost, and nothing is half there.

`python -m tests.bench.crashes` does the same a thousand times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import Crashes
from tests.support.postgres import new_database, programs_of

ROUNDS = 20


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder that every user can read, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="tuner-crashes-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def new(
    kind: str, directory: Path, request: pytest.FixtureRequest, databases: ExitStack
) -> Crashes:
    if kind == "sqlite":
        numbers = iter(range(ROUNDS))
        return Crashes(lambda: f"sqlite:///{directory}/{next(numbers)}.sqlite", directory, seed=1)
    server: Any = request.getfixturevalue("postgres").get_uri()
    return Crashes(
        lambda: databases.enter_context(new_database(server)), directory, 1, programs_of(server)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_acknowledged_is_lost(
    kind: str, directory: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as databases:
        crashes = new(kind, directory, request, databases)
        crashes.run(ROUNDS)
    assert crashes.counts["acknowledged requests"] > 0
    assert crashes.counts["killed services"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("sqlite", "full disk"),
        ("sqlite", "read-only file"),
        ("sqlite", "moved file"),
        ("postgresql", "read-only server"),
    ],
)
def test_a_service_stores_again_what_it_refused_in_the_meantime(
    kind: str, fault: str, directory: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as databases:
        new(kind, directory, request, databases).meet(fault)
