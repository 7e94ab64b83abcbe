"""Stored tuning tables: immutable versions, one per content."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, insert, select
from sqlalchemy.orm import Session

from tuner.base.atomic_io import dataclass_from_record, encode_infinities
from tuner.base.errors import shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, table_record
from tuner.db.clusters import cluster_from_row, store_cluster
from tuner.db.db_errors import NewerVersionError, not_found
from tuner.db.deduplication import InsertResult, content_digest, insert_if_absent
from tuner.db.measurements import require_measurements
from tuner.db.models import Base, CalibrationRow, ClusterRow, RuleRow, TableRow
from tuner.db.pagination import PAGE_SIZE, Page, equals_if_given, fetch_page
from tuner.formats.usable_table import require_usable

_RULES = Base.metadata.tables[RuleRow.__tablename__]
_RULE = (
    RuleRow.collective,
    RuleRow.nodes,
    RuleRow.ppn,
    RuleRow.memory,
    RuleRow.operators,
    RuleRow.placement,
    RuleRow.start_bytes,
    RuleRow.stop_bytes,
    RuleRow.algorithm,
    RuleRow.params,
    RuleRow.runner,
    RuleRow.evidence,
)
_RULES_PER_FETCH = 1000  # rules per fetch; other threads can run between fetches


@dataclass(frozen=True)
class StoredTable:
    """The metadata of a version; `rules` counts its rules."""

    version: int
    digest: str
    cluster: str
    library: str
    measurements_id: int | None
    calibration_id: int | None
    rules: int
    stored_at: datetime


def store_table(
    session: Session,
    table: TuningTable,
    measurements_id: int | None = None,
    calibration_id: int | None = None,
) -> InsertResult:
    """Store a table and return its version; the same content has one version.

    measurements_id, calibration_id     what the table was made from

    Every table enters the database here. Raises InputError for one that no program should follow
    (`require_usable`), and NotFoundError where one of its sources does not exist.
    """
    require_usable(table)
    require_measurements(session, measurements_id)
    if calibration_id is not None and session.get(CalibrationRow, calibration_id) is None:
        raise not_found(f"calibration {calibration_id}")
    record = {**table_record(table), "provenance": encode_infinities(table.provenance)}
    values = {
        "cluster_id": store_cluster(session, table.cluster).id,
        "library": table.library,
        "provenance": record["provenance"],
        "probe_id": measurements_id,
        "calibration_id": calibration_id,
        "digest": content_digest(record),
        "copy": 0,
    }
    stored = insert_if_absent(session, TableRow.version, values, "digest", "copy")
    if stored.is_new and table.rules:
        rows = [
            _rule_values(stored.id, ordinal, rule, record["rules"][ordinal]["evidence"])
            for ordinal, rule in enumerate(table.rules)
        ]
        session.execute(insert(_RULES), rows)
    return stored


def load_table(session: Session, version: int) -> TuningTable:
    """Return the table of a version.

    Raises NotFoundError, and NewerVersionError where this program cannot read its rules.
    """
    row = session.get(TableRow, version)
    if row is None:
        raise not_found(f"tuning table, version {version}")
    query = select(*_RULE).where(RuleRow.version == version).order_by(RuleRow.ordinal)
    stored = session.execute(query.execution_options(yield_per=_RULES_PER_FETCH))
    try:
        rules = tuple(_rule(*each) for each in stored)
    except (ValueError, TypeError) as reason:
        raise NewerVersionError(
            f"tuning table, version {version}: this program cannot read it,"
            f" {shortened_repr(reason)}; update tuner"
        ) from None
    return TuningTable(cluster_from_row(row.cluster), row.library, rules, row.provenance)


def describe_table(session: Session, version: int) -> StoredTable:
    """Return the metadata of a version; raise NotFoundError if there is none."""
    found = session.execute(_summaries().where(TableRow.version == version)).one_or_none()
    if found is None:
        raise not_found(f"tuning table, version {version}")
    return StoredTable(*found)


def list_tables(
    session: Session,
    *,
    cluster: str | None = None,
    library: str | None = None,
    after: int = 0,
    limit: int = PAGE_SIZE,
) -> Page[StoredTable]:
    """Return a page of versions in the order stored.

    cluster     only those of this cluster, by name
    library     only those of this library
    """
    query = _summaries().where(
        *equals_if_given(ClusterRow.name, cluster), *equals_if_given(TableRow.library, library)
    )
    return fetch_page(session, query, TableRow.version, StoredTable, after, limit)


def _summaries() -> Select[*tuple[Any, ...]]:
    count = select(func.count()).where(RuleRow.version == TableRow.version).scalar_subquery()
    return select(
        TableRow.version,
        TableRow.digest,
        ClusterRow.name,
        TableRow.library,
        TableRow.probe_id,
        TableRow.calibration_id,
        count,
        TableRow.stored_at,
    ).join(ClusterRow)


def _rule_values(version: int, ordinal: int, rule: Rule, evidence: Any) -> dict[str, Any]:
    """Return the columns of a rule; `evidence` is as in the record of the rule."""
    return {
        "version": version,
        "ordinal": ordinal,
        **vars(rule.key),
        "start_bytes": rule.start_bytes,
        "stop_bytes": None if rule.stop_bytes == math.inf else int(rule.stop_bytes),
        "algorithm": rule.choice.algorithm,
        "params": dict(rule.choice.params),
        "runner": rule.choice.runner,
        "evidence": evidence,
    }


def _rule(
    collective: str,
    nodes: int,
    ppn: int,
    memory: str,
    operators: str,
    placement: str,
    start_bytes: int,
    stop_bytes: int | None,
    algorithm: str,
    params: dict[str, int],
    runner: str,
    evidence: dict[str, Any],
) -> Rule:
    key = RuleKey(Collective(collective), nodes, ppn, memory, operators, placement)
    choice = AlgorithmChoice(algorithm, params, runner)
    bound = math.inf if stop_bytes is None else stop_bytes
    return Rule(key, start_bytes, bound, choice, dataclass_from_record(Evidence, evidence))
