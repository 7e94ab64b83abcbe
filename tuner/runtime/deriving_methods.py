"""The methods that derive communicators; this module is quick to import."""

from __future__ import annotations

DERIVING_METHODS = (  # methods that derive a communicator, which follows the same table
    "Dup",
    "Dup_with_info",
    "Clone",
    "Split",
    "Split_type",
    "Create",
    "Create_group",
    "Create_cart",
    "Create_graph",
    "Create_dist_graph",
    "Create_dist_graph_adjacent",
    "Sub",
)
PARTIAL_METHODS = ("Create_group",)  # those that only some ranks of the communicator call
