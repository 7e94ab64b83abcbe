"""The database: migrations on data, equal on reading back, errors in one sentence."""

import math
import resource
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from tuner import db, resources
from tuner.collective import Collective
from tuner.cost import FREE_REDUCTION, Calibration, Estimate, PathCost
from tuner.db.engine import migration_settings
from tuner.db.mapping import Base, TableRow
from tuner.errors import InputError
from tuner.measurement import Cluster, Measurement, Measurements
from tuner.table import Choice, Evidence, Key, Rule, TuningTable

CLUSTER = Cluster("ares", nodes=1, cores=2, cpu="any cpu", memory=2**40)


def probe(series: int = 3) -> Measurements:
    return Measurements(
        CLUSTER,
        "openmpi 5.0.11",
        {"seed": 7, "launches": ["one"]},
        tuple(
            Measurement(
                "collective", "bcast", 1, 4, 4, 2**33 + i, (0.1 + i / 3, 1e-7), "chain",
                {"segment": 4096, "chains": 4},
            )
            for i in range(series)
        ),
    )  # fmt: skip


def calibration() -> Calibration:
    return Calibration(
        "ares", "openmpi 5.0.11", {("node", "host"): PathCost.line(1e-6, 1e-10, math.inf)},
        {"host": FREE_REDUCTION}, {"memory_bus": Estimate(1e10, 9e9, math.inf)},
    )  # fmt: skip


def table(choice: str = "chain") -> TuningTable:
    key = Key(Collective.BCAST, 1, 4)
    evidence = Evidence("measured", (8, 64), (1e-3, 2e-3), (5e-4, 1e-3), (1 / 3, 0.1), 2.0,
                        (1.5, 2.5), "binomial")  # fmt: skip
    rules = (
        Rule(key, 0, 2**33, Choice(choice, {"segment": 4096}), evidence),
        Rule(key, 2**33, math.inf, Choice(), Evidence("none")),
    )
    return TuningTable(CLUSTER, "openmpi 5.0.11", rules, {"noise": 0.02})


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return db.open_database(f"sqlite:///{tmp_path / 'tuner.db'}")


def test_measurements_come_back_equal_and_are_stored_once(engine: Engine) -> None:
    with db.transaction(engine) as session:
        first = db.store_measurements(session, probe())
    with db.transaction(engine) as session:
        assert db.store_measurements(session, probe()) == first
        other = db.store_measurements(session, probe(2))
        assert other != first
    with db.transaction(engine) as session:
        assert db.load_measurements(session, first) == probe()
        assert db.load_measurements(session, other) == probe(2)
        assert session.scalar(text("select count(*) from clusters")) == 1


def test_calibration_comes_back_equal_with_its_infinities(engine: Engine) -> None:
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe())
        number = db.store_calibration(session, calibration(), probed)
        assert db.store_calibration(session, calibration(), probed) == number
    with db.transaction(engine) as session:
        assert db.load_calibration(session, number) == calibration()


def test_every_table_stored_is_a_new_version(engine: Engine) -> None:
    elsewhere = replace(CLUSTER, name="elsewhere")
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe())
        first = db.store_table(session, table("chain"), probed)
        second = db.store_table(session, table("pipeline"), probed)
        assert second > first
    with db.transaction(engine) as session:
        loaded = db.load_table(session, first)
        assert loaded.rules == table("chain").rules
        assert (loaded.cluster, loaded.library) == (CLUSTER, "openmpi 5.0.11")
        assert loaded.provenance == {"noise": 0.02}
        assert db.load_table(session).rules == table("pipeline").rules
        assert db.load_table(session, cluster=CLUSTER).rules == table("pipeline").rules
        with pytest.raises(InputError, match=r"no tuning table.*elsewhere"):
            db.load_table(session, cluster=elsewhere)
        with pytest.raises(InputError, match="no tuning table, version 99"):
            db.load_table(session, 99)


def test_a_stored_table_cannot_be_changed(engine: Engine) -> None:
    with db.transaction(engine) as session:
        version = db.store_table(session, table())
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.get_one(TableRow, version).library = "other"
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.get_one(TableRow, version).rules[0].algorithm = "other"
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.delete(session.get_one(TableRow, version).rules[1])
    with db.transaction(engine) as session:
        assert db.load_table(session, version).rules == table().rules


def test_results_of_a_version_come_back_in_order(engine: Engine) -> None:
    heldout = [
        {"collective": "bcast", "p": 4, "nbytes": nbytes, "algorithm": "chain", "default_s": 2e-3,
         "tuned_s": 1e-3, "ratio": 2.0, "ci95": [1.9, 2.1]}
        for nbytes in (3000, 100)
    ]  # fmt: skip
    proofs = [
        {"collective": "bcast", "p": 4, "nbytes": 8, "expected": "chain", "executed": "binomial",
         "confirmed": False, "reason": "too few elements"}
    ]  # fmt: skip
    with db.transaction(engine) as session:
        version = db.store_table(session, table())
        db.store_heldout(session, version, heldout)
        db.store_proofs(session, version, proofs)
    with db.transaction(engine) as session:
        assert db.load_heldout(session, version) == heldout
        assert db.load_proofs(session, version) == proofs
        assert db.load_heldout(session, version + 1) == []


def test_nothing_refers_to_what_is_not_there(engine: Engine) -> None:
    with pytest.raises(InputError, match="FOREIGN KEY"), db.transaction(engine) as session:
        db.store_table(session, table(), measurements_id=12345)


def test_an_exception_inside_leaves_no_trace(engine: Engine) -> None:
    def interrupted() -> None:
        with db.transaction(engine) as session:
            db.store_measurements(session, probe())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with db.transaction(engine) as session, pytest.raises(InputError, match="no measurements 1"):
        db.load_measurements(session, 1)


def test_migrations_and_mapping_describe_the_same_schema(engine: Engine) -> None:
    with engine.connect() as connection:
        settings = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=settings)
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_go_forward_back_and_forward_on_data(engine: Engine) -> None:
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe())
        made = db.store_calibration(session, calibration(), probed)
        db.store_table(session, table(), probed, made)
    with engine.begin() as connection:
        command.downgrade(migration_settings(connection), "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    engine.dispose()
    again = db.open_database(str(engine.url))
    with db.transaction(again) as session:
        assert db.store_table(session, table()) == 1
        assert db.load_table(session).rules == table().rules


BROKEN = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade():
    op.create_table("half", sa.Column("id", sa.Integer(), primary_key=True))
    op.execute("insert into nowhere values (1)")
"""


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(resources.directory("db"), tmp_path / "db")
    (tmp_path / "db" / "versions" / "0002_broken.py").write_text(BROKEN)
    before = inspect(engine).get_table_names()
    with monkeypatch.context() as patched:
        patched.setattr(resources, "directory", lambda name: tmp_path / name)
        with pytest.raises(InputError, match="no such table: nowhere"):
            db.open_database(str(engine.url))
    again = db.open_database(str(engine.url))
    assert inspect(again).get_table_names() == before


def test_opening_again_keeps_what_is_stored(engine: Engine) -> None:
    with db.transaction(engine) as session:
        number = db.store_measurements(session, probe())
    again = db.open_database(str(engine.url))
    with db.transaction(again) as session:
        assert db.load_measurements(session, number) == probe()


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing like a database\n" * 100)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"notes\.txt: is not a database"):
        db.open_database(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent/tuner\.db: cannot be opened"):
        db.open_database(f"sqlite:///{tmp_path / 'absent' / 'tuner.db'}")


@pytest.mark.parametrize("url", ["tuner.db", "nosuch:///x"])
def test_a_url_that_names_no_database(url: str) -> None:
    with pytest.raises(InputError, match=r"sqlite:///tuner\.db"):
        db.open_database(url)


def test_a_newer_schema_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    with pytest.raises(InputError, match="9999 is newer than this program"):
        db.open_database(str(engine.url))


def test_a_locked_database_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.db.engine.LOCK_WAIT", 0.05)
    path = str(engine.url.database)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(InputError, match="in use by another program"):
        db.open_database(f"sqlite:///{path}")
    holder.execute("ROLLBACK")
    db.open_database(f"sqlite:///{path}")


FILL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from tuner import db
from tuner.errors import InputError
from test_db import probe
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


def test_a_full_disk_leaves_the_database_as_it_was(engine: Engine) -> None:
    with db.transaction(engine) as session:
        number = db.store_measurements(session, probe())
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    arguments = [sys.executable, "-c", FILL, str(engine.url), str(Path(__file__).parent)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "the disk is full" in ended.stdout
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == ""
    with db.transaction(engine) as session:
        assert session.scalar(text("select count(*) from probes")) == 1
        assert session.scalar(text("select count(*) from series")) == 3
        assert db.load_measurements(session, number) == probe()
        assert session.scalar(text("pragma integrity_check")) == "ok"


def test_a_missing_data_directory_is_named() -> None:
    assert (resources.directory("db") / "env.py").is_file()
    with pytest.raises(InputError, match="lacks its data directory 'absent'"):
        resources.directory("absent")
