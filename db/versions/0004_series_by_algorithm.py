"""Series of one algorithm are found without reading those of the others."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NAME = "ix_series_algorithm"


def upgrade() -> None:
    """The columns after the algorithm are the order in which series are listed."""
    op.create_index(NAME, "series", ["probe_id", "algorithm", "subject", "p", "nbytes", "ordinal"])


def downgrade() -> None:
    """No content is lost."""
    op.drop_index(NAME, "series")
