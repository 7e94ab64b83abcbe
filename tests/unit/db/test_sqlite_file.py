"""SQLite: what can be wrong with a file, in one sentence, and no harm done."""

import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from tests.support.stored import CLUSTER, probe
from tuner import db
from tuner.base import resources
from tuner.base.errors import InputError
from tuner.db import UnavailableError
from tuner.db.open_files import open_files


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return db.open_database(f"sqlite:///{tmp_path / 'tuner.db'}")


BROKEN = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9000", "0009", None, None


def upgrade():
    op.create_table("half", sa.Column("id", sa.Integer(), primary_key=True))
    op.execute("insert into nowhere values (1)")
"""


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(resources.data_directory("db"), tmp_path / "db")
    (tmp_path / "db" / "versions" / "9000_broken.py").write_text(BROKEN)
    before = inspect(engine).get_table_names()
    with monkeypatch.context() as patched:
        patched.setattr(resources, "data_directory", lambda name: tmp_path / name)
        with pytest.raises(InputError, match="no such table: nowhere"):
            db.open_database(str(engine.url))
    again = db.open_database(str(engine.url))
    assert inspect(again).get_table_names() == before


def test_opening_again_keeps_what_is_stored(engine: Engine) -> None:
    with db.transaction(engine) as session:
        number = db.store_measurements(session, probe()).id
    again = db.open_database(str(engine.url))
    with db.transaction(again) as session:
        assert db.load_measurements(session, number) == probe()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing like a database\n" * 100)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is not an SQLite file"):
        db.open_database(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_missing_directory_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="that its directory exists"):
        db.open_database(f"sqlite:///{tmp_path / 'absent' / 'tuner.db'}")


@pytest.mark.parametrize("url", ["tuner.db", "nosuch:///x"])
def test_a_url_that_names_no_database(url: str) -> None:
    with pytest.raises(InputError, match=r"sqlite:///tuner\.db"):
        db.open_database(url)


def test_a_newer_schema_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    with pytest.raises(InputError, match="schema 9999, which is newer than this program"):
        db.open_database(str(engine.url))


def test_a_locked_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.db.engine.LOCK_TIMEOUT_S", 0.05)
    path = tmp_path / "new.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UnavailableError, match="in use by another program"):
        db.open_database(f"sqlite:///{path}")
    holder.execute("ROLLBACK")
    db.open_database(f"sqlite:///{path}")


FILL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from tuner import db
from tuner.base.errors import InputError
from tests.support.stored import probe
engine = db.open_database(sys.argv[1])
limit = 512 * 1024
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with db.transaction(engine) as session:
        db.store_measurements(session, probe(8000))
except InputError as reason:
    print(reason)
    sys.exit(1)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_the_database_as_it_was(engine: Engine) -> None:
    with db.transaction(engine) as session:
        number = db.store_measurements(session, probe()).id
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    arguments = [sys.executable, "-c", FILL, str(engine.url), str(Path(__file__).parents[3])]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "cannot be written (SQLITE_IOERR_WRITE)" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == ""
    with db.transaction(engine) as session:
        assert session.scalar(text("select count(*) from probes")) == 1
        assert session.scalar(text("select count(*) from series")) == 3
        assert db.load_measurements(session, number) == probe()
        assert session.scalar(text("pragma integrity_check")) == "ok"


def test_reading_waits_for_no_writer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with db.transaction(engine) as session:
        number = db.store_measurements(session, probe()).id
    writer = sqlite3.connect(str(engine.url.database), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("delete from series")
    monkeypatch.setattr("tuner.db.engine.LOCK_TIMEOUT_S", 0.05)
    again = db.open_database(str(engine.url))
    with db.read_session(again) as session:
        assert db.load_measurements(session, number) == probe()
    with pytest.raises(UnavailableError, match="in use"), db.transaction(again) as session:
        db.store_cluster(session, CLUSTER)
    writer.execute("ROLLBACK")
    writer.close()


def test_what_no_database_can_hold_is_refused_in_a_sentence(engine: Engine) -> None:
    for wrong in (replace(CLUSTER, memory=2**70), replace(CLUSTER, name="\ud800")):
        with (
            pytest.raises(InputError, match="cannot hold this value"),
            db.transaction(engine) as session,
        ):
            db.store_cluster(session, wrong)


def test_a_missing_data_directory_is_named() -> None:
    assert (resources.data_directory("db") / "env.py").is_file()
    with pytest.raises(InputError, match="lacks its data directory 'absent'"):
        resources.data_directory("absent")


def test_links_that_lead_in_a_circle_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    path.symlink_to(path.name)
    for must_exist in (False, True):
        with pytest.raises(InputError, match="Too many levels of symbolic links"):
            db.open_database(f"sqlite:///{path}", must_exist)


def test_a_connection_that_is_closed_alarms_no_other_thread(engine: Engine) -> None:
    """The last one deletes -wal and -shm, and no thread may take that for a loss."""
    path, failures, done = Path(str(engine.url.database)), list[str](), threading.Event()
    engine.dispose()
    files = open_files(path.resolve())

    def check() -> None:
        while not done.is_set():
            try:
                files.check()
            except UnavailableError as failure:
                failures.append(str(failure))
                return

    other = threading.Thread(target=check)
    other.start()
    for _ in range(300):
        with engine.connect():
            pass
        engine.dispose()
    done.set()
    other.join()
    assert failures == []
