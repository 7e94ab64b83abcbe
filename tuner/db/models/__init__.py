"""The tables of the database as SQLAlchemy classes; times are in seconds, sizes in bytes.

A new database gets its schema from these classes. The migrations in `db/versions` lead those of
earlier versions to it; a test checks that the two agree.
"""

from tuner.db.models.base import Base, utc_now
from tuner.db.models.jobs import JobLogRow, JobRow, TokenRow
from tuner.db.models.measurements import (
    CalibrationRow,
    ClusterRow,
    ProbeRow,
    SeriesRow,
    TopologyRow,
)
from tuner.db.models.tables import (
    FeedbackRow,
    HeldoutRow,
    PublicationRow,
    RuleRow,
    TableRow,
    ValidationRow,
)

__all__ = [
    "Base",
    "CalibrationRow",
    "ClusterRow",
    "FeedbackRow",
    "HeldoutRow",
    "JobLogRow",
    "JobRow",
    "ProbeRow",
    "PublicationRow",
    "RuleRow",
    "SeriesRow",
    "TableRow",
    "TokenRow",
    "TopologyRow",
    "ValidationRow",
    "utc_now",
]
