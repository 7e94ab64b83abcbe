"""Algorithms as schedules: one file per collective, one registry."""

from tuner.algorithms import (
    allgather,
    allreduce,
    bcast,
    gather,
    hierarchical,
    reduce,
    reduce_scatter,
    scatter,
)
from tuner.algorithms.registry import Algorithm, build, describe, facts_of, names

__all__ = [
    "Algorithm", "allgather", "allreduce", "bcast", "build", "describe", "facts_of", "gather",
    "hierarchical", "names", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip
