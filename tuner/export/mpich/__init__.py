"""MPICH 4.1 and later: its algorithms and its collective selection (csel) JSON."""

from tuner.export.mpich.algorithms import candidates, order_safe, settings
from tuner.export.mpich.emitter import check, emit, leaf_of, portable
from tuner.export.mpich.selection import Call, Leaf, Tree, decide, generic_tuning, parse

__all__ = [
    "Call",
    "Leaf",
    "Tree",
    "candidates",
    "check",
    "decide",
    "emit",
    "generic_tuning",
    "leaf_of",
    "order_safe",
    "parse",
    "portable",
    "settings",
]
