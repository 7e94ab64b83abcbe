"""Share fixtures among the tests of programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import serving


@pytest.fixture
def service(tmp_path: Path) -> Iterator[serving.Program]:
    """Start the real service as users do."""
    with serving.serving(f"sqlite:///{tmp_path}/tuner.db", "--no-jobs") as program:
        yield program
