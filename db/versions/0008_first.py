"""The last schema before version 0.2.0, with which migrations begin.

It has no upgrade: a new database gets the newest schema from `tuner.db.models` at once, and one
that is older than this is refused.
"""

revision = "0008"
down_revision = None
branch_labels = None
depends_on = None
