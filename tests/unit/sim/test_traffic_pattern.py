"""How messages meet, and that a calibration's classes of their own are charged for it."""

from __future__ import annotations

import numpy as np
import pytest

from tuner import algorithms
from tuner.core.calibration import Calibration, PathCost
from tuner.core.collective import Collective
from tuner.sim import simulate
from tuner.sim.traffic_pattern import BIDIRECTIONAL, CIRCULAR, UNIDIRECTIONAL, classify_transfers
from tuner.topology import Placement
from tuner.topology.readers.yaml_topology import topology_from_yaml

PLACEMENT = Placement.block(
    topology_from_yaml({"name": "flat", "nodes": 8, "latency": "0us", "bandwidth": "1GB/s"}), 1
)
PLAIN = {("network", "host"): PathCost.from_alpha_beta(0.0, 1e-8)}
APART = Calibration(
    "any",
    "openmpi",
    {
        **PLAIN,
        ("exchange", "host"): PathCost.from_alpha_beta(0.0, 2e-8),
        ("ring", "host"): PathCost.from_alpha_beta(0.0, 1.5e-8),
    },
)


@pytest.mark.parametrize(
    ("p", "src", "dst", "expected"),
    [
        (6, [0, 1, 2, 3], [1, 0, 3, 2], [BIDIRECTIONAL] * 4),
        (6, [0, 1], [1, 0], [UNIDIRECTIONAL] * 2),  # no other pair
        (3, [0, 1], [1, 0], [BIDIRECTIONAL] * 2),
        (2, [0, 1], [1, 0], [UNIDIRECTIONAL] * 2),
        (6, [0, 1, 2], [1, 2, 0], [CIRCULAR] * 3),
        (6, [0, 1, 2], [1, 2, 3], [UNIDIRECTIONAL] * 3),
        (6, [0, 0, 1], [1, 2, 3], [UNIDIRECTIONAL] * 3),
        (6, [0, 1, 2, 3, 4], [1, 0, 3, 2, 5], [BIDIRECTIONAL] * 4 + [UNIDIRECTIONAL]),
        (
            6,
            [0, 1, 2, 0],
            [1, 2, 0, 0],
            [CIRCULAR] * 3 + [UNIDIRECTIONAL],
        ),  # a local row at the end
    ],
)
def test_manners(p: int, src: list[int], dst: list[int], expected: list[int]) -> None:
    rows = classify_transfers(np.array(src, np.int32), np.array(dst, np.int32), np.arange(p))
    assert rows.tolist() == expected


@pytest.mark.parametrize(
    ("src", "dst", "expected"),
    [
        (
            [0, 1, 2, 3],
            [1, 2, 3, 0],
            [UNIDIRECTIONAL] * 4,
        ),  # who sends to the other node hears from its own
        ([0, 1, 2, 3], [1, 0, 3, 2], [UNIDIRECTIONAL] * 4),
        ([0, 1, 2, 3], [2, 3, 0, 1], [BIDIRECTIONAL] * 4),
        ([0, 1, 2, 3], [1, 2, 0, 3], [UNIDIRECTIONAL] * 4),
    ],
)
def test_only_messages_between_nodes_meet(
    src: list[int], dst: list[int], expected: list[int]
) -> None:
    rows = classify_transfers(
        np.array(src, np.int32), np.array(dst, np.int32), np.array([0, 0, 1, 1])
    )
    assert rows.tolist() == expected


def test_the_third_of_a_pair_is_a_node() -> None:
    src, dst = np.array([1, 2], np.int32), np.array([2, 1], np.int32)
    assert classify_transfers(src, dst, np.array([0, 0, 1])).tolist() == [UNIDIRECTIONAL] * 2
    assert (
        classify_transfers(src, dst, np.array([0, 0, 1, 1, 2, 2])).tolist() == [BIDIRECTIONAL] * 2
    )


def test_a_circle_is_one_of_nodes() -> None:
    """Of each two ranks the first hears from another node, and the second sends to one."""
    src = np.arange(6, dtype=np.int32)
    rows = classify_transfers(src, (src + 1) % 6, np.array([0, 0, 1, 1, 2, 2]))
    assert rows.tolist() == [UNIDIRECTIONAL, CIRCULAR] * 3


@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize(
    ("algorithm", "messages"),
    [
        ("recursive_doubling", 1 + 2 + 2),  # the first exchange finds all ranks in step
        ("ring", (1 + 13 * 1.5) / 8),
        ("linear", 14.0),  # nobody sends while it receives
    ],
)
def test_exchanges_after_the_first_cost_what_their_class_says(
    algorithm: str, messages: float, engine: str
) -> None:
    made = algorithms.build(Collective.ALLREDUCE, algorithm, 8)
    seconds = simulate(made, PLACEMENT, APART, 80_000, engine=engine)
    assert seconds == pytest.approx(messages * 80_000 * 1e-8)


@pytest.mark.parametrize("engine", ["fast", "events"])
def test_without_classes_of_their_own_they_cost_what_messages_cost(engine: str) -> None:
    made = algorithms.build(Collective.ALLREDUCE, "recursive_doubling", 8)
    plain = Calibration("any", "openmpi", PLAIN)
    assert simulate(made, PLACEMENT, plain, 80_000, engine=engine) == pytest.approx(3 * 8e-4)


def test_inside_a_node_nothing_changes() -> None:
    together = Placement.block(PLACEMENT.topology, 8, 8)
    made = algorithms.build(Collective.ALLREDUCE, "recursive_doubling", 8)
    inside = {
        ("node", "host"): PathCost.from_alpha_beta(0.0, 1e-9),
        ("node_oversubscribed", "host"): PathCost.from_alpha_beta(0.0, 1e-9),
    }
    alike = Calibration("any", "openmpi", inside)
    apart = Calibration("any", "openmpi", {**APART.paths, **inside})
    assert simulate(made, together, apart, 80_000) == simulate(made, together, alike, 80_000)
