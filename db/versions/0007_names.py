"""Name the columns of rules as the fields of `tuner.core.table.Rule`."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
NEW_NAMES = {"lo": "start_bytes", "hi": "stop_bytes", "via": "runner"}


def upgrade() -> None:
    """Rename the columns; both databases do so without copying the table."""
    for old, new in NEW_NAMES.items():
        op.execute(f"ALTER TABLE rules RENAME COLUMN {old} TO {new}")


def downgrade() -> None:
    """Give the columns their former names."""
    for old, new in NEW_NAMES.items():
        op.execute(f"ALTER TABLE rules RENAME COLUMN {new} TO {old}")
