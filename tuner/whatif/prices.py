"""Prices of the machines of a study, and which machine gives the most speed for the money.

    cost:
      node: 280000
      nic: {400Gb/s: 1400, 800Gb/s: 2400}   # by the values of `bandwidth`
      switch: 35000
      cable: 300

A part has one price, or one for each value of the axis that changes it: `bandwidth` for NICs and
cables, `uplink_bandwidth` for switches, `gpu` for GPUs. The currency is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.machines import Machine
from tuner.topology import GPU, Topology
from tuner.whatif.axes import AXES, AXIS_FORMATTERS, AxisValue, GridPoint, line_rate_efficiency
from tuner.whatif.values import parse_value

AXIS_OF_PART: Mapping[str, str] = {  # the axis by whose values a part's price may differ
    "node": "",
    "gpu": "gpu",
    "nic": "bandwidth",
    "switch": "uplink_bandwidth",
    "cable": "bandwidth",
}
MAX_PRICE = 1e12
Price = float | Mapping[AxisValue, float]


def parse_prices(
    entry: Mapping[str, Any], axes: Mapping[str, Sequence[AxisValue]], machine: Machine
) -> dict[str, Price]:
    """Return the prices of a study's key `cost` by part; raise InputError for invalid ones."""
    efficiency = line_rate_efficiency(machine)
    return {
        part: _parse_price(part, entry[part], axes, efficiency)
        for part in AXIS_OF_PART
        if part in entry
    }


def _parse_price(
    part: str, entry: Any, axes: Mapping[str, Sequence[AxisValue]], efficiency: float
) -> Price:
    if not isinstance(entry, dict):
        return _parse_number(f"cost: {part}", entry)
    axis = AXIS_OF_PART[part]
    if axis not in axes:
        of = f"; for several, vary {axis}" if axis else ""
        raise InputError(f"cost: {part} must be one price{of}")
    prices: dict[AxisValue, float] = {}
    for value, price in entry.items():
        what = f"cost: {part}: {value}"
        at = parse_value(f"cost: {part}", axis, value, efficiency)
        if at in prices:
            raise InputError(f"{what} is there twice: give one price for each value of {axis}")
        prices[at] = _parse_number(what, price)
    for value in axes[axis]:
        if value not in prices:
            shown = AXIS_FORMATTERS[axis](value)
            raise InputError(f"cost: {part} lacks a price for {axis} {shown}")
    return prices


def _parse_number(what: str, entry: Any) -> float:
    good = isinstance(entry, int | float) and not isinstance(entry, bool)
    if not good or not 0 <= entry <= MAX_PRICE:
        raise InputError(
            f"{what} must be a number from 0 to {MAX_PRICE:g}, not {shortened_repr(entry)}"
        )
    return float(entry)


def missing_prices_warning(prices: Mapping[str, Price]) -> str:
    """Return a warning if some of the parts have prices and others not, "" otherwise."""
    missing = [part for part in AXIS_OF_PART if part not in prices]
    if not prices or not missing:
        return ""
    return f"caution: without a price these count nothing: {', '.join(missing)}"


def prices_record(prices: Mapping[str, Price]) -> dict[str, Any]:
    """Return prices as a study's key `cost` has them."""
    return {
        part: {AXES[AXIS_OF_PART[part]].encode(value): own for value, own in price.items()}
        if isinstance(price, Mapping)
        else price
        for part, price in prices.items()
    }


def machine_price(prices: Mapping[str, Price], number: Mapping[str, int], at: GridPoint) -> float:
    """Return the price of the machine at one point of the grid, given how many parts it has."""
    return sum(
        number[part] * (price[at[AXIS_OF_PART[part]]] if isinstance(price, Mapping) else price)
        for part, price in prices.items()
    )


def count_parts(topology: Topology) -> dict[str, int]:
    """Return how many of each part a machine needs.

    Spine switches and their cables count only where equivalent ports of nodes go to several leaf
    switches. They are those of the model, in which one may stand for many.
    """
    gpus = sum(
        len(inside.device_indices(GPU)) * len(nodes) for inside, nodes in topology.node_topologies
    )
    needed = _needed_vertices(topology)
    links = [link for link in topology.links if {link.source, link.target} <= needed]
    return {
        "node": len(topology.nodes),
        "gpu": gpus,
        "nic": len(topology.ports),
        "switch": len(needed) - len(topology.ports),
        "cable": sum(link.count for link in links) // 2,
    }


def _needed_vertices(topology: Topology) -> set[str]:
    """Return the ports and the switches that messages between equal ports of nodes may cross."""
    target = {link.source: link.target for link in topology.links}  # of a port its one switch
    rails = zip_longest(*(node.ports for node in topology.nodes))
    joining = [{target[port] for port in rail if port in target} for rail in rails]
    if all(len(switches) == 1 for switches in joining):
        return {*topology.ports, *(switch for switches in joining for switch in switches)}
    return {*topology.ports, *topology.switches}
