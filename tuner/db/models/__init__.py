"""The tables of the database, as SQLAlchemy classes. Times in seconds, sizes in bytes.

The schema itself is made by the migrations in `db/versions`; a test holds the two equal.
"""

from tuner.db.models.base import Base, now
from tuner.db.models.jobs import JobRow, TokenRow
from tuner.db.models.measurements import (
    CalibrationRow,
    ClusterRow,
    PredictionRow,
    ProbeRow,
    SeriesRow,
    TopologyRow,
)
from tuner.db.models.tables import (
    FeedbackRow,
    HeldoutRow,
    ProofRow,
    PublicationRow,
    RuleRow,
    TableRow,
)

__all__ = [
    "Base",
    "CalibrationRow",
    "ClusterRow",
    "FeedbackRow",
    "HeldoutRow",
    "JobRow",
    "PredictionRow",
    "ProbeRow",
    "ProofRow",
    "PublicationRow",
    "RuleRow",
    "SeriesRow",
    "TableRow",
    "TokenRow",
    "TopologyRow",
    "now",
]
