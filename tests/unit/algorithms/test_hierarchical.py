"""Two-level algorithms: right for every grouping, few messages between nodes, levels overlap."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import numpy as np
import pytest

from tests.support.calls import inputs, matrix_product, outputs
from tuner import algorithms
from tuner.core.calibration import Calibration, Estimate, ReductionCost
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import Schedule
from tuner.core.verify import verify
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
ALPHA = 1e-6
BETA = 1e-9
GAMMA = 0.5e-9


def build(
    collective: Collective, p: int, group: int, segment: int = 0, root: int = 0, nbytes: int = 1000
) -> Schedule:
    params = {"group": group, "segment": segment}
    return algorithms.build(collective, "hierarchical", p, root=root, nbytes=nbytes, params=params)


@pytest.mark.representative("2-0", "3-300", "6-0", "8-300")
@pytest.mark.parametrize("segment", [0, 300])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 6, 8, 9, 12, 17, 24])
def test_every_grouping_is_right(p: int, segment: int) -> None:
    for group in range(1, p + 2):
        assert verify(build(ALLREDUCE, p, group, segment)).order_preserving
        for root in range(p):
            verify(build(BCAST, p, group, segment, root))


@pytest.mark.parametrize(("p", "group"), [(7, 3), (8, 4), (10, 4)])
def test_what_it_computes(p: int, group: int) -> None:
    for made in (build(BCAST, p, group, 300, p - 2), build(ALLREDUCE, p, group, 300)):
        buffers = inputs(p, 3 * p + 2)
        after = interpret(made, buffers, matrix_product)
        for rank, (share, value) in enumerate(outputs(made, buffers)):
            np.testing.assert_array_equal(after[rank][share], value)


@pytest.mark.parametrize("segment", [0, 300])
@pytest.mark.parametrize("root", [0, 5, 13])
def test_only_leaders_talk_to_other_nodes(root: int, segment: int) -> None:
    """16 ranks on nodes of 4: every node but the root's gets each segment once from outside."""
    made = build(BCAST, 16, 4, segment, root)
    crossing = [
        (src, dst)
        for r in made.rounds()
        for src, dst in zip(r.src.tolist(), r.dst.tolist(), strict=True)
        if src // 4 != dst // 4
    ]
    leaders = {0, 4, 8, 12} - {root // 4 * 4} | {root}
    assert {rank for pair in crossing for rank in pair} == leaders
    assert len(crossing) == 3 * made.n_chunks


def machine(nodes: int, ppn: int) -> tuple[Placement, Calibration]:
    """The machine of the formulas: messages inside a node cost what others cost."""
    local = {"latency": "1us", "bandwidth": "1GB/s"}
    record = {"name": "m", "nodes": nodes, "latency": "1us", "bandwidth": "1GB/s", "cores": ppn}
    placement = Placement.block(topology_from_yaml({**record, "local": local}), ppn)
    reduction = {"host": ReductionCost(Estimate.exact(0.0), Estimate.exact(GAMMA))}
    return placement, replace(nominal_calibration(placement.topology), reduction=reduction)


@pytest.mark.parametrize(("nodes", "ppn"), [(4, 4), (8, 2), (2, 8), (8, 8)])
def test_closed_forms(nodes: int, ppn: int) -> None:
    m, up, inside = 8000, log2(nodes), log2(ppn)
    made = build(BCAST, nodes * ppn, ppn)
    seconds = simulate(made, *machine(nodes, ppn), m)
    assert seconds == pytest.approx((up + inside) * (ALPHA + m * BETA))
    made = build(ALLREDUCE, nodes * ppn, ppn)
    folds = inside * (inside + 1) / 2 + up
    expected = (2 * inside + up) * (ALPHA + m * BETA) + folds * m * GAMMA
    assert simulate(made, *machine(nodes, ppn), m) == pytest.approx(expected)


@pytest.mark.parametrize(("nodes", "ppn"), [(4, 4), (5, 3), (2, 8), (9, 7), (3, 1)])
@pytest.mark.parametrize("number", [2, 10, 50])
def test_bound_of_the_segmented_broadcast(nodes: int, ppn: int, number: int) -> None:
    m = 8000 * number
    made = build(BCAST, nodes * ppn, ppn, 8000, nbytes=m)
    inside = ceil(log2(ppn))
    rounds = nodes + inside + number - 2
    bound = rounds * (ALPHA + (1 + inside) * 8000 * BETA)
    assert simulate(made, *machine(nodes, ppn), m) <= bound


@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE])
def test_levels_overlap_when_segmented(collective: Collective) -> None:
    """Sixteen segments one after the other would take sixteen times as long as one."""
    placement, costs = machine(4, 4)
    one = simulate(build(collective, 16, 4), placement, costs, 100_000)
    many = simulate(
        build(collective, 16, 4, 100_000, nbytes=1_600_000), placement, costs, 1_600_000
    )
    assert many < 0.8 * 16 * one
