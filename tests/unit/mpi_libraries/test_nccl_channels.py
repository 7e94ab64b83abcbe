"""Rings inside a node: real ones, as many as there is room for, and none where there are none."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tuner.base.errors import InputError
from tuner.machines import preset
from tuner.mpi_libraries.nccl import Rings, find_rings
from tuner.mpi_libraries.nccl.channels import (
    MAX_SEARCH_STEPS,
    compute_capability,
    cpu_vendor,
    nvlink_brick_bandwidth,
    pack_rings,
)
from tuner.topology import Device, Link, NodeTopology


def inside(name: str) -> NodeTopology:
    interior = preset(name, 1).topology.nodes[0].node_topology
    assert interior is not None
    return interior


def of(name: str, gpus: int) -> Rings:
    return find_rings(inside(name), [f"gpu{i}" for i in range(gpus)])


def gigabytes(name: str, gpus: int) -> float:
    return of(name, gpus).total_bandwidth / 1e9


def test_five_gpus_of_a_dgx_1p_collapse_for_want_of_a_ring() -> None:
    """Tartan measured 17.3, 34.6, 52.1, 5.6, 34.7, 34.7 and 62.2 GB/s on 2 to 8 GPUs."""
    measured = {2: 17.3, 3: 34.6, 4: 52.1, 5: 5.6, 6: 34.7, 8: 62.2}
    found = {gpus: gigabytes("dgx-1p", gpus) for gpus in range(2, 9)}
    for gpus, rate in measured.items():
        assert found[gpus] == pytest.approx(rate, rel=0.17)
    assert found[7] >= found[6]  # measured equal: NCCL's own search leaves two rings out
    assert not of("dgx-1p", 5).on_nvlink
    assert max(found, key=lambda gpus: found[gpus]) == 8


def test_rings_share_no_brick() -> None:
    for name, gpus in (("dgx-1p", 4), ("dgx-1p", 7), ("dgx-1p", 8), ("dgx-1v", 8)):
        found, interior = of(name, gpus), inside(name)
        taken = Counter[tuple[str, str]]()
        for order in found.gpu_orders:
            assert sorted(order) == list(range(gpus))
            for a, b in pairwise((*order, order[0])):
                taken[f"gpu{a}", f"gpu{b}"] += 1
        bricks = {(link.source, link.target): link.count for link in interior.links}
        rate = {"dgx-1p": 18e9, "dgx-1v": 20e9}[name]
        for pair, number in taken.items():
            assert number * found.bandwidth <= bricks[pair] * rate * (1 + 1e-9)


def test_v100_bricks_all_serve() -> None:
    """Six bricks per GPU: six rings of 20 GB/s."""
    assert (len(of("dgx-1v", 8).gpu_orders), gigabytes("dgx-1v", 8)) == (6, 120)


def test_an_nvswitch_needs_no_search() -> None:
    assert gigabytes("dgx-2", 16) == pytest.approx(120)
    assert gigabytes("dgx-a100", 5) == pytest.approx(240)
    assert gigabytes("dgx-h100", 8) == pytest.approx(370.8)


def test_without_nvlink_the_worst_hop_counts() -> None:
    """Both directions of a pair cross the socket link: K80s of an Intel node."""
    kesch = of("kesch", 16)
    assert not kesch.on_nvlink
    assert len(kesch.gpu_orders) == 1
    assert 1 < kesch.total_bandwidth / 1e9 < 12


def test_packing_finds_what_exists_and_only_that() -> None:
    complete = np.ones((4, 4), dtype=int) - np.eye(4, dtype=int)
    assert len(pack_rings(complete)) == 2  # of the three that degrees allow (Tillson)
    assert len(pack_rings(2 * complete)) == 6
    path = np.zeros((4, 4), dtype=int)
    path[[0, 1, 2], [1, 2, 3]] = 1
    assert pack_rings(path) == ()
    assert len(pack_rings(np.ones((6, 6), dtype=int) - np.eye(6, dtype=int))) >= 4


def test_a_search_without_end_ends() -> None:
    """Sixteen GPUs, each joined to all others: far more rings than can be looked at."""
    complete = np.ones((16, 16), dtype=int) - np.eye(16, dtype=int)
    found = pack_rings(complete)
    assert 1 <= len(found) <= 15
    assert MAX_SEARCH_STEPS <= 1_000_000


def test_products() -> None:
    def node(gpu: str, cpu: str) -> NodeTopology:
        cables = (Link("g", "c", 1e9, 0.0, "pcie"), Link("c", "g", 1e9, 0.0, "pcie"))
        return NodeTopology((Device("g", "gpu", gpu), Device("c", "cpu", cpu)), cables)

    for gpu, capability in (("Tesla V100-SXM2-16GB", 70), ("sm80", 80), ("GB200", 100)):
        assert compute_capability(node(gpu, "")) == capability
    for cpu, maker in (("AMD EPYC 7742", "amd"), ("POWER9", "power"), ("Grace", "arm")):
        assert cpu_vendor(node("A100", cpu)) == maker
    assert cpu_vendor(node("A100", "Xeon")) == "intel"
    assert [
        nvlink_brick_bandwidth(node(gpu, "")) for gpu in ("P100", "V100", "sm86", "H100", "B200")
    ] == [18e9, 20e9, 12e9, 20.6e9, 40.1e9]
    with pytest.raises(InputError, match="'Quadro' is none of K80"):
        compute_capability(node("Quadro", ""))


def test_bad_requests() -> None:
    for gpus in (["gpu0"], ["gpu0", "gpu0"], ["gpu0", "gpu99"]):
        with pytest.raises(InputError, match="two or more different GPUs of the node"):
            find_rings(inside("dgx-1p"), gpus)
