"""The tables of the database, as SQLAlchemy classes. Times in seconds, sizes in bytes.

The schema itself is made by the migrations in `db/versions`; a test holds the two equal.
"""

from tuner.db.models.base import Base, now
from tuner.db.models.decided import (
    FeedbackRow,
    HeldoutRow,
    ProofRow,
    PublicationRow,
    RuleRow,
    TableRow,
)
from tuner.db.models.measured import (
    CalibrationRow,
    ClusterRow,
    PredictionRow,
    ProbeRow,
    SeriesRow,
    TopologyRow,
)
from tuner.db.models.serving import JobRow, TokenRow

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
