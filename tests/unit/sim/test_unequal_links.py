"""SimGrid's times of calls where links differ and of all-to-alls where not, and times by hand.

SimGrid's times in `unequal_links.csv` are of `python -m tests.bench.unequal_links 60 --write FILE`
with SimGrid 3.32, those in `exchanges.csv` of 40 cases with `--exchanges`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import exchanges, unequal_topologies
from tests.support.unequal_topologies import Case, shared_ports
from tuner import algorithms
from tuner.core.collective import Collective
from tuner.sim import simulate
from tuner.topology import Link, Node, Placement, Topology
from tuner.topology.readers.probed_topology import nominal_calibration


def recorded(name: str) -> Iterator[tuple[int, str, float]]:
    """Yield seed, name and SimGrid's seconds of the cases of a file."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield int(row["seed"]), row["case"], float(row["seconds"])


def own_seconds(case: Case, engine: str) -> float:
    costs = shared_ports(case)
    return simulate(case.schedule, case.placement, costs, case.nbytes, engine=engine)


@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize(("seed", "name", "seconds"), [*recorded("unequal_links.csv")])
def test_calls_on_unequal_links(seed: int, name: str, seconds: float, engine: str) -> None:
    case = unequal_topologies.case_of(seed)
    assert case.name == name
    assert own_seconds(case, engine) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("engine", ["fast", "events"])
@pytest.mark.parametrize(("seed", "name", "seconds"), [*recorded("exchanges.csv")])
def test_exchanges_on_equal_links(seed: int, name: str, seconds: float, engine: str) -> None:
    case = exchanges.case_of(seed)
    assert case.name == name
    assert own_seconds(case, engine) == pytest.approx(seconds, rel=1e-9)


def star(*rates: float) -> Placement:
    """One rank on each of several nodes round one switch, with links of these rates."""
    links = [
        Link(*ends, rate, 1e-6)
        for number, rate in enumerate(rates)
        for ends in ((f"n{number}", "switch"), ("switch", f"n{number}"))
    ]
    nodes = tuple(Node(f"n{number}") for number in range(len(rates)))
    return Placement.block(Topology("star", nodes, ("switch",), tuple(links)), 1)


@pytest.mark.parametrize("engine", ["fast", "events"])
def test_a_fast_root_serves_slow_leaves_side_by_side(engine: str) -> None:
    """Ten messages of 3 GB/s are all that a port of 30 GB/s carries at a time."""
    placement, nbytes = star(30e9, *[3e9] * 10), 3_150_000
    costs = nominal_calibration(placement.topology)

    def seconds(name: str) -> float:
        made = algorithms.build(Collective.BCAST, name, placement.p, nbytes=nbytes)
        return simulate(made, placement, costs, nbytes, engine=engine)

    linear = seconds("linear")
    assert linear == pytest.approx(2e-6 + nbytes / 3e9)
    others = ("binomial", "scatter_allgather", "scatter_allgather_ring", "pipeline", "knomial")
    assert linear < min(map(seconds, others))


@pytest.mark.parametrize("engine", ["fast", "events"])
def test_equal_ports_serve_one_message_at_a_time(engine: str) -> None:
    placement, nbytes = star(*[10e9] * 4), 1_000_000
    made = algorithms.build(Collective.BCAST, "linear", 4, nbytes=nbytes)
    costs = nominal_calibration(placement.topology)
    found = simulate(made, placement, costs, nbytes, engine=engine)
    assert found == pytest.approx(2e-6 + 3 * nbytes / 10e9)


@pytest.mark.parametrize("engine", ["fast", "events"])
def test_narrow_trunks_do_not_keep_ports_busy(engine: str) -> None:
    """Eight racks of one node each: every trunk carries one of the messages of the root."""
    nodes = tuple(Node(f"n{number}") for number in range(9))
    links = []
    for number in range(9):
        rack = f"rack{number}"
        for ends in ((f"n{number}", rack), (rack, f"n{number}")):
            links.append(Link(*ends, 25e9, 1e-6))
        for ends in ((rack, "spine"), ("spine", rack)):
            links.append(Link(*ends, 25e9 if number == 0 else 2.5e9, 1e-6))
    switches = ("spine", *(f"rack{number}" for number in range(9)))
    placement = Placement.block(Topology("racks", nodes, switches, tuple(links)), 1)
    nbytes = 10_000_000
    made = algorithms.build(Collective.BCAST, "linear", 9, nbytes=nbytes)
    costs = nominal_calibration(placement.topology)
    found = simulate(made, placement, costs, nbytes, engine=engine)
    assert found == pytest.approx(4e-6 + nbytes / 2.5e9)
