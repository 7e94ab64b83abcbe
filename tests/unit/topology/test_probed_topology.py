"""The topology of a cluster of which nothing but its calibration is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.machines.topology_files import parse_topology
from tuner.sim import simulate
from tuner.topology import MEMORY_BUS, Placement
from tuner.topology.readers import single_node_topology, single_switch_topology, topology_for

FOUR = Cluster("ares", nodes=4, cores=8, cpu="any cpu", memory=2**30)
ALPHA = 5e-5
RATE = 1e8
PATHS = {
    ("node", "host"): PathCost.from_alpha_beta(1e-6, 1e-9),
    ("network", "host"): PathCost.from_alpha_beta(ALPHA, 1 / RATE),
}
BUS: Mapping[str, Estimate] = {MEMORY_BUS: Estimate.exact(2e10)}
CALIBRATION = Calibration("ares", "openmpi 5.0.11", PATHS, capacities=BUS)


@pytest.mark.parametrize("capacities", [{}, BUS])
def test_one_node_is_its_memory_bus(capacities: Mapping[str, Estimate]) -> None:
    one = replace(CALIBRATION, capacities=capacities)
    found = single_switch_topology(replace(FOUR, nodes=1), one)
    assert found == single_node_topology(replace(FOUR, nodes=1), one)
    assert [node.name for node in found.nodes] == ["ares"]
    assert (found.nodes[0].cores, found.links) == (8, ())
    assert found.memory_bandwidth == (2e10 if capacities else math.inf)


def test_several_hosts_are_at_one_switch_at_the_rate_of_a_message() -> None:
    found = single_switch_topology(FOUR, CALIBRATION)
    assert [node.cores for node in found.nodes] == [8] * 4
    assert len(found.switches) == 1
    assert [link.capacity for link in found.links] == pytest.approx([RATE] * 8)
    ends = {(link.source, link.target) for link in found.links}
    names = {node.name for node in found.nodes}
    assert ends == {(n, found.switches[0]) for n in names} | {(found.switches[0], n) for n in names}
    assert found.memory_bandwidth == 2e10


def test_a_message_costs_there_what_was_measured_between_two_hosts() -> None:
    found, nbytes = single_switch_topology(FOUR, CALIBRATION), 10**6
    one = algorithms.build(Collective.BCAST, "linear", 2, nbytes=nbytes)
    seconds = simulate(one, Placement.block(found, 1, 2), CALIBRATION, nbytes)
    assert seconds == pytest.approx(ALPHA + nbytes / RATE)


def test_pairs_that_do_not_share_a_host_do_not_share_the_network() -> None:
    found, nbytes = single_switch_topology(FOUR, CALIBRATION), 10**6
    ring = algorithms.build(Collective.ALLGATHER, "ring", 4, nbytes=nbytes)
    seconds = simulate(ring, Placement.block(found, 1, 4), CALIBRATION, nbytes)
    assert seconds == pytest.approx(3 * (ALPHA + nbytes / 4 / RATE))


def test_messages_that_take_no_time_per_byte_are_not_slowed_by_links() -> None:
    free = {**PATHS, ("network", "host"): PathCost.from_alpha_beta(ALPHA, 0.0)}
    found = single_switch_topology(FOUR, replace(CALIBRATION, paths=free))
    assert {link.capacity for link in found.links} == {math.inf}


def test_a_calibration_that_left_the_latency_of_links_to_a_topology_needs_it() -> None:
    made = replace(CALIBRATION, provenance={"topology": "racks"})
    with pytest.raises(InputError, match="with topology racks: give the topology of its 4 hosts"):
        single_switch_topology(FOUR, made)


def test_several_hosts_without_messages_between_them_need_a_topology() -> None:
    lone = replace(CALIBRATION, paths={("node", "host"): PATHS["node", "host"]})
    with pytest.raises(InputError, match="has no messages between hosts: give the topology"):
        single_switch_topology(FOUR, lone)


def test_one_node_needs_no_messages_between_hosts_whatever_it_was_calibrated_with() -> None:
    made = replace(
        CALIBRATION,
        paths={("node", "host"): PATHS["node", "host"]},
        provenance={"topology": "racks"},
    )
    assert single_switch_topology(replace(FOUR, nodes=1), made).links == ()


@pytest.mark.parametrize(
    ("named", "words"), [("racks", "with topology racks"), ("", "without a topology")]
)
def test_a_topology_is_that_of_the_calibration(named: str, words: str) -> None:
    _, flat = parse_topology("{name: flat, nodes: 4, latency: 10us, bandwidth: 1GB/s}")
    of = {name: replace(CALIBRATION, provenance={"topology": name}) for name in (named, "flat")}
    assert topology_for(FOUR, of["flat"], flat) == flat
    assert topology_for(FOUR, CALIBRATION, flat) == flat  # of before it was told
    assert topology_for(replace(FOUR, nodes=1), of[named], flat) == flat
    with pytest.raises(InputError, match=rf"of ares was made {words}, not with flat: calibrate"):
        topology_for(FOUR, of[named], flat)
