"""Two engines, one semantics; closed forms; the outside oracle."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import simgrid
from tests.support.machines import calibrations, calls, memories, placements, tangles
from tests.support.properties import examples
from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.schedule import Round, make_schedule
from tuner.machines import PRESETS, preset
from tuner.sim import event_engine, fast_engine, finish_times, reference_engine, simulate
from tuner.sim.critical_paths import explain
from tuner.sim.transfer_spans import TransferSpan
from tuner.sim.transfers import build_transfers
from tuner.topology import CUDA, Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.yaml_topology import topology_from_yaml

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
ENGINES = pytest.mark.parametrize("engine", ["fast", "events"])

GOLDEN = [  # rows of simgrid_pure.csv: algorithm, ranks, bytes, seconds
    ("lr", 8, 1024, 2.816128e-05),
    ("lr", 8, 1048576, 1.7481856e-04),
    ("rdb", 64, 1048576, 5.1532416e-04),
    ("rab_rdb", 64, 1048576, 1.8916608e-04),
    ("binomial_tree", 64, 1048576, 5.1532416e-04),
]


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.data())
def test_the_engines_agree(data: st.DataObject) -> None:
    """Any machine, memory, protocol, discipline and schedule; several sizes in one pass.

    Nothing is too little to be played in two parts.
    """
    placement = data.draw(placements(most=12))
    made, nbytes = data.draw(calls(placement.p) | tangles(placement.p))
    calibration, memory = data.draw(calibrations()), data.draw(memories(placement))
    sizes = [nbytes, nbytes // 3, 2 * nbytes]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fast_engine, "MAX_EVENT_ONLY_TRANSFERS", 0)
        patched.setattr(fast_engine, "RETRY_MARGIN_ROUNDS", 1)
        ours = fast_engine.finish_times(made, placement, calibration, sizes, memory=memory)
    for row, size in zip(ours, sizes, strict=True):
        played = build_transfers(made, placement, calibration, size, memory=memory)
        reference = reference_engine.finish_times(played)
        np.testing.assert_allclose(row, reference, rtol=1e-12, atol=0.0)
        np.testing.assert_allclose(
            event_engine.finish_times(played), reference, rtol=1e-12, atol=0.0
        )
    assert_spans_agree(event_engine.trace(played), reference_engine.trace(played))


def assert_spans_agree(found: Sequence[TransferSpan], reference: Sequence[TransferSpan]) -> None:
    times, expected = (np.array([astuple(span) for span in spans]) for spans in (found, reference))
    np.testing.assert_allclose(times, expected, rtol=1e-12, atol=0.0)


@pytest.mark.representative(
    "ring-dgx-1p",
    "ring-sierra",
    "rabenseifner-dgx-a100",
    "rabenseifner-piz-daint",
    "double_tree-gb200-nvl72",
    "two_level_ring-dgx-1v",
    "two_level_ring-ri2",
    "nccl_tree-dgx-h100",
    "nccl_tree-comet",
)
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(
    "algorithm", ["ring", "rabenseifner", "double_tree", "two_level_ring", "nccl_tree"]
)
def test_the_engines_agree_on_presets(name: str, algorithm: str) -> None:
    """Four nodes with four ranks each, dealt out, on buffers in device memory."""
    machine = preset(name, 4)
    placement = Placement.cyclic(machine.topology, 4)
    known = algorithms.describe(ALLREDUCE, algorithm).params
    made = algorithms.build(
        ALLREDUCE,
        algorithm,
        placement.p,
        nbytes=1 << 20,
        params={"group": 4} if "group" in known else {},
    )
    sizes = [1000, 1 << 20]
    ours = fast_engine.finish_times(made, placement, machine.calibration, sizes, memory=CUDA)
    for row, size in zip(ours, sizes, strict=True):
        played = build_transfers(made, placement, machine.calibration, size, memory=CUDA)
        np.testing.assert_allclose(row, reference_engine.finish_times(played), rtol=1e-12, atol=0.0)


@ENGINES
@pytest.mark.parametrize(("algorithm", "p", "nbytes", "seconds"), GOLDEN)
def test_golden_rows_of_the_oracle(
    algorithm: str, p: int, nbytes: int, seconds: float, engine: str
) -> None:
    assert simgrid.seconds(algorithm, p, nbytes, engine) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.representative("fast-64")
@pytest.mark.parametrize(("engine", "largest"), [("fast", 64), ("events", 16)])
def test_oracle_rows(shared: Path, engine: str, largest: int) -> None:
    """The larger rows: tests/bench/oracle.py, minutes on the event engine."""
    with (shared / "oracle" / "simgrid_pure.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["ranks"]) <= largest]
    assert len(rows) > 40
    for row in rows:
        ours = simgrid.seconds(row["algorithm"], int(row["ranks"]), int(row["bytes"]), engine)
        assert ours == pytest.approx(float(row["simulated_s"]), rel=1e-9), row


FAT_TREE = [  # rows of simgrid_fattree.csv, 64 ranks, 1 MiB: algorithm, uplinks, seconds
    ("lr", 16, 6.693120e-04),
    ("lr", 8, 6.693120e-04),
    ("rdb", 16, 5.1932416e-04),
    ("rdb", 8, 6.8709888e-04),
    ("scatter_rdb_allgather", 8, 2.600832e-04),
]


@ENGINES
@pytest.mark.parametrize(("algorithm", "uplinks", "seconds"), FAT_TREE)
def test_golden_rows_of_fat_trees(
    algorithm: str, uplinks: int, seconds: float, engine: str
) -> None:
    ours = simgrid.seconds(algorithm, 64, 1 << 20, engine, uplinks)
    assert ours == pytest.approx(seconds, rel=1e-6)  # as many digits as are written here


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "largest"), [("fast", 1024), ("events", 64)])
def test_fat_tree_rows(shared: Path, engine: str, largest: int) -> None:
    """Contention in the uplinks, by where messages go."""
    with (shared / "oracle" / "simgrid_fattree.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["ranks"]) <= largest]
    assert len(rows) >= 21
    for row in rows:
        uplinks = int(row["uplinks_per_leaf"] or 0)
        call = (row["algorithm"], int(row["ranks"]), int(row["bytes"]))
        ours = simgrid.seconds(*call, engine, uplinks)
        assert ours == pytest.approx(float(row["simulated_s"]), rel=1e-9), row


def flat(p: int, **more: object) -> Placement:
    record = {"name": "flat", "nodes": p, "latency": "1us", "bandwidth": "1GB/s", **more}
    return Placement.block(topology_from_yaml(record), 1)


def star(ppn: int, **local: str) -> Placement:
    record = {"name": "star", "nodes": 2, "latency": "1us", "bandwidth": "1GB/s", "local": local}
    return Placement.block(topology_from_yaml(record), ppn)


@ENGINES
@pytest.mark.parametrize(
    ("collective", "name", "params", "formula"),
    [
        (BCAST, "linear", {}, lambda a, b, g: a + 7 * b),
        (BCAST, "pipeline", {"segment": 1000}, lambda a, b, g: (8 + 8 - 2) * (a + b / 8)),
        (BCAST, "binomial", {}, lambda a, b, g: 3 * (a + b)),
        (BCAST, "scatter_allgather", {}, lambda a, b, g: 6 * a + 2 * 7 / 8 * b),
        (BCAST, "scatter_allgather_ring", {}, lambda a, b, g: 10 * a + 2 * 7 / 8 * b),
        (ALLREDUCE, "recursive_doubling", {}, lambda a, b, g: 3 * (a + b + g)),
        (ALLREDUCE, "ring", {}, lambda a, b, g: 14 * a + 7 / 8 * (2 * b + g)),
        (ALLREDUCE, "rabenseifner", {}, lambda a, b, g: 6 * a + 7 / 8 * (2 * b + g)),
    ],
)
def test_closed_forms(
    collective: Collective,
    name: str,
    params: dict[str, int],
    formula: Callable[[float, float, float], float],
    engine: str,
) -> None:
    """p = 8, m = 8000 bytes, alpha 1 us, 1 GB/s, gamma 0.5 ns/B."""
    reduction = {"host": ReductionCost(Estimate.exact(0.0), Estimate.exact(0.5e-9))}
    placement = flat(8)
    costs = replace(nominal_calibration(placement.topology), reduction=reduction)
    made = algorithms.build(collective, name, 8, nbytes=8000, params=params)
    expected = formula(1e-6, 8000 * 1e-9, 8000 * 0.5e-9)
    assert simulate(made, placement, costs, 8000, engine=engine) == pytest.approx(expected)


@ENGINES
def test_ranks_of_a_node_share_its_link(engine: str) -> None:
    """Two simultaneous flows of 1 MB over one 1 GB/s uplink take 2 ms; one takes 1 ms."""
    rows = Round.of([0, 1], [2, 3], 0)
    made = make_schedule(BCAST, 4, 1, [rows])
    placement = star(2, latency="0us", bandwidth="100GB/s")
    costs = nominal_calibration(placement.topology)
    times = finish_times(made, placement, costs, 1_000_000, engine=engine)
    np.testing.assert_allclose(times, 2e-3 + 1e-6)


@ENGINES
def test_memory_bus_is_shared(engine: str) -> None:
    placement = star(4, latency="0us", bandwidth="10GB/s", memory_bandwidth="10GB/s")
    made = make_schedule(BCAST, 8, 1, [Round.of([0, 1], [2, 3], 0)])
    costs = nominal_calibration(placement.topology)
    assert simulate(made, placement, costs, 10**7, engine=engine) == pytest.approx(2e-3)


@ENGINES
def test_fifo_against_shared_ports(engine: str) -> None:
    """Two messages from one port: FIFO ends them one after the other, sharing together."""
    made = make_schedule(BCAST, 3, 1, [Round.of(0, [1, 2], 0)])
    placement = flat(3)
    fifo = nominal_calibration(placement.topology)
    shared = replace(fifo, port_sharing_threshold=0.0)
    times = finish_times(made, placement, fifo, 1000, engine=engine)
    np.testing.assert_allclose(times, [3e-6, 2e-6, 3e-6])
    times = finish_times(made, placement, shared, 1000, engine=engine)
    np.testing.assert_allclose(times, [3e-6, 3e-6, 3e-6])


@ENGINES
def test_messages_queue_by_when_they_are_ready_then_by_row(engine: str) -> None:
    """Rank 3 is late for rank 0, which serves ranks 1 and 2 in the order of the rows."""
    rounds = [Round.of(3, 4, 0), Round.of([3, 1, 2], [0, 0, 0], 0)]
    made, placement = make_schedule(BCAST, 5, 1, rounds), flat(5)
    costs = nominal_calibration(placement.topology)
    times = finish_times(made, placement, costs, 1000, engine=engine)
    np.testing.assert_allclose(times, [4e-6, 2e-6, 3e-6, 4e-6, 2e-6])


@ENGINES
def test_eager_does_not_wait_but_rendezvous_does(engine: str) -> None:
    """Rank 0 sends to rank 1, which first receives from rank 2 and answers it."""
    rounds = [Round.of(2, 1, 0), Round.of(1, 2, 0), Round.of(0, 1, 0)]
    made = make_schedule(BCAST, 3, 1, rounds)
    placement = flat(3)
    waiting = nominal_calibration(placement.topology)
    path = ("2 links, 1us, 1e+09B/s", "host")
    eager = replace(
        waiting, paths={path: PathCost.from_alpha_beta(1e-6, 1e-9, eager_limit=math.inf)}
    )
    slow = finish_times(made, placement, waiting, 100, engine=engine)
    np.testing.assert_allclose(slow, [3.3e-6, 3.3e-6, 2.2e-6])
    quick = finish_times(made, placement, eager, 100, engine=engine)
    # Rank 1's port takes rank 2's message first; then rank 0 is free, whatever rank 1 does.
    np.testing.assert_allclose(quick, [0.2e-6, 1.2e-6, 2.2e-6])


@ENGINES
def test_who_waits_for_an_acknowledgement_goes_on_a_latency_later(engine: str) -> None:
    """Rank 0 sends to rank 1, then to rank 2; who passed it on at once was free 1.1 us earlier."""
    made = make_schedule(BCAST, 3, 1, [Round.of(0, 1, 0), Round.of(0, 2, 0)])
    placement = flat(3)
    path = ("2 links, 1us, 1e+09B/s", "host")
    for begin, expected in ((100.0, [4.2e-6, 1.1e-6, 3.2e-6]), (101.0, [0.2e-6, 1.1e-6, 1.2e-6])):
        cost = replace(PathCost.from_alpha_beta(1e-6, 1e-9, math.inf), sync_ack_threshold=begin)
        told = replace(nominal_calibration(placement.topology), paths={path: cost})
        times = finish_times(made, placement, told, 100, engine=engine)
        np.testing.assert_allclose(times, expected)


AHEAD = [  # ahead_limit, acknowledged_from, when ranks 0, 1 and 2 are done
    (math.inf, math.inf, [2.3e-6, 2.3e-6, 2.3e-6]),
    (math.inf, 0.0, [4.3e-6, 3.3e-6, 4.3e-6]),
    (0.0, math.inf, [2.2e-6, 3.3e-6, 3.3e-6]),
]


@ENGINES
@pytest.mark.parametrize(("ahead", "acknowledged", "expected"), AHEAD)
def test_a_message_sent_ahead_is_there_when_it_is_asked_for(
    engine: str, ahead: float, acknowledged: float, expected: list[float]
) -> None:
    """Rank 1 receives twice from rank 0, then from rank 2, who has been waiting for that."""
    made = make_schedule(BCAST, 3, 1, [Round.of(0, 1, 0), Round.of(0, 1, 0), Round.of(2, 1, 0)])
    placement = flat(3)
    path = ("2 links, 1us, 1e+09B/s", "host")
    cost = replace(
        PathCost.from_alpha_beta(1e-6, 1e-9),
        early_push_limit=ahead,
        sync_ack_threshold=acknowledged,
    )
    told = replace(nominal_calibration(placement.topology), paths={path: cost})
    times = finish_times(made, placement, told, 100, engine=engine)
    np.testing.assert_allclose(times, expected)
    run = explain(made, placement, told, 100)
    assert sum(run.components.values()) == pytest.approx(max(expected))


def test_a_schedule_that_awaits_nothing_hears_no_acknowledgement() -> None:
    made, placement = algorithms.build(BCAST, "binomial", 8), flat(8)
    path = ("2 links, 1us, 1e+09B/s", "host")
    eager = nominal_calibration(placement.topology)
    eager = replace(eager, paths={path: PathCost.from_alpha_beta(1e-6, 1e-9, math.inf)})
    told = replace(eager, paths={path: replace(eager.paths[path], sync_ack_threshold=0.0)})
    posted = replace(made, fire_and_forget=True)
    assert simulate(made, placement, told, 100) > simulate(made, placement, eager, 100)
    assert simulate(posted, placement, told, 100) == simulate(made, placement, eager, 100)


@pytest.mark.parametrize("engine", [event_engine, reference_engine])
def test_trace_has_every_transfer(engine: Any) -> None:
    placement = flat(4)
    made = algorithms.build(BCAST, "binomial", 4)
    bars = engine.trace(
        build_transfers(made, placement, nominal_calibration(placement.topology), 1000)
    )
    assert [(bar.src, bar.dst, bar.round) for bar in bars] == [(0, 1, 0), (0, 2, 1), (1, 3, 1)]
    assert [bar.arrived for bar in bars] == pytest.approx([2e-6, 4e-6, 4e-6])
    assert all(bar.arrived - bar.released == pytest.approx(1e-6) for bar in bars)


def test_nothing_to_do_takes_no_time() -> None:
    placement = flat(1)
    made = algorithms.build(ALLREDUCE, "ring", 1)
    assert simulate(made, placement, nominal_calibration(placement.topology), 1000) == 0.0


@pytest.mark.parametrize(
    ("ppn", "nbytes", "itemsize", "engine", "sentence"),
    [
        (1, 1000, 3, "fast", "1000 bytes are not a whole number of 3-byte elements"),
        (1, 1000, 0, "fast", "1000 bytes are not a whole number of 0-byte elements"),
        (1, -1, 1, "fast", "a message has 0 to 1152921504606846976 bytes, not -1"),
        (1, 2**61, 1, "fast", "a message has 0 to 1152921504606846976 bytes"),
        (1, 1000, 1, "quick", "unknown engine 'quick': choose one of fast, events"),
        (2, 1000, 1, "fast", "placement holds 4 ranks"),
    ],
)
def test_bad_calls(ppn: int, nbytes: int, itemsize: int, engine: str, sentence: str) -> None:
    placement = star(ppn)
    made = algorithms.build(BCAST, "binomial", 2)
    with pytest.raises(InputError, match=sentence):
        simulate(made, placement, nominal_calibration(placement.topology), nbytes, itemsize, engine)


def test_missing_prices_are_named() -> None:
    made = algorithms.build(BCAST, "binomial", 4)
    placement = star(2)
    with pytest.raises(InputError, match="does not say what a message inside a node costs"):
        simulate(made, placement, nominal_calibration(placement.topology), 1000)
    with pytest.raises(InputError, match="no path class 'node'"):
        simulate(made, placement, Calibration("lab", "x", {}), 1000)


def test_crowded_hosts_cost_what_was_measured_on_them() -> None:
    """A probe with as many ranks on a host as it is used with knows no other price."""
    made = algorithms.build(BCAST, "linear", 4)
    inside, between = PathCost.from_alpha_beta(1e-6, 1e-9), PathCost.from_alpha_beta(1e-5, 1e-9)
    probed = Calibration("lab", "x", {("node", "host"): inside, ("network", "host"): between})
    whole = replace(probed, paths={**probed.paths, ("node_oversubscribed", "host"): inside})
    assert simulate(made, star(2), probed, 1000) == simulate(made, star(2), whole, 1000)
