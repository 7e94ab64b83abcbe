"""Algorithms as schedules: one file per collective, one registry."""

from tuner.algorithms import (
    allgather,
    allreduce,
    bcast,
    bine,
    double_tree,
    gather,
    hierarchical,
    k_ring,
    multicast,
    nccl,
    nvls,
    pat,
    recursive_multiplying,
    reduce,
    reduce_scatter,
    scatter,
    segmented_chains,
    shared_memory,
    staged,
    swing,
    two_level,
)
from tuner.algorithms.registry import (
    NEEDS,
    Algorithm,
    build,
    describe,
    facts_of,
    names,
    offered,
    require_offered,
    segmented,
)

__all__ = [
    "NEEDS", "Algorithm", "allgather", "allreduce", "bcast", "bine", "build", "describe",
    "double_tree", "facts_of", "gather", "hierarchical", "k_ring", "multicast", "names", "nccl",
    "nvls", "offered", "pat", "recursive_multiplying", "reduce", "reduce_scatter",
    "require_offered", "scatter", "segmented",
    "segmented_chains", "shared_memory", "staged", "swing", "two_level",
]  # fmt: skip
