"""MPICH 3.4 and later: the JSON files by which its layers select collectives (csel)."""

from tuner.formats.mpich import device
from tuner.formats.mpich.emitter import check, emit, leaf_of, portable
from tuner.formats.mpich.generic import OwnTrees, generic_tuning, own_trees
from tuner.formats.mpich.layers import DEVICE, MPIR, SHARED_MEMORY, Layer
from tuner.formats.mpich.parsing import parse
from tuner.formats.mpich.selection import Call, Generic, Leaf, Tree, decide

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
