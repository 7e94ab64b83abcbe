"""What a service needs: topologies, predictions, publications, feedback, jobs and tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Everything is new."""
    _create_stored()
    _create_log()
    _create_serving()


def downgrade() -> None:
    """Children before parents, as the foreign keys demand."""
    for name in ("tokens", "jobs", "feedback", "publications", "predictions", "topologies"):
        op.drop_table(name)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True)


def _text(name: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=nullable)


def _json(name: str, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=nullable)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def _moment(name: str, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _unique(table: str, name: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(name, name=f"uq_{table}_{name}")


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


def _create_stored() -> None:
    op.create_table(
        "topologies",
        _id(),
        _text("name"),
        _text("format"),
        sa.Column("source", sa.Text(), nullable=False),
        _json("record"),
        _text("digest"),
        _moment("stored_at"),
        _unique("topologies", "digest"),
    )
    op.create_table(
        "predictions",
        _id(),
        _reference("predictions", "topology_id", "topologies.id"),
        _reference("predictions", "calibration_id", "calibrations.id", nullable=True),
        _json("question"),
        _json("items"),
        _text("digest"),
        _moment("stored_at"),
        _unique("predictions", "digest"),
    )


def _create_log() -> None:
    op.create_table(
        "publications",
        _id(),
        _reference("publications", "version", "tuning_tables.version"),
        _text("cluster"),
        _text("library"),
        _moment("published_at"),
        _text("published_by"),
        _reference("publications", "restores", "publications.id", nullable=True, index=False),
    )
    op.create_index("ix_publications_target", "publications", ["cluster", "library", "id"])
    op.create_table(
        "feedback",
        _id(),
        _reference("feedback", "version", "tuning_tables.version"),
        _text("cluster"),
        _text("library"),
        _integer("ranks"),
        _json("items"),
        _text("digest"),
        _moment("stored_at"),
        _unique("feedback", "digest"),
    )


def _create_serving() -> None:
    op.create_table(
        "jobs",
        _id(),
        _text("kind"),
        _json("spec"),
        _text("state"),
        sa.Column("progress", sa.Double(), nullable=False),
        _text("text"),
        _integer("attempt"),
        _integer("lost"),
        _text("runner"),
        _moment("leased_to", nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        _json("result", nullable=True),
        _text("error", nullable=True),
        _text("asked_by"),
        _moment("created_at"),
        _moment("started_at", nullable=True),
        _moment("ended_at", nullable=True),
    )
    op.create_index("ix_jobs_state", "jobs", ["state", "id"])
    op.create_table(
        "tokens",
        _id(),
        _text("name"),
        _json("scopes"),
        _text("digest"),
        _moment("created_at"),
        _moment("revoked_at", nullable=True),
        _moment("last_used_at", nullable=True),
        _unique("tokens", "name"),
        _unique("tokens", "digest"),
    )
