"""Open MPI 4.1 and 5.x: its algorithms and its classic rules file."""

from tuner.export.openmpi.algorithms import candidates, order_safe, redirected, settings
from tuner.export.openmpi.emitter import check, emit
from tuner.export.openmpi.parser import parse
from tuner.export.openmpi.rules import Rules, decide

__all__ = [
    "Rules",
    "candidates",
    "check",
    "decide",
    "emit",
    "order_safe",
    "parse",
    "redirected",
    "settings",
]
