"""The files of an SQLite database are for their owner alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import make_url

from tests.service.serving import a_table, end, good, publish, said, serving, tuner
from tuner import db
from tuner.db.sqlite_file import create_private_file


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    files = path.parent.glob(f"{path.name}*")
    return {file.name.removeprefix(path.name): stat.S_IMODE(file.stat().st_mode) for file in files}


PRIVATE = {"": 0o600, "-wal": 0o600, "-shm": 0o600}


def test_a_service_makes_private_files(tmp_path: Path) -> None:
    path = tmp_path / "tuner.sqlite"
    with serving(f"sqlite:///{path}", "--no-jobs") as program:
        publish(program.client, a_table())
        assert modes(path) == PRIVATE
        program.process.terminate()
        assert program.process.stderr is not None
        assert program.process.stderr.read() == ""


@pytest.mark.parametrize("query", ["?uri=true", "?uri=true&mode=rwc"])
def test_a_database_named_by_uri_is_private_too(tmp_path: Path, query: str) -> None:
    path = tmp_path / "with blank.sqlite"
    engine = db.open_database(f"sqlite:///file:{quote(str(path))}{query}")
    with db.transaction(engine) as session:
        db.store_topology(session, "flat", "yaml", "", {})
        assert modes(path) == PRIVATE
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:shared?mode=memory&uri=true",
        "sqlite:///file:absent?mode=ro&uri=true",
        "postgresql://host/name",
    ],
)
def test_what_is_no_file_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    create_private_file(make_url(url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
def test_the_mode_of_a_file_that_is_there_stays_and_is_said_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "tuner.sqlite"
    db.open_database(f"sqlite:///{path}").dispose()
    path.chmod(0o644)
    sentence = (
        "other users of this computer can read the file of the database, or its -wal or -shm"
        " (mode 644): chmod 600 them"
    )
    for words in (("--no-jobs",), ("--jobs-only",)):
        process = tuner("serve", "--port", "0", "--db", f"sqlite:///{path}", *words)
        assert said(process).startswith("tuner ")
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.read() == f"{sentence}\n"
        assert end(process) == 0
    assert modes(path)[""] == 0o644
    path.chmod(0o600)
    with serving(f"sqlite:///{path}", "--no-jobs") as program:
        good(program.client.get("/v1/ready"))
        program.process.terminate()
        assert program.process.stderr is not None
        assert program.process.stderr.read() == ""


def test_what_the_group_may_read_is_exposed_too(tmp_path: Path) -> None:
    path = tmp_path / "tuner.sqlite"
    engine = db.open_database(f"sqlite:///{path}")
    assert db.exposed_modes(engine) == {}
    path.chmod(0o640)
    assert db.exposed_modes(engine) == {"": 0o640}
    engine.dispose()
