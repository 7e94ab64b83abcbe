"""Segments are full ones and a rest, as libraries cut messages, in engines and runtime alike."""

from __future__ import annotations

import numpy as np
import pytest

from tuner import algorithms
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.interpret import interpret
from tuner.core.schedule import Schedule
from tuner.runtime.rank_schedule import RankScheduleTemplate
from tuner.sim import simulate
from tuner.topology import Link, Node, Placement, Topology
from tuner.topology.readers.probed_topology import nominal_calibration

LATENCY = 2e-6
RATE = 1e9
ENGINES = ["fast", "events"]


def flat(p: int) -> tuple[Placement, Calibration]:
    nodes = tuple(Node(f"n{number}") for number in range(p))
    links = [
        Link(*ends, RATE, LATENCY / 2)
        for node in nodes
        for ends in ((node.name, "switch"), ("switch", node.name))
    ]
    topology = Topology("flat", nodes, ("switch",), tuple(links))
    return Placement.block(topology, 1), nominal_calibration(topology)


def pipeline(p: int, nbytes: int, segment: int) -> Schedule:
    params = {"segment": segment}
    return algorithms.build(Collective.BCAST, "pipeline", p, nbytes=nbytes, params=params)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("p", "nbytes", "segment"), [(17, 65_537, 65_536), (5, 1000, 300)])
def test_the_last_segment_of_a_pipeline_is_the_rest(
    p: int, nbytes: int, segment: int, engine: str
) -> None:
    """Full segments follow one another through the chain, and the rest follows the last of them."""
    full, rest = divmod(nbytes, segment)
    hops = p - 1
    step = LATENCY + segment / RATE
    expected = (hops + full - 1) * step + LATENCY + rest / RATE
    found = simulate(pipeline(p, nbytes, segment), *flat(p), nbytes, engine=engine)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("itemsize", [1, 8])
@pytest.mark.parametrize("name", ["pipeline", "binary", "chain", "knomial"])
def test_both_engines_cut_alike(name: str, itemsize: int) -> None:
    nbytes, p = 100_008, 9
    made = algorithms.build(Collective.BCAST, name, p, nbytes=nbytes, params={"segment": 16_384})
    times = [simulate(made, *flat(p), nbytes, itemsize, engine=engine) for engine in ENGINES]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_ranks_send_what_is_simulated() -> None:
    made = pipeline(3, 80_008, 32_768)
    part = RankScheduleTemplate.from_schedule(made, 0).with_count(10_001, 8)
    sent = [row.elements for rows in part.rounds for row in rows if row.src == 0]
    assert sent == [4096, 4096, 1809]
    assert np.diff(made.offsets(10_001, 8)).tolist() == sent


def test_a_message_is_whole_in_the_end() -> None:
    made = pipeline(5, 1000, 300)
    before = [np.full(1000, rank) for rank in range(5)]
    after = interpret(made, before)
    assert all((buffer == 0).all() for buffer in after)


def test_without_a_rest_all_are_alike() -> None:
    made = pipeline(4, 1 << 20, 1 << 17)
    assert set(np.diff(made.offsets(1 << 20)).tolist()) == {1 << 17}
    shares = algorithms.build(
        Collective.ALLREDUCE, "segmented_ring", 4, nbytes=1199, params={"segment": 60}
    )
    assert shares.n_chunks == 20 == -(-1199 // 60)  # by chance as many as segments of the whole
    assert pipeline(4, 0, 1 << 17).offsets(7, 0).tolist() == [0, 7]  # elements without bytes
    assert shares.segment_bytes == 0  # the chunks are segments of shares
