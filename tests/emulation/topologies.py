"""Topologies of the emulated clusters that the tests bring up."""

from __future__ import annotations

import secrets

from tuner.emulation import EmulatedCluster, emulated_network
from tuner.machines.topology_files import parse_topology

FLAT = "{name: flat4, nodes: 4, latency: 200us, bandwidth: 100Mbit/s}"
RACKS = """
name: racks
nodes: [a, b, c, d]
switches: [left, right]
links:
  - {between: [a, left], latency: 100us, bandwidth: 80Mbit/s}
  - {between: [b, left], latency: 100us, bandwidth: 80Mbit/s}
  - {between: [c, right], latency: 100us, bandwidth: 80Mbit/s}
  - {between: [d, right], latency: 100us, bandwidth: 80Mbit/s}
  - {between: [left, right], latency: 300us, bandwidth: 40Mbit/s}
"""


def private_cluster(text: str) -> EmulatedCluster:
    """Return an emulated cluster of the caller alone, not brought up."""
    return EmulatedCluster(f"tl{secrets.token_hex(4)}", emulated_network(parse_topology(text)[1]))
