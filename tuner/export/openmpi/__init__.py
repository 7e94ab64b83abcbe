"""Open MPI 4.1 and 5.x: its classic rules file."""

from tuner.export.openmpi.emitter import check, emit
from tuner.export.openmpi.parser import parse
from tuner.export.openmpi.rules import Rules, decide

__all__ = [
    "Rules",
    "check",
    "decide",
    "emit",
    "parse",
]
