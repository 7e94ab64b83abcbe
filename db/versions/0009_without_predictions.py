"""Drop the stored predictions; what-if questions are answered without storing anything."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the table."""
    op.drop_table("predictions")
