"""Name the columns of rules and the keys of calibrations as their fields are named today.

Digests follow, so that a table or calibration that comes again is found.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

RULE_NAMES = {"lo": "start_bytes", "hi": "stop_bytes", "via": "runner"}
CALIBRATION_NAMES = {
    "shared_from": "port_sharing_threshold",
    "network_port": "separate_network_port",
    "stripe_from": "striping_threshold",
    "pointer_query": "pointer_query_seconds",
    "envelope": "header_bytes",
    "given": "nominal",
    "acknowledged_from": "sync_ack_threshold",
    "ahead_limit": "early_push_limit",
    "lag": "latency_per_byte",
    "lo": "start_bytes",
    "hi": "stop_bytes",
}
CLUSTER = ("name", "nodes", "cores", "cpu", "memory")
KEY = ("collective", "nodes", "ppn", "memory", "operators")
DEFAULT_PLACEMENT = "consecutive"  # left out of records
JSONS = ("provenance", "params", "evidence", "content")


def _described(name: str, *columns: str) -> sa.TableClause:
    return sa.table(
        name, *(sa.column(c, sa.JSON() if c in JSONS else sa.types.NULLTYPE) for c in columns)
    )


CLUSTERS = _described("clusters", "id", *CLUSTER)
TABLES = _described("tuning_tables", "version", "cluster_id", "library", "provenance", "digest")
CALIBRATIONS = _described("calibrations", "id", "probe_id", "content", "digest")


def upgrade() -> None:
    """Rename; both databases rename columns without copying the table."""
    _rename_columns(RULE_NAMES)
    _update_tables(RULE_NAMES)
    _update_calibrations(CALIBRATION_NAMES)


def downgrade() -> None:
    """Give columns and keys their former names."""
    _rename_columns({new: old for old, new in RULE_NAMES.items()})
    _update_tables({name: name for name in RULE_NAMES})
    _update_calibrations({new: old for old, new in CALIBRATION_NAMES.items()})


def _rename_columns(names: Mapping[str, str]) -> None:
    for old, new in names.items():
        op.execute(f"ALTER TABLE rules RENAME COLUMN {old} TO {new}")


def _update_tables(names: Mapping[str, str]) -> None:
    """Write the digest of every table, with the names of today by those of version 0.1."""
    connection = op.get_bind()
    for table in connection.execute(sa.select(TABLES)).all():
        cluster = connection.execute(
            sa.select(CLUSTERS).where(CLUSTERS.c.id == table.cluster_id)
        ).one()
        record = {
            "kind": "table",
            "version": 1,
            "cluster": {name: getattr(cluster, name) for name in CLUSTER},
            "library": table.library,
            "provenance": table.provenance,
            "rules": _rule_records(table.version, names),
        }
        connection.execute(
            sa.update(TABLES)
            .where(TABLES.c.version == table.version)
            .values(digest=_digest(record))
        )


def _rule_records(version: int, names: Mapping[str, str]) -> list[dict[str, Any]]:
    low, high, runner = names.values()
    rules = _described(
        "rules",
        "version",
        "ordinal",
        *KEY,
        "placement",
        low,
        high,
        "algorithm",
        "params",
        runner,
        "evidence",
    )
    query = sa.select(rules).where(rules.c.version == version).order_by(rules.c.ordinal)
    return [
        {
            "key": {name: rule[name] for name in KEY} | _placement(rule["placement"]),
            low: rule[low],
            high: "inf" if rule[high] is None else rule[high],
            "choice": {name: rule[name] for name in ("algorithm", "params", runner)},
            "evidence": rule["evidence"],
        }
        for rule in op.get_bind().execute(query).mappings()
    ]


def _placement(placement: str) -> dict[str, str]:
    return {} if placement == DEFAULT_PLACEMENT else {"placement": placement}


def _update_calibrations(names: Mapping[str, str]) -> None:
    connection = op.get_bind()
    for row in connection.execute(sa.select(CALIBRATIONS)).all():
        content = _renamed(row.content, names)
        content["paths"] = [_renamed_path(path, names) for path in content["paths"]]
        connection.execute(
            sa.update(CALIBRATIONS)
            .where(CALIBRATIONS.c.id == row.id)
            .values(content=content, digest=_digest([content, row.probe_id]))
        )


def _renamed_path(path: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    segments = [_renamed(segment, names) for segment in path["segments"]]
    return {**_renamed(path, names), "segments": segments}


def _renamed(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in record.items()}


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
