"""Results that other programs wrote: one module per form."""

from tuner.importers.convert import as_measurements, write_measurements
from tuner.importers.detect import AUTO, FORMS, parse_results, read_all, read_results
from tuner.importers.reading import Reading, Shape, Told

__all__ = [
    "AUTO",
    "FORMS",
    "Reading",
    "Shape",
    "Told",
    "as_measurements",
    "parse_results",
    "read_all",
    "read_results",
    "write_measurements",
]
