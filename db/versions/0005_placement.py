"""Series and rules say how ranks are dealt to nodes; until now all were consecutive."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("series", "rules")


def upgrade() -> None:
    """What is there was measured, and made, of consecutive ranks."""
    for table in TABLES:
        op.add_column(
            table, sa.Column("placement", sa.String(), nullable=False, server_default="consecutive")
        )


def downgrade() -> None:
    """Refused while there is any other placement, which would pass for consecutive without it."""
    connection = op.get_bind()
    for table in TABLES:
        found = sa.table(table, sa.column("placement"))
        query = sa.select(sa.func.count()).where(found.c.placement != "consecutive")
        if connection.scalar(query):
            raise ValueError(f"{table}: other placements than consecutive cannot be kept")
    for table in TABLES:
        op.drop_column(table, "placement")
