"""Groups of ranks that have the times of NCCL's own model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.machines.loader import load_machine
from tuner.topology import Placement
from tuner.training.call_times import CallTimes
from tuner.training.groups import Group
from tuner.training.policies import NcclChoice
from tuner.whatif.axes import apply_axes


@pytest.mark.parametrize(
    ("group", "known"),
    [
        (Group(32), True),  # all ranks
        (Group(4), True),  # half a node
        (Group(16), True),  # two whole nodes: its ports serve no other group
        (Group(4, 8), False),  # one GPU of each node: eight groups share the ports
        (Group(16, 2), False),  # half of each node
    ],
)
def test_nccl_times_hold_for_groups_that_share_no_port(group: Group, *, known: bool) -> None:
    machine = apply_axes(load_machine("preset:dgx-a100", Path()), {"nodes": 4})
    placement = Placement.block(machine.topology, 8, 32)
    times = CallTimes(placement, machine.calibration, "cuda", NcclChoice())
    assert (times.nccl(group) is not None) is known
