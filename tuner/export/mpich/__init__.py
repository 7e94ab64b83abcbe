"""MPICH 4.1 and later: its collective selection (csel) JSON."""

from tuner.export.mpich.emitter import check, emit, leaf_of, portable
from tuner.export.mpich.generic import generic_tuning
from tuner.export.mpich.selection import Call, Generic, Leaf, Tree, decide, parse

__all__ = [
    "Call",
    "Generic",
    "Leaf",
    "Tree",
    "check",
    "decide",
    "emit",
    "generic_tuning",
    "leaf_of",
    "parse",
    "portable",
]
