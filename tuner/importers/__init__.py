"""Importers of results that other programs wrote, one module per format."""

from tuner.importers.convert import as_measurements, write_measurements
from tuner.importers.detect import (
    AUTO,
    INSPECTOR,
    RESULT_FORMATS,
    detect_results,
    parse_results,
    read_all,
    read_results,
)
from tuner.importers.reading import BenchmarkResult, MissingCountsError, RankCounts, UserMetadata

__all__ = [
    "AUTO",
    "INSPECTOR",
    "RESULT_FORMATS",
    "BenchmarkResult",
    "MissingCountsError",
    "RankCounts",
    "UserMetadata",
    "as_measurements",
    "detect_results",
    "parse_results",
    "read_all",
    "read_results",
    "write_measurements",
]
