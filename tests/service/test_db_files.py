"""The files of an SQLite database: for their owner alone, and nobody else opens or deletes them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import make_url

from tests.service.serving import a_table, end, good, problem, publish, said, served, serving, tuner
from tests.support.children import Child
from tests.support.crash_actors import report_opened
from tests.support.waiting import until
from tuner import db
from tuner.api.settings import Settings
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


READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("select * from jobs")
connection.close()
"""


def test_a_process_that_leaves_does_not_delete_the_log_of_another(tmp_path: Path) -> None:
    """It would do so as soon as the other one has lost its locks."""
    path = tmp_path / "tuner.sqlite"
    engine = db.open_database(f"sqlite:///{path}")
    db.open_database(f"sqlite:///{path}").dispose()
    log = Path(f"{path}-wal").stat().st_ino
    subprocess.run([sys.executable, "-c", READ, path], check=True)
    assert Path(f"{path}-wal").stat().st_ino == log
    with db.transaction(engine) as session:
        db.create_token(session, "ci", ["read"])
    assert sqlite3.connect(path).execute("select name from tokens").fetchall() == [("ci",)]
    engine.dispose()


def test_the_program_opens_no_file_of_a_database_by_hand(tmp_path: Path) -> None:
    """Python says so of every file but those that SQLite itself opens."""
    child = Child(report_opened, tmp_path / "tuner.sqlite")
    assert set(child.everything()) == {("tuner.sqlite", True)}  # if it does not exist
    assert child.end() == 0


GONE = {
    "": "the file of the database was deleted or replaced while it was in use, so nothing is"
    " stored: put it back or restore it from a backup, and start this program again",
    "-wal": "the file of the database that ends in -wal was deleted or replaced while it was in"
    " use, so nothing is stored: end all programs that use the database, then start them again",
}


@pytest.mark.parametrize("suffix", GONE)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_service_stores_nothing_in_files_that_were_deleted(
    tmp_path: Path, suffix: str, replaced: bool
) -> None:
    path, away = tmp_path / f"tuner.sqlite{suffix}", tmp_path / "away"
    with served(Settings(database=f"sqlite:///{tmp_path}/tuner.sqlite")) as client:
        version = publish(client, a_table())
        good(client.get("/v1/ready"))
        path.rename(away)
        if replaced:
            shutil.copy(away, path)
        assert problem(client.post("/v1/tables", json=a_table("chain")), 503) == GONE[suffix]
        until(lambda: client.get("/v1/ready").status_code == 503)
        assert problem(client.get("/v1/ready"), 503) == GONE[suffix]
        assert path.exists() == replaced  # nothing is begun anew
        away.rename(path)
        until(lambda: client.get("/v1/ready").status_code == 200)
        assert publish(client, a_table("chain")) == version + 1
    with sqlite3.connect(tmp_path / "tuner.sqlite") as connection:
        assert connection.execute("select count(*) from tuning_tables").fetchall() == [(2,)]


def test_what_is_deleted_during_a_transaction_is_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "tuner.sqlite"
    engine = db.open_database(f"sqlite:///{path}")
    with (  # noqa: PT012 - leaving the transaction raises
        pytest.raises(db.UnavailableError, match="was deleted or replaced"),
        db.transaction(engine) as session,
    ):
        db.create_token(session, "ci", ["read"])
        path.rename(tmp_path / "away")
    (tmp_path / "away").rename(path)
    with db.read_session(engine) as session:
        assert not db.has_tokens(session)
    engine.dispose()
