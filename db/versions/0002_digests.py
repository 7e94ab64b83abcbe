"""Content is stored once: digests of tables and files; who runs a choice; unfinished probes.

Equal tables get one version from here on, and a probe is known by the digest of its file. Going
back keeps what the old schema can say: probes that are complete, and versions of tables whose
choices the library itself runs.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MANY = 1000  # rows held in memory at a time
CLUSTER = ("name", "nodes", "cores", "cpu", "memory")
SERIES = (
    "kind",
    "subject",
    "nodes",
    "ppn",
    "p",
    "nbytes",
    "samples",
    "algorithm",
    "params",
    "memory",
    "launch",
)
KEY = ("collective", "nodes", "ppn", "memory", "operators")
JSONS = ("provenance", "samples", "params", "evidence")


def _described(name: str, columns: Sequence[str]) -> sa.TableClause:
    return sa.table(
        name, *(sa.column(c, sa.JSON() if c in JSONS else sa.types.NULLTYPE) for c in columns)
    )


CLUSTERS = _described("clusters", ("id", *CLUSTER))
PROBES = _described(
    "probes", ("id", "cluster_id", "library", "provenance", "digest", "series_count", "author")
)
SERIES_ROWS = _described("series", ("probe_id", "ordinal", *SERIES))
TABLES = _described(
    "tuning_tables",
    ("version", "cluster_id", "probe_id", "library", "provenance", "digest", "copy"),
)
RULES = _described(
    "rules", ("version", "ordinal", *KEY, "lo", "hi", "algorithm", "params", "via", "evidence")
)
CALIBRATIONS = _described("calibrations", ("id", "probe_id"))


def upgrade() -> None:
    """New columns, filled from what is there."""
    op.add_column("rules", sa.Column("via", sa.String(), nullable=False, server_default="library"))
    _widen_probes()
    _widen_tables()


def downgrade() -> None:
    """What cannot be said goes first, children before parents, as the foreign keys demand."""
    _forget_tables()
    _forget_probes()
    op.drop_index("uq_tuning_tables_digest", "tuning_tables")
    op.drop_index("ix_series_point", "series")
    for table, column in (
        ("rules", "via"),
        ("tuning_tables", "digest"),
        ("tuning_tables", "copy"),
        ("probes", "series_count"),
        ("probes", "author"),
        ("probes", "written_at"),
    ):
        op.drop_column(table, column)


def _widen_probes() -> None:
    op.add_column(
        "probes", sa.Column("series_count", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column("probes", sa.Column("author", sa.String()))
    op.add_column("probes", sa.Column("written_at", sa.DateTime(timezone=True)))
    op.create_index(
        "ix_series_point", "series", ["probe_id", "subject", "p", "nbytes", "algorithm", "ordinal"]
    )
    connection = op.get_bind()
    for probe in connection.execute(sa.select(PROBES.c.id, PROBES.c.cluster_id)).all():
        digest, count = hashlib.sha256(), -2  # header and end line
        for line in _file(probe.id, probe.cluster_id):
            digest.update(line.encode() + b"\n")
            count += 1
        connection.execute(
            sa.update(PROBES)
            .where(PROBES.c.id == probe.id)
            .values(digest=digest.hexdigest(), series_count=count)
        )


def _widen_tables() -> None:
    op.add_column(
        "tuning_tables", sa.Column("digest", sa.String(), nullable=False, server_default="")
    )
    op.add_column(
        "tuning_tables", sa.Column("copy", sa.Integer(), nullable=False, server_default="0")
    )
    connection, copies = op.get_bind(), dict[str, int]()
    newest_first = sa.select(TABLES.c.version).order_by(TABLES.c.version.desc())
    for version in connection.scalars(newest_first).all():
        digest = _digest(_table_record(version))
        copies[digest] = copies.get(digest, -1) + 1
        connection.execute(
            sa.update(TABLES)
            .where(TABLES.c.version == version)
            .values(digest=digest, copy=copies[digest])
        )
    op.create_index("uq_tuning_tables_digest", "tuning_tables", ["digest", "copy"], unique=True)


def _forget_tables() -> None:
    """Versions with a choice that the old schema would take for the library's own."""
    foreign = sa.select(RULES.c.version).where(RULES.c.via != "library").distinct()
    for version in op.get_bind().scalars(foreign).all():
        for name in ("heldout", "proofs", "rules", "tuning_tables"):
            _delete(name, "version", version)


def _forget_probes() -> None:
    """Unfinished ones go; the others get the old digest, by which some may be equal."""
    connection = op.get_bind()
    unfinished = sa.select(PROBES.c.id).where(PROBES.c.author.is_not(None))
    for number in connection.scalars(unfinished).all():
        _delete("series", "probe_id", number)
        _delete("probes", "id", number)
    complete = connection.execute(sa.select(PROBES.c.id, PROBES.c.cluster_id).order_by(PROBES.c.id))
    first: dict[str, int] = {}
    for number, cluster in complete.all():
        digest = _old_digest(number, cluster)
        kept = first.setdefault(digest, number)
        if kept == number:
            connection.execute(sa.update(PROBES).where(PROBES.c.id == number).values(digest=digest))
            continue
        for table in (CALIBRATIONS, TABLES):
            connection.execute(
                sa.update(table).where(table.c.probe_id == number).values(probe_id=kept)
            )
        _delete("series", "probe_id", number)
        _delete("probes", "id", number)


def _delete(table: str, column: str, value: int) -> None:
    rows = sa.table(table, sa.column(column))
    op.get_bind().execute(sa.delete(rows).where(rows.c[column] == value))


def _probe(number: int, cluster: int) -> dict[str, Any]:
    connection = op.get_bind()
    found = connection.execute(sa.select(CLUSTERS).where(CLUSTERS.c.id == cluster)).one()
    probe = connection.execute(
        sa.select(PROBES.c.library, PROBES.c.provenance).where(PROBES.c.id == number)
    ).one()
    return {
        "cluster": {name: getattr(found, name) for name in CLUSTER},
        "library": probe.library,
        "provenance": probe.provenance,
    }


def _series(number: int) -> Iterator[dict[str, Any]]:
    of_probe = sa.select(SERIES_ROWS).where(SERIES_ROWS.c.probe_id == number)
    after: int | None = -1
    while after is not None:
        rows = (
            op.get_bind()
            .execute(
                of_probe.where(SERIES_ROWS.c.ordinal > after)
                .order_by(SERIES_ROWS.c.ordinal)
                .limit(MANY)
            )
            .all()
        )
        yield from ({name: getattr(row, name) for name in SERIES} for row in rows)
        after = rows[-1].ordinal if rows else None


def _file(number: int, cluster: int) -> Iterator[str]:
    """The lines of the measurements file that this probe was."""
    yield json.dumps({"kind": "probe", "version": 1, **_probe(number, cluster)})
    count = 0
    for entry in _series(number):
        yield json.dumps(entry)
        count += 1
    yield json.dumps({"kind": "end", "lines": count})


def _old_digest(number: int, cluster: int) -> str:
    """SHA-256 of {"cluster", "library", "provenance", "series"} with its keys in order."""
    digest = hashlib.sha256()
    digest.update(json.dumps(_probe(number, cluster), sort_keys=True)[:-1].encode())
    digest.update(b', "series": [')
    for place, entry in enumerate(_series(number)):
        digest.update((", " if place else "").encode())
        digest.update(json.dumps(entry, sort_keys=True).encode())
    digest.update(b"]}")
    return digest.hexdigest()


def _table_record(version: int) -> dict[str, Any]:
    """What the file of this table would hold."""
    connection = op.get_bind()
    table = connection.execute(sa.select(TABLES).where(TABLES.c.version == version)).one()
    cluster = connection.execute(sa.select(CLUSTERS).where(CLUSTERS.c.id == table.cluster_id)).one()
    rules = connection.execute(
        sa.select(RULES).where(RULES.c.version == version).order_by(RULES.c.ordinal)
    )
    return {
        "kind": "table",
        "version": 1,
        "cluster": {name: getattr(cluster, name) for name in CLUSTER},
        "library": table.library,
        "provenance": table.provenance,
        "rules": [_rule_record(rule) for rule in rules],
    }


def _rule_record(rule: sa.Row[Any]) -> dict[str, Any]:
    return {
        "key": {name: getattr(rule, name) for name in KEY},
        "lo": rule.lo,
        "hi": "inf" if rule.hi is None else rule.hi,
        "choice": {"algorithm": rule.algorithm, "params": rule.params, "via": rule.via},
        "evidence": rule.evidence,
    }


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(_finite(record), sort_keys=True).encode()).hexdigest()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return "inf" if value == math.inf else value
