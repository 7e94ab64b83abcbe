"""Calls that are prepared once take what each takes by itself."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import calibrations, calls, memories, placements, tangles
from tests.support.properties import examples
from tuner import algorithms, mpi_libraries
from tuner.base.errors import MissingCostError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.schedules import schedule_of
from tuner.sim import simulate, simulate_or_nan, simulation_cache
from tuner.sim.simulation_cache import SimulationCache
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

pytestmark = pytest.mark.slow

OPENMPI = "openmpi 5.0.11"
SIZES = (8, 40_000, 500_000, 2 << 20, 4 << 20)
FLAT = topology_from_yaml(
    {
        "name": "flat",
        "nodes": 8,
        "latency": "1us",
        "bandwidth": "12.5GB/s",
        "local": {"latency": "300ns", "bandwidth": "10GB/s"},
    }
)
COSTS = nominal_calibration(FLAT)


@pytest.mark.parametrize("collective", [Collective.BCAST, Collective.ALLREDUCE])
def test_every_algorithm_on_two_placements_in_any_order(collective: Collective) -> None:
    there = [Placement.block(FLAT, ppn, 8) for ppn in (1, 2)]
    ours, library = SimulationCache(COSTS), mpi_libraries.library_module(OPENMPI)
    choices = [
        *library.candidates(collective, 8, SIZES[-1]),
        AlgorithmChoice("pipeline", {"segment": 1 << 20}),
    ]
    compared = 0
    for choice, nbytes, placement in product(choices, SIZES, there):
        if choice.algorithm == "pipeline" and collective is not Collective.BCAST:
            continue
        made = schedule_of(OPENMPI, collective, choice, 8, nbytes)
        if made is not None:
            seconds = ours.seconds(made, placement, nbytes, HOST)
            assert seconds == simulate(made, placement, COSTS, nbytes)
            compared += 1
    assert compared > 40


@settings(max_examples=examples(100))
@given(st.data())
def test_any_call_on_any_machine(data: st.DataObject) -> None:
    placement = data.draw(placements(most=12))
    costs, memory = data.draw(calibrations()), data.draw(memories(placement))
    asked = data.draw(st.lists(calls(placement.p) | tangles(placement.p), min_size=2, max_size=4))
    ours = SimulationCache(costs)
    for made, nbytes in (*asked, *asked):
        for size in (nbytes, nbytes // 2):
            found = ours.seconds(made, placement, size, memory)
            try:
                assert found == simulate(made, placement, costs, size, memory=memory)
            except MissingCostError:
                assert math.isnan(found)


def test_sizes_are_prepared_together_and_large_calls_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, placement = SimulationCache(COSTS), Placement.block(FLAT, 1)
    for nbytes in SIZES[:3]:
        ours.seconds(algorithms.build(Collective.ALLREDUCE, "ring", 8), placement, nbytes, HOST)
    known = ours._cached.cache_info()
    assert (known.misses, known.hits) == (1, 2)
    monkeypatch.setattr(simulation_cache, "MAX_CACHED_TRANSFERS", 0)
    ours.seconds(algorithms.build(Collective.ALLREDUCE, "ring", 8), placement, 4096, HOST)
    assert ours._cached.cache_info() == known


def test_memory_that_nobody_knows_has_no_seconds() -> None:
    placement = Placement.block(FLAT, 1)
    made = algorithms.build(Collective.ALLREDUCE, "ring", 8)
    assert math.isnan(simulate_or_nan(made, placement, COSTS, 4096, CUDA))
