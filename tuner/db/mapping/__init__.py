"""The tables of the database, as SQLAlchemy classes. Times in seconds, sizes in bytes.

The schema itself is made by the migrations in `db/versions`; a test holds the two equal.
"""

from tuner.db.mapping.base import Base, now
from tuner.db.mapping.decided import (
    FeedbackRow,
    HeldoutRow,
    ProofRow,
    PublicationRow,
    RuleRow,
    TableRow,
)
from tuner.db.mapping.measured import (
    CalibrationRow,
    ClusterRow,
    PredictionRow,
    ProbeRow,
    SeriesRow,
    TopologyRow,
)
from tuner.db.mapping.serving import JobRow, TokenRow

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
