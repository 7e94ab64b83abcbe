"""Clusters, probes, calibrations, versions of tables, and how each version fared."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Everything is new."""
    _create_probes()
    _create_tables()
    _create_results()


def downgrade() -> None:
    """Children before parents, as the foreign keys demand."""
    for name in (
        "heldout",
        "proofs",
        "rules",
        "tuning_tables",
        "calibrations",
        "series",
        "probes",
        "clusters",
    ):
        op.drop_table(name)


def _id(name: str = "id") -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), primary_key=True)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def _bytes(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=False)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=False)


def _stored_at() -> sa.Column[object]:
    return sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False)


def _reference(
    table: str, name: str, target: str, nullable: bool = False, index: bool = True
) -> sa.Column[int]:
    return sa.Column(
        name,
        sa.Integer(),
        sa.ForeignKey(target, name=f"fk_{table}_{name}"),
        nullable=nullable,
        index=index,
    )


def _create_probes() -> None:
    op.create_table(
        "clusters",
        _id(),
        _text("name"),
        _integer("nodes"),
        _integer("cores"),
        _text("cpu"),
        _bytes("memory"),
        sa.UniqueConstraint("name", "nodes", "cores", "cpu", "memory", name="uq_clusters_name"),
    )
    op.create_table(
        "probes",
        _id(),
        _reference("probes", "cluster_id", "clusters.id"),
        _text("library"),
        _json("provenance"),
        _text("digest"),
        _stored_at(),
        sa.UniqueConstraint("digest", name="uq_probes_digest"),
    )
    op.create_table(
        "series",
        _id(),
        _reference("series", "probe_id", "probes.id", index=False),
        _integer("ordinal"),
        _text("kind"),
        _text("subject"),
        _integer("nodes"),
        _integer("ppn"),
        _integer("p"),
        _bytes("nbytes"),
        _text("algorithm"),
        _json("params"),
        _text("memory"),
        _integer("launch"),
        _json("samples"),
        sa.UniqueConstraint("probe_id", "ordinal", name="uq_series_probe_id"),
    )
    op.create_table(
        "calibrations",
        _id(),
        _reference("calibrations", "probe_id", "probes.id", nullable=True),
        _text("cluster"),
        _text("library"),
        _json("content"),
        _text("digest"),
        _stored_at(),
        sa.UniqueConstraint("digest", name="uq_calibrations_digest"),
    )


def _create_tables() -> None:
    op.create_table(
        "tuning_tables",
        _id("version"),
        _reference("tuning_tables", "cluster_id", "clusters.id"),
        _reference("tuning_tables", "probe_id", "probes.id", nullable=True),
        _reference("tuning_tables", "calibration_id", "calibrations.id", nullable=True),
        _text("library"),
        _json("provenance"),
        _stored_at(),
    )
    op.create_table(
        "rules",
        _id(),
        _reference("rules", "version", "tuning_tables.version", index=False),
        _integer("ordinal"),
        _text("collective"),
        _integer("nodes"),
        _integer("ppn"),
        _text("memory"),
        _text("operators"),
        _bytes("lo"),
        _bytes("hi", nullable=True),
        _text("algorithm"),
        _json("params"),
        _json("evidence"),
        sa.UniqueConstraint("version", "ordinal", name="uq_rules_version"),
    )


def _create_results() -> None:
    op.create_table(
        "proofs",
        _id(),
        _reference("proofs", "version", "tuning_tables.version"),
        _text("collective"),
        _integer("p"),
        _bytes("nbytes"),
        _text("expected"),
        _text("executed"),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        _text("reason"),
    )
    op.create_table(
        "heldout",
        _id(),
        _reference("heldout", "version", "tuning_tables.version"),
        _text("collective"),
        _integer("p"),
        _bytes("nbytes"),
        _text("algorithm"),
        _real("default_s"),
        _real("tuned_s"),
        _real("ratio"),
        _real("ci95_low"),
        _real("ci95_high"),
    )
