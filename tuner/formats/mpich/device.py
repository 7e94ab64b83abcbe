"""The file of MPICH's device layer, which is asked before the MPIR layer.

A call for which the table has a rule other than the default is handed to the MPIR layer, where the
file of format `mpich` names the rule's algorithm. All other calls keep the device
layer's own branch, and so its shared memory within a node.
"""

from __future__ import annotations

from pathlib import Path

from tuner.core.collective import Collective
from tuner.core.table import Rule, TuningTable
from tuner.formats.mpich import emitter
from tuner.formats.mpich.branches import RuleToLeaf
from tuner.formats.mpich.comparison import compare
from tuner.formats.mpich.layers import DEVICE
from tuner.formats.mpich.selection import Leaf, Tree, leaves

# The composition that hands the whole call to the network module, or within a node to that of
# shared memory, either of which calls the MPIR layer
# (src/mpid/ch4/src/ch4_coll_impl.h; seen to do so in MPICH 3.4 to 5.0, over UCX and OFI).
DELEGATING_LEAVES = {
    Collective.BARRIER: Leaf("MPIDI_Barrier_intra_composition_beta", kind="composition"),
    Collective.BCAST: Leaf("MPIDI_Bcast_intra_composition_gamma", kind="composition"),
    Collective.ALLREDUCE: Leaf("MPIDI_Allreduce_intra_composition_beta", kind="composition"),
    Collective.ALLTOALL: Leaf("MPIDI_Alltoall_intra_composition_beta", kind="composition"),
    Collective.REDUCE: Leaf("MPIDI_Reduce_intra_composition_gamma", kind="composition"),
    Collective.REDUCE_SCATTER: Leaf(
        "MPIDI_Reduce_scatter_intra_composition_alpha", kind="composition"
    ),
}
# In releases before 4.1 this composition hands every call on.
EARLIER_DELEGATING_LEAVES = {
    Collective.ALLTOALL: Leaf("MPIDI_Alltoall_intra_composition_alpha", kind="composition")
}
# The compositions that hand the whole call to the shared memory layer, where all ranks are on one
# node.
SHARED_MEMORY_LEAVES = {
    Collective.ALLREDUCE: Leaf("MPIDI_Allreduce_intra_composition_gamma", kind="composition")
}
# A leaf that no collective but exscan can run.
FAULT_LEAF = Leaf("MPIDI_Exscan_intra_composition_alpha", kind="composition")


def delegating_leaf(collective: Collective, generic: Tree) -> Leaf | None:
    """Return the composition that hands the whole call on; None where there is none.

    generic     the device layer's own tree, which tells the release
    """
    own = {*leaves(generic.get(f"collective={collective}", {}))}
    earlier = EARLIER_DELEGATING_LEAVES.get(collective)
    return earlier if earlier in own else DELEGATING_LEAVES.get(collective)


def rule_to_leaf(generic: Tree) -> RuleToLeaf:
    """Return a function that gives the composition which hands a rule's calls on.

    generic     the device layer's own tree

    It returns None for the default, and raises InputError, naming the rule, where the MPIR layer's
    file cannot hold it.
    """

    def leaf_of(rule: Rule) -> Leaf | None:
        named = emitter.leaf_for_rule(rule)
        return delegating_leaf(rule.key.collective, generic) if named else None

    return leaf_of


def emit(table: TuningTable, generic: Tree) -> str:
    """Return the complete JSON file of a table.

    generic    the device layer's own tree, from `read_generic_tree`

    Raises InputError as `emit` of the MPIR layer's file does.
    """
    return emitter.emit_layer(table, generic, DEVICE, rule_to_leaf(generic))


def check(table: TuningTable, text: str, generic: Tree) -> list[str]:
    """Return the calls that the file decides differently from the table, as `compare` does."""
    return compare(table, text, generic, DEVICE, rule_to_leaf(generic))


def device_file_path(tuning_file: Path) -> Path:
    """Return the path of the device layer's file, next to that of the MPIR layer.

    It is `m-device.json` for `m.json`.
    """
    return tuning_file.with_name(f"{tuning_file.stem}-device{tuning_file.suffix}")
