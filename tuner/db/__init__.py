"""The database: measurements, calibrations, immutable versions of tables, and their results."""

from tuner.db.engine import open_database, transaction
from tuner.db.store import (
    load_calibration,
    load_heldout,
    load_measurements,
    load_proofs,
    load_table,
    store_calibration,
    store_heldout,
    store_measurements,
    store_proofs,
    store_table,
)

__all__ = [
    "load_calibration",
    "load_heldout",
    "load_measurements",
    "load_proofs",
    "load_table",
    "open_database",
    "store_calibration",
    "store_heldout",
    "store_measurements",
    "store_proofs",
    "store_table",
    "transaction",
]
