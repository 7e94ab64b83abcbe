"""The JSON files by which the layers of MPICH 3.4 and later select collectives (csel)."""

from tuner.formats.mpich import device
from tuner.formats.mpich.emitter import check, drop_inexpressible, emit, leaf_for_rule
from tuner.formats.mpich.generic import GenericTrees, read_generic_tree, read_generic_trees
from tuner.formats.mpich.layers import DEVICE, MPIR, SHARED_MEMORY, Layer
from tuner.formats.mpich.parsing import parse
from tuner.formats.mpich.selection import CselCall, GenericTreeLoader, Leaf, Tree, decide
from tuner.formats.mpich.tree_rules import read

__all__ = [
    "DEVICE",
    "MPIR",
    "SHARED_MEMORY",
    "CselCall",
    "GenericTreeLoader",
    "GenericTrees",
    "Layer",
    "Leaf",
    "Tree",
    "check",
    "decide",
    "device",
    "drop_inexpressible",
    "emit",
    "leaf_for_rule",
    "parse",
    "read",
    "read_generic_tree",
    "read_generic_trees",
]
