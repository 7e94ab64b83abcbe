"""Where ranks and their buffers lie, and what messages between them cross."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.topologies import both, cluster, interior
from tuner.base.errors import InputError
from tuner.topology import (
    CPU,
    CUDA,
    HOST,
    Device,
    NodeTopology,
    Paths,
    Placement,
    Topology,
    find_paths,
    graph,
)
from tuner.topology.graph import RouteGraph


def crossed(placement: Placement, a: int, b: int, **way: bool) -> list[str]:
    """The links from rank a to rank b, in device memory."""
    return _names(placement, find_paths(placement, CUDA, np.array([a]), np.array([b]), **way))


def _names(placement: Placement, found: Paths, row: int = 0) -> list[str]:
    topology = placement.topology
    links = [(link.source, link.target) for link in topology.links]
    for node in topology.nodes:
        if node.node_topology is not None:
            links += [(link.source, link.target) for link in node.node_topology.links]
    return [f"{a}>{b}" for a, b in (links[n] for n in found.links[row] if n >= 0)]


def test_ranks_in_a_row_or_dealt_out() -> None:
    pair = cluster(None, None, None)
    assert Placement.block(pair, 2).node_of.tolist() == [0, 0, 1, 1, 2, 2]
    assert Placement.block(pair, 2, 3).node_of.tolist() == [0, 0, 1]
    dealt = Placement.cyclic(pair, 2)
    assert dealt.node_of.tolist() == [0, 1, 2, 0, 1, 2]
    assert dealt.local_ranks.tolist() == [0, 0, 0, 1, 1, 1]
    assert Placement.cyclic(pair, 2, 3).node_of.tolist() == [0, 1, 0]
    with pytest.raises(InputError, match="7 ranks do not fit"):
        Placement.cyclic(pair, 2, 7)


def test_gpus_and_sockets_are_dealt_to_local_ranks() -> None:
    """Local rank i is on GPU i mod 2; its host memory is that of the CPU."""
    placement = Placement.block(cluster(interior(1)), 5)
    assert placement.rank_devices(CUDA).device.tolist() == [2, 3, 2, 3, 2]
    assert placement.rank_devices(HOST).device.tolist() == [0] * 5
    sockets = NodeTopology((Device("a", CPU), Device("b", CPU)), both("a", "b", "socket"))
    filled = Placement.block(cluster(sockets), 4).rank_devices(HOST)
    assert filled.device.tolist() == [0, 0, 1, 1]


def test_memory_must_be_there() -> None:
    placement = Placement.block(cluster(None), 1)
    with pytest.raises(InputError, match="node n0 of topology random has no GPU: price host"):
        placement.rank_devices(CUDA)
    with pytest.raises(InputError, match="memory is host or cuda, not 'tape'"):
        placement.rank_devices("tape")


@pytest.mark.parametrize("deal", [Placement.block, Placement.cyclic])
def test_equally_near_nics_are_dealt_out(deal: Callable[[Topology, int], Placement]) -> None:
    """Four ranks on one GPU, near four NICs: every rank has its own."""
    placement = deal(cluster(*[interior(4, gpus=1)] * 3), 4)
    nic = placement.rank_devices(CUDA).nic
    for node in range(3):
        mine = np.flatnonzero(placement.node_of == node)
        assert (nic[mine] - 4 * node).tolist() == [0, 1, 2, 3]


def test_a_route_through_a_node() -> None:
    placement = Placement.block(cluster(interior(2), interior(2)), 2)
    assert crossed(placement, 0, 2) == [
        "gpu0>pcie",
        "pcie>nic0",
        "n0.nic0>s0",
        "s0>n1.nic0",
        "nic0>pcie",
        "pcie>gpu0",
    ]
    assert crossed(placement, 0, 1) == ["gpu0>pcie", "pcie>gpu1"]


def test_staged_paths_go_through_host_memory() -> None:
    """Up to the CPU and back over the same PCIe links, which carry every byte twice."""
    placement = Placement.block(cluster(interior(1), interior(1)), 2)
    found = find_paths(placement, CUDA, np.array([0, 0]), np.array([1, 2]), staged=True)
    assert _names(placement, found) == ["gpu0>pcie", "pcie>cpu", "cpu>pcie", "pcie>gpu1"]
    assert _names(placement, found, 1) == [
        "gpu0>pcie",
        "pcie>cpu",
        "cpu>pcie",
        "pcie>nic0",
        "n0>s0",
        "s0>n1",
        "nic0>pcie",
        "pcie>cpu",
        "cpu>pcie",
        "pcie>gpu0",
    ]
    assert (found.load_factor[1][found.links[1] >= 0] == 1.0).all()
    assert found.latency == pytest.approx([4e-6, 10e-6])


def test_stripes_take_all_nics_in_equal_parts() -> None:
    placement = Placement.block(cluster(interior(2), interior(2)), 2)
    found = find_paths(placement, CUDA, np.array([0, 0]), np.array([2, 1]), striped=True)
    uses = dict(
        zip(_names(placement, found), found.load_factor[0][found.links[0] >= 0], strict=True)
    )
    assert uses == {
        "gpu0>pcie": 1.0,
        "pcie>nic0": 0.5,
        "n0.nic0>s0": 0.5,
        "s0>n1.nic0": 0.5,
        "nic0>pcie": 0.5,
        "pcie>gpu0": 1.0,
        "pcie>nic1": 0.5,
        "n0.nic1>s0": 0.5,
        "s0>n1.nic1": 0.5,
        "nic1>pcie": 0.5,
    }
    assert found.bandwidth.tolist() == [2e9, 1e10]
    assert found.hops.tolist() == [6, 2]
    assert _names(placement, found, 1) == ["gpu0>pcie", "pcie>gpu1"]


def test_each_pair_has_the_stripes_of_its_own_nodes() -> None:
    """Whatever other pairs there are in the call: 4 NICs to 4, but 1 to 2 and 4 to 1."""
    mixed = Placement.block(cluster(interior(4), interior(4), interior(1), interior(2)), 1)
    found = find_paths(mixed, CUDA, np.array([0, 2, 0]), np.array([1, 3, 2]), striped=True)
    assert found.bandwidth.tolist() == [4e9, 1e9, 1e9]
    assert found.load_factor.sum(axis=1).tolist() == [6.0, 6.0, 6.0]


def test_rails_that_are_not_joined() -> None:
    """A message stays on its sender's rail, and leaves the receiver's NIC there."""
    placement = Placement.block(cluster(interior(2), interior(2), rails=True), 2)
    assert crossed(placement, 0, 3) == [
        "gpu0>pcie",
        "pcie>nic0",
        "n0.nic0>s0",
        "s0>n1.nic0",
        "nic0>pcie",
        "pcie>gpu1",
    ]
    assert crossed(placement, 1, 2)[1:4] == ["pcie>nic1", "n0.nic1>s1", "s1>n1.nic1"]
    assert crossed(placement, 1, 3)[1:4] == ["pcie>nic1", "n0.nic1>s1", "s1>n1.nic1"]


@pytest.mark.parametrize("routing", ["spread", "first"])
def test_routes_are_the_same_however_many_are_found_at_a_time(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three spines over four leaves, and a leaf that is farther away."""
    names = [*(f"n{i}" for i in range(10)), *(f"l{i}" for i in range(5)), "a", "b", "c"]
    pairs = [(f"n{i}", f"l{i // 2}") for i in range(10)]
    pairs += [(f"l{i}", spine) for i in range(4) for spine in "abc"] + [("l4", "l0")]
    links = [link for pair in pairs for link in both(*pair)]
    source, target = (ends.ravel() for ends in np.mgrid[:10, :10])
    whole = RouteGraph(names, links, 10, routing).routes(source, target)
    monkeypatch.setattr(graph, "MAX_DISTANCES_AT_ONCE", 2 * len(names))
    again = RouteGraph(names, links, 10, routing).routes(source, target)
    assert (whole >= 0).sum(axis=1).max() == 5
    np.testing.assert_array_equal(np.sort(whole), np.sort(again))
