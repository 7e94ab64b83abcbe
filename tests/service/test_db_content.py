"""What comes out of the database equals what went in, and equal content is stored once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.stored import CLUSTER, LIBRARY, calibration, measurements_file, probe, table
from tuner import db
from tuner.base.errors import InputError
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.core.table import TuningTable
from tuner.db import ConflictError, NotFoundError
from tuner.db.models import PublicationRow, RuleRow, TableRow


def test_clusters_are_equal_or_different(engine: Engine) -> None:
    with db.transaction(engine) as session:
        first = db.store_cluster(session, CLUSTER)
        assert first.is_new
        assert db.store_cluster(session, CLUSTER) == replace(first, is_new=False)
        second = db.store_cluster(session, replace(CLUSTER, memory=1))
    with db.read_session(engine) as session:
        assert db.load_cluster(session, first.id) == CLUSTER
        listed = db.list_clusters(session)
        assert [entry.id for entry in listed.items] == [first.id, second.id]
        page = db.list_clusters(session, limit=1)
        assert ([entry.id for entry in page.items], page.next) == ([first.id], first.id)
        assert db.list_clusters(session, after=first.id).items == listed.items[1:]
        with pytest.raises(NotFoundError, match="no cluster 99"):
            db.load_cluster(session, 99)


def test_many_at_once_store_one(engine: Engine) -> None:
    def store(_: int) -> int:
        with db.transaction(engine) as session:
            return db.store_table(session, table()).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(store, range(16)))) == 1
    with db.read_session(engine) as session:
        assert session.scalar(text("select count(*) from rules")) == 3


def test_placements_are_kept(engine: Engine, tmp_path: Path) -> None:
    first, *others = probe().series
    cyclic = replace(first, nodes=2, ppn=2, placement=CYCLIC)
    measured = replace(probe(), series=(cyclic, replace(cyclic, placement=BLOCK), *others))
    usual = replace(table().rules[0].key, nodes=2, ppn=2)
    keys = (usual, replace(usual, placement=CYCLIC))
    rules = tuple(replace(rule, key=key) for key in keys for rule in table().rules)
    made = TuningTable(CLUSTER, LIBRARY, rules)
    with db.transaction(engine) as session:
        number = db.store_measurements(session, measured).id
        version = db.store_table(session, made).id
        assert db.store_table(session, made.held_by_files()).is_new
    with db.read_session(engine) as session:
        assert db.load_measurements(session, number) == measured
        assert db.load_table(session, version).rules == made.rules
    file = measurements_file(tmp_path / "m.ndjson", measured)
    assert "".join(db.measurement_lines(engine, number)) == file.read_text()
    assert not db.ingest(engine, file).is_new


def test_topologies_keep_their_text(engine: Engine) -> None:
    source = "name: flat\nnodes: 4  # späť\n"
    with db.transaction(engine) as session:
        stored = db.store_topology(session, "flat", "yaml", source, {"nodes": 4})
        assert not db.store_topology(session, "flat", "yaml", source, {"nodes": 4}).is_new
        assert db.store_topology(session, "flat", "yaml", source + " ", {"nodes": 4}).is_new
    with db.read_session(engine) as session:
        loaded = db.load_topology(session, stored.id)
        assert (loaded.source, loaded.record, loaded.format) == (source, {"nodes": 4}, "yaml")
        assert [entry.name for entry in db.list_topologies(session).items] == ["flat", "flat"]
        with pytest.raises(NotFoundError, match="no topology 99"):
            db.load_topology(session, 99)


def test_measurements_come_back_equal_and_are_stored_once(engine: Engine) -> None:
    with db.transaction(engine) as session:
        first = db.store_measurements(session, probe())
    with db.transaction(engine) as session:
        assert db.store_measurements(session, probe()) == replace(first, is_new=False)
        other = db.store_measurements(session, probe(2))
        assert other.id != first.id
    with db.read_session(engine) as session:
        assert db.load_measurements(session, first.id) == probe()
        assert db.load_measurements(session, other.id) == probe(2)
        described = db.describe_measurements(session, other.id)
        assert (described.series, described.cluster, described.library) == (2, "ares", LIBRARY)
        assert db.list_measurements(session, cluster="ares", library=LIBRARY).items[1] == described
        assert db.list_measurements(session, cluster="elsewhere").items == []
        assert len(db.list_clusters(session).items) == 1


def test_calibration_comes_back_equal_with_its_infinities(engine: Engine) -> None:
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe()).id
        stored = db.store_calibration(session, calibration(), probed)
        assert db.store_calibration(session, calibration(), probed) == replace(stored, is_new=False)
        with pytest.raises(NotFoundError, match="no measurements 99"):
            db.store_calibration(session, calibration(), 99)
    with db.read_session(engine) as session:
        assert db.load_calibration(session, stored.id) == calibration()
        (entry,) = db.list_calibrations(session, cluster="ares", library=LIBRARY).items
        assert (entry.id, entry.measurements_id) == (stored.id, probed)
        assert db.list_calibrations(session, library="other").items == []


@pytest.mark.parametrize("via", ["library", "schedule", "nccl"])
def test_an_equal_table_is_the_same_version(engine: Engine, via: str) -> None:
    with db.transaction(engine) as session:
        probed = db.store_measurements(session, probe()).id
        made = db.store_calibration(session, calibration(), probed).id
        first = db.store_table(session, table("chain", via), probed, made)
        assert db.store_table(session, table("chain", via)) == replace(first, is_new=False)
        second = db.store_table(session, table("pipeline", via))
        assert second.is_new
    with db.read_session(engine) as session:
        loaded = db.load_table(session, first.id)
        assert loaded.rules == table("chain", via).rules
        assert (loaded.cluster, loaded.library) == (CLUSTER, LIBRARY)
        assert loaded.provenance == {"noise": 0.02}
        described = db.describe_table(session, first.id)
        assert (described.measurements_id, described.calibration_id) == (probed, made)
        assert (described.rules, described.cluster) == (3, "ares")
        assert db.list_tables(session, cluster="ares").items[0] == described
        assert db.list_tables(session, library="other").items == []
        with pytest.raises(NotFoundError, match="no tuning table, version 99"):
            db.load_table(session, 99)


def test_tables_are_made_from_what_is_there(engine: Engine) -> None:
    with pytest.raises(NotFoundError, match="no measurements 7"), db.transaction(engine) as session:
        db.store_table(session, table(), measurements_id=7)
    with pytest.raises(NotFoundError, match="no calibration 7"), db.transaction(engine) as session:
        db.store_table(session, table(), calibration_id=7)
    with db.read_session(engine) as session:
        assert db.list_tables(session).items == []


def test_a_stored_table_and_the_log_cannot_be_changed(engine: Engine) -> None:
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id
        db.publish(session, version)
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.get_one(TableRow, version).library = "other"
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.get_one(RuleRow, 1).algorithm = "other"
    with pytest.raises(InputError, match="immutable"), db.transaction(engine) as session:
        session.delete(session.get_one(RuleRow, 2))
    with pytest.raises(InputError, match="history"), db.transaction(engine) as session:
        session.get_one(PublicationRow, 1).version = 2
    with db.read_session(engine) as session:
        assert db.load_table(session, version).rules == table().rules


def test_results_of_a_version_come_back_in_order_and_are_replaced(engine: Engine) -> None:
    heldout = [
        {
            "collective": "bcast",
            "p": 4,
            "nbytes": nbytes,
            "algorithm": "chain",
            "default_s": 2e-3,
            "tuned_s": 1e-3,
            "ratio": 2.0,
            "ci95": [1.9, 2.1],
        }
        for nbytes in (3000, 100)
    ]
    proofs = [
        {
            "collective": "bcast",
            "p": 4,
            "nbytes": 8,
            "expected": "chain",
            "executed": "binomial",
            "confirmed": False,
            "reason": "too few elements",
        }
    ]
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id
        for results in (heldout[:1], heldout):
            db.store_heldout(session, version, results)
            db.store_validations(session, version, proofs)
    with db.read_session(engine) as session:
        assert db.load_heldout(session, version) == heldout
        assert db.load_validations(session, version) == proofs
        assert db.load_heldout(session, version + 1) == []


def test_publishing_and_rolling_back_step_by_step(engine: Engine) -> None:
    with db.transaction(engine) as session:
        one, two, three = (
            db.store_table(session, table(name)).id for name in ("chain", "pipeline", "binomial")
        )
        other = db.store_table(session, table(library="openmpi 4.1.6")).id
        assert db.newest_publication_id(session) == 0
        assert db.current_publication(session, "ares", LIBRARY) is None
        for version in (one, two, two, other):
            db.publish(session, version, "ada")

    def roll_back() -> int:
        with db.transaction(engine) as session:
            return db.roll_back(session, "ares", LIBRARY, "bob").version

    assert roll_back() == one
    with pytest.raises(ConflictError, match="before version"):
        roll_back()
    with db.transaction(engine) as session:
        db.publish(session, three)
    assert roll_back() == one
    with pytest.raises(ConflictError):
        roll_back()
    with db.read_session(engine) as session:
        log = db.list_publications(session, cluster="ares", library=LIBRARY).items
        assert [entry.version for entry in log] == [one, two, one, three, one]
        assert [entry.by for entry in log] == ["ada", "ada", "bob", "", "bob"]
        assert db.newest_publication_id(session) == log[-1].id
        assert db.current_publication(session, "ares", LIBRARY) == log[-1]
        current = {(entry.library, entry.version) for entry in db.current_publications(session)}
        assert current == {(LIBRARY, one), ("openmpi 4.1.6", other)}


def test_nothing_published_cannot_be_rolled_back(engine: Engine) -> None:
    with pytest.raises(ConflictError, match="none is published"), db.transaction(engine) as session:
        db.roll_back(session, "ares", LIBRARY)
    with pytest.raises(NotFoundError), db.transaction(engine) as session:
        db.publish(session, 99)


def test_publishing_at_once_appends_one_entry(engine: Engine) -> None:
    with db.transaction(engine) as session:
        version = db.store_table(session, table()).id

    def publish(_: int) -> int:
        with db.transaction(engine) as session:
            return db.publish(session, version).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(publish, range(16)))) == 1


def test_reading_writes_nothing(engine: Engine) -> None:
    if engine.dialect.name == "postgresql":
        with (
            pytest.raises(InputError, match="may only be read"),
            db.read_session(engine) as session,
        ):
            db.store_cluster(session, CLUSTER)
    else:
        with db.read_session(engine) as session:
            db.store_cluster(session, CLUSTER)
    with db.read_session(engine) as session:
        assert db.list_clusters(session).items == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # SQLite has none
def test_a_read_only_server_is_not_written_to_after_reading(engine: Engine) -> None:
    name = engine.url.database
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as administrator:
        administrator.exec_driver_sql(
            f"alter database {name} set default_transaction_read_only = on"
        )
    engine.dispose()
    with db.read_session(engine) as session:
        assert db.list_clusters(session).items == []
    with pytest.raises(InputError, match="may only be read"), db.transaction(engine) as session:
        db.store_cluster(session, CLUSTER)


def test_an_exception_inside_leaves_no_trace(engine: Engine) -> None:
    def interrupted() -> None:
        with db.transaction(engine) as session:
            db.store_measurements(session, probe())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with (
        db.read_session(engine) as session,
        pytest.raises(NotFoundError, match="no measurements 1"),
    ):
        db.load_measurements(session, 1)


@pytest.mark.parametrize("record", [{"spec": math.nan}, {"spec": math.inf}])
def test_json_that_is_none_is_refused(engine: Engine, record: dict[str, Any]) -> None:
    with (
        pytest.raises(InputError, match="cannot hold this value"),
        db.transaction(engine) as session,
    ):
        db.enqueue_job(session, "study", record)
