"""Importers of results that other programs wrote, one module per format."""

from tuner.importers.convert import as_measurements, write_measurements
from tuner.importers.detect import AUTO, RESULT_FORMATS, parse_results, read_all, read_results
from tuner.importers.reading import BenchmarkResult, RankCounts, UserMetadata

__all__ = [
    "AUTO",
    "RESULT_FORMATS",
    "BenchmarkResult",
    "RankCounts",
    "UserMetadata",
    "as_measurements",
    "parse_results",
    "read_all",
    "read_results",
    "write_measurements",
]
