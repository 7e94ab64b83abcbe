"""However an uploaded file is made, storing it takes little memory at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, event, func, select

from tests.support.stored import measurements_file, probe
from tuner import db
from tuner.base.errors import InputError
from tuner.db.models import ProbeRow, SeriesRow

SERIES = 25  # of two samples each


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return measurements_file(tmp_path / "m.ndjson", probe(SERIES))


def count(engine: Engine, row: type[ProbeRow] | type[SeriesRow]) -> int:
    with db.read_session(engine) as session:
        return session.scalar(select(func.count()).select_from(row)) or 0


def test_long_series_go_in_in_smaller_pieces(
    engine: Engine, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.db.ingestion.MAX_SAMPLES_PER_TRANSACTION", 10)
    commits: list[None] = []
    event.listen(engine, "commit", lambda _: commits.append(None))
    db.ingest(engine, whole)
    assert len(commits) >= SERIES * 2 // 10
    assert count(engine, SeriesRow) == SERIES


def test_a_line_beyond_all_measure_is_refused(
    engine: Engine, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(map(len, whole.read_text().splitlines(keepends=True)))
    monkeypatch.setattr("tuner.db.ingestion.MAX_LINE_CHARACTERS", longest - 1)
    with pytest.raises(InputError, match=r"the upload, line \d+: longer than"):
        db.ingest(engine, whole)
    assert count(engine, ProbeRow) == count(engine, SeriesRow) == 0
    monkeypatch.setattr("tuner.db.ingestion.MAX_LINE_CHARACTERS", longest)
    assert db.ingest(engine, whole).is_new
