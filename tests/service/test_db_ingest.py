"""A large file goes in piece by piece, is seen once it is whole, and comes out as it went in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from tests.support.stored import CLUSTER, measurements_file, probe
from tuner import db
from tuner.base.errors import InputError
from tuner.core.measurement import Measurement, read_measurements
from tuner.db import NotFoundError, UnavailableError

SERIES = 25
PIECE = 4


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.db.ingestion.MAX_SERIES_PER_TRANSACTION", PIECE)
    monkeypatch.setattr("tuner.db.measurements.SERIES_PER_READ", 7)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Authors are dead as soon as they are silent."""
    monkeypatch.setattr("tuner.db.ingestion.LEASE_DURATION", timedelta(0))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return measurements_file(tmp_path / "m.ndjson", probe(SERIES))


def count(engine: Engine, name: str) -> int:
    with db.read_session(engine) as session:
        return session.scalar(text(f"select count(*) from {name}")) or 0


@contextmanager
def before_commit(engine: Engine, number: int, act: Callable[[], None]) -> Iterator[None]:
    """`act` right before the `number`th commit from now on, counted from 1."""
    seen = 0

    def commit(_connection: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            act()

    event.listen(engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(engine, "commit", commit)


@contextmanager
def after_commit(engine: Engine, number: int, act: Callable[[], None]) -> Iterator[None]:
    """`act` once the `number`th transaction from now on has gone back to the pool."""
    seen = 0

    def commit(_connection: Any) -> None:
        nonlocal seen
        seen += 1

    def checkin(_raw: Any, _record: Any) -> None:
        nonlocal seen
        if seen == number:
            seen += 1000
            act()

    event.listen(engine, "commit", commit)
    event.listen(engine, "checkin", checkin)
    try:
        yield
    finally:
        event.remove(engine, "commit", commit)
        event.remove(engine, "checkin", checkin)


def die() -> None:
    raise KeyboardInterrupt


def cut_off(engine: Engine, path: Path, pieces: int) -> None:
    """The program ends after it has stored so many pieces; the first commit is the claim."""
    with before_commit(engine, pieces + 2, die), pytest.raises(KeyboardInterrupt):
        db.ingest(engine, path)


def test_what_comes_out_is_what_went_in(engine: Engine, whole: Path) -> None:
    stored = db.ingest(engine, whole)
    assert stored.is_new
    with whole.open("rb") as stream:
        assert db.ingest(engine, stream) == replace(stored, is_new=False)
    with db.transaction(engine) as session:
        assert db.store_measurements(session, probe(SERIES)) == replace(stored, is_new=False)
        assert db.load_measurements(session, stored.id) == read_measurements(whole)
    assert "".join(db.measurement_lines(engine, stored.id)) == whole.read_text()
    with pytest.raises(NotFoundError, match="no measurements 99"):
        next(db.measurement_lines(engine, 99))
    assert (count(engine, "probes"), count(engine, "series")) == (1, SERIES)


def test_as_many_series_as_fill_the_last_piece(engine: Engine, tmp_path: Path) -> None:
    path = measurements_file(tmp_path / "m.ndjson", probe(2 * PIECE))
    stored = db.ingest(engine, path)
    assert "".join(db.measurement_lines(engine, stored.id)) == path.read_text()
    nothing = measurements_file(tmp_path / "n.ndjson", probe(0))
    stored = db.ingest(engine, nothing)
    assert "".join(db.measurement_lines(engine, stored.id)) == nothing.read_text()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pieces", range(8))  # of seven; in the end only the end is missing
def test_cut_off_anywhere_it_is_invisible_and_resumed(
    engine: Engine, whole: Path, pieces: int
) -> None:
    cut_off(engine, whole, pieces)
    assert count(engine, "series") == min(pieces * PIECE, SERIES)
    with db.read_session(engine) as session:
        assert db.list_measurements(session).items == []
        for look in (db.load_measurements, db.describe_measurements, db.list_series):
            with pytest.raises(NotFoundError, match="no measurements 1"):
                look(session, 1)
    stored = db.ingest(engine, whole)
    assert stored.is_new
    assert count(engine, "probes") == 1
    assert "".join(db.measurement_lines(engine, stored.id)) == whole.read_text()


def test_two_that_send_the_same_do_not_both_store(
    engine: Engine, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.db.ingestion.TIMEOUT_S", 0.1)
    refused = []

    def second() -> None:
        try:
            db.ingest(engine, whole)
        except UnavailableError as reason:
            refused.append(str(reason))

    def meanwhile() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    cut_off(engine, whole, 2)  # an author that has just stored something
    meanwhile()
    with db.transaction(engine) as session, pytest.raises(UnavailableError, match="somebody else"):
        db.store_measurements(session, probe(SERIES))
    assert refused == [
        "the upload: the same content is being stored at this moment; try again later"
    ]
    assert count(engine, "series") == 2 * PIECE


@pytest.mark.usefixtures("impatient")
def test_one_that_was_taken_for_dead_cannot_go_on(engine: Engine, whole: Path) -> None:
    taken_over = []

    def other() -> None:
        again = db.open_database(engine.url.render_as_string(hide_password=False))
        taken_over.append(db.ingest(again, whole))
        again.dispose()

    def between() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with after_commit(engine, 3, between), pytest.raises(UnavailableError, match="took over"):
        db.ingest(engine, whole)
    assert [stored.is_new for stored in taken_over] == [True]
    assert "".join(db.measurement_lines(engine, taken_over[0].id)) == whole.read_text()
    assert (count(engine, "probes"), count(engine, "series")) == (1, SERIES)


def damaged(text_of_file: str, line: int, change: Callable[[str], str]) -> str:
    lines = text_of_file.splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    return "".join(lines)


@pytest.mark.parametrize(
    ("line", "change", "complaint"),
    [
        (17, lambda t: t.replace('"p": 4', '"p": "4"'), r"u, line 17: not a measurement: p cannot"),
        (17, lambda t: t.replace('"p": 4', '"p": 4294967296'), r"line 17: .*below 2\^31"),
        (17, lambda t: t.replace('"samples": [', '"samples": ["inf", '), "line 17: .*samples are"),
        (27, lambda t: t.replace("25", "26"), "26 series were written but 25 are there"),
        (27, lambda t: "", "incomplete, it ends after 25 series"),
        (27, lambda t: t[:-1], "incomplete, it ends after 25 series"),
        (20, lambda t: "{\n", "u, line 20: not a measurement; probe"),
        (1, lambda t: "", "u, line 1: not the header"),
        (25, lambda t: t.replace("bcast", "\udcff"), "cannot be read as measurements"),
        (1, lambda t: t.replace("[", "[NaN,"), "cannot hold this value"),
    ],
)
def test_of_a_damaged_file_nothing_is_stored(
    engine: Engine, whole: Path, line: int, change: Callable[[str], str], complaint: str
) -> None:
    content = damaged(whole.read_text(), line, change)
    whole.write_text(content, errors="surrogateescape")
    with pytest.raises(InputError, match=complaint):
        db.ingest(engine, whole, "u")
    assert (count(engine, "probes"), count(engine, "series")) == (0, 0)


def test_a_missing_or_empty_file(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        db.ingest(engine, tmp_path / "absent")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="incomplete, it ends after 0 series"):
        db.ingest(engine, tmp_path / "empty")


def test_what_nobody_resumed_for_long_goes(
    engine: Engine, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(engine, whole, 3)
    other = measurements_file(tmp_path / "other.ndjson", probe(1))
    db.ingest(engine, other)
    assert count(engine, "probes") == 2
    monkeypatch.setattr("tuner.db.ingestion.ABANDONED_AFTER", timedelta(0))
    db.ingest(engine, other)
    assert (count(engine, "probes"), count(engine, "series")) == (1, 1)


def test_others_write_between_the_pieces(engine: Engine, whole: Path) -> None:
    stored = []

    def write() -> None:
        with db.transaction(engine) as session:
            stored.append(db.store_cluster(session, replace(CLUSTER, name="other")).id)

    with after_commit(engine, 3, write):
        db.ingest(engine, whole)
    assert len(stored) == 1


def test_pages_of_series(engine: Engine, tmp_path: Path) -> None:
    series = tuple(
        Measurement("collective", subject, 1, p, p, nbytes, (1e-6,), algorithm, launch=launch)
        for launch in (0, 1)
        for subject in ("reduce", "bcast")
        for nbytes in (64, 8)
        for p in (4, 2)
        for algorithm in ("ring", "chain")
    )
    path = measurements_file(tmp_path / "m.ndjson", replace(probe(), series=series))
    number = db.ingest(engine, path).id

    def listed(**conditions: Any) -> list[Measurement]:
        after, found = 0, []
        while True:
            with db.read_session(engine) as session:
                page = db.list_series(session, number, after=after, limit=3, **conditions)
            found += page.items
            if page.next is None:
                return found
            assert len(page.items) == 3
            after = page.next

    def in_order(entry: Measurement) -> tuple[str, int, int, str, int]:
        return (entry.subject, entry.p, entry.nbytes, entry.algorithm, entry.launch)

    assert listed() == sorted(series, key=in_order)
    for conditions in (
        {"collective": "bcast"},
        {"p": 2},
        {"nbytes": 8, "algorithm": "ring"},
        {"collective": "reduce", "p": 4, "nbytes": 64, "algorithm": "chain"},
        {"p": 3},
    ):
        wanted = [
            entry
            for entry in series
            if all(
                getattr(entry, "subject" if name == "collective" else name) == value
                for name, value in conditions.items()
            )
        ]
        assert listed(**conditions) == sorted(wanted, key=in_order)
    with db.read_session(engine) as session:
        assert db.list_series(session, number, after=999).items == []
