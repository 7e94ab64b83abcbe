"""Alembic environment. It is only ever run by `tuner.db.open_database`, which hands it an open
connection inside a transaction, so that a failed migration leaves the database as it was.
"""

from alembic import context

from tuner.db.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
