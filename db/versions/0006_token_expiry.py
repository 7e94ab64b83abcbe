"""Tokens may expire; those that are there do not."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty."""
    op.add_column("tokens", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Revoke every token that would expire: without the column it would be valid for ever."""
    op.execute(
        "UPDATE tokens SET revoked_at = expires_at"
        " WHERE expires_at IS NOT NULL AND revoked_at IS NULL"
    )
    op.drop_column("tokens", "expires_at")
