"""kill -9 in the middle of storing: nothing acknowledged is lost, nothing is stored twice.

`python -m tests.bench.crash_recovery_files` does the same fifty times, with larger files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import files, kill_and_look

KILLS = 10


@pytest.mark.extended
def test_killed_again_and_again_it_loses_and_repeats_nothing(
    database_url: str, tmp_path: Path
) -> None:
    paths = files(tmp_path / "files", number=12, series=600)
    found = kill_and_look(database_url, paths, KILLS, chunk=50, seconds=0.3, seed=1)
    assert found.kills > 2
    assert found.amid > 2  # of twelve files, at most three are stored between two such kills
