"""MPICH 3.4 and later: the JSON files by which its layers select collectives (csel)."""

from tuner.export.mpich import device
from tuner.export.mpich.emitter import check, emit, leaf_of, portable
from tuner.export.mpich.generic import OwnTrees, generic_tuning, own_trees
from tuner.export.mpich.layers import DEVICE, MPIR, SHARED_MEMORY, Layer
from tuner.export.mpich.parsing import parse
from tuner.export.mpich.selection import Call, Generic, Leaf, Tree, decide

__all__ = [
    "DEVICE",
    "MPIR",
    "SHARED_MEMORY",
    "Call",
    "Generic",
    "Layer",
    "Leaf",
    "OwnTrees",
    "Tree",
    "check",
    "decide",
    "device",
    "emit",
    "generic_tuning",
    "leaf_of",
    "own_trees",
    "parse",
    "portable",
]
