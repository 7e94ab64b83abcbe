"""Simulated times of candidates: the real builder and simulator, at the point's own ranks."""

import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.simulated import CALIBRATION, CLUSTER, POINT, TOPOLOGY, on_four_hosts
from tests.support.topologies import cluster, interior
from tuner import algorithms
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration, PathCost
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, Measurements
from tuner.core.path_classes import PLACEMENTS
from tuner.core.table import AlgorithmChoice
from tuner.machines.topology_files import load_topology
from tuner.select import simulated_times
from tuner.select.build_table import make_table
from tuner.select.dataset import CallPoint, build_observations
from tuner.select.simulated_times import Simulator
from tuner.sim import simulate
from tuner.topology import Placement


def test_a_candidate_costs_what_its_schedule_costs_on_the_points_ranks() -> None:
    chain = AlgorithmChoice("chain", {"segment": 1024, "chains": 2})
    schedule = algorithms.build(
        Collective.BCAST, "chain", 4, nbytes=4096, params={"segment": 1024, "chains": 2}
    )
    expected = simulate(schedule, Placement.block(TOPOLOGY, 4, 4), CALIBRATION, 4096)
    seconds = Simulator(CALIBRATION, TOPOLOGY)
    assert seconds(POINT, chain) == expected
    assert seconds(POINT, AlgorithmChoice("linear")) != expected


def test_an_algorithm_of_the_library_alone_has_no_simulated_time() -> None:
    seconds = Simulator(CALIBRATION, TOPOLOGY)
    assert math.isnan(seconds(POINT, AlgorithmChoice("smp")))
    assert math.isnan(seconds(POINT, AlgorithmChoice()))


def test_a_parameter_that_no_schedule_has_is_named() -> None:
    with pytest.raises(InputError, match="no parameter 'fanout'"):
        Simulator(CALIBRATION, TOPOLOGY)(POINT, AlgorithmChoice("binomial", {"fanout": 2}))


PAIRS = [
    (replace(POINT, ppn=ppn, nbytes=nbytes), AlgorithmChoice(name))
    for nbytes in (64, 4096)
    for ppn in (2, 4, 8)
    for name in ("linear", "chain", "smp")
]


@pytest.mark.extended
def test_processes_say_the_same_as_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_times, "MAX_SERIAL_S", -1.0)
    told: list[tuple[int, int]] = []
    here, spread = Simulator(CALIBRATION, TOPOLOGY), Simulator(CALIBRATION, TOPOLOGY)
    monkeypatch.setattr(Simulator, "_seconds", None)  # of this process
    spread.prefetch(PAIRS, lambda *done: told.append(done), cores=2)
    found = [spread(*pair) for pair in PAIRS]
    monkeypatch.undo()
    assert np.array_equal(found, [here(*pair) for pair in PAIRS], equal_nan=True)
    assert told[-1] == (len(PAIRS), len(PAIRS))
    assert told == sorted(told)


def test_what_killed_processes_leave_undone_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_times, "MAX_SERIAL_S", -1.0)
    killed = []

    def kill(_done: int, _total: int) -> None:
        for process in multiprocessing.active_children():
            process.kill()
            killed.append(process)

    simulate = Simulator(CALIBRATION, TOPOLOGY)
    simulate.prefetch(PAIRS, kill, cores=2)
    assert killed
    assert simulate._cache.keys() == set(PAIRS)


def test_calls_that_differ_in_their_size_alone_go_together() -> None:
    pairs = [
        (replace(point, nodes=2, placement=placement), choice)
        for placement in PLACEMENTS
        for point, choice in PAIRS
    ]
    batches = simulated_times._batches(sorted(pairs, key=simulated_times._order))
    assert [len(batch) for batch in batches] == [2] * len(PAIRS)
    assert all(
        len({(point.with_size(0), choice) for point, choice in batch}) == 1 for batch in batches
    )
    assert [batch[0][0].p for batch in batches] == sorted((16, 8, 4) * 6, reverse=True)


def test_what_cannot_be_simulated_is_said_of_other_processes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_times, "MAX_SERIAL_S", -1.0)
    pairs = [(replace(POINT, nodes=nodes), AlgorithmChoice("linear")) for nodes in (1, 2)]
    with pytest.raises(InputError, match="ranks"):
        Simulator(CALIBRATION, TOPOLOGY).prefetch(pairs, cores=2)
    assert not multiprocessing.active_children()


def test_few_calls_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_times, "map_unordered", None)
    told: list[tuple[int, int]] = []
    Simulator(CALIBRATION, TOPOLOGY).prefetch(
        [(POINT, AlgorithmChoice("linear"))], lambda *done: told.append(done), cores=2
    )
    assert told == [(0, 1), (1, 1)]


def test_every_measured_point_is_predicted() -> None:
    taken = tuple(
        Measurement("collective", "bcast", 1, 4, 4, 4096, (1e-5,) * 6, name)
        for name in ("default", "linear", "smp")
    )
    seconds = Simulator(CALIBRATION, TOPOLOGY)
    rows = build_observations(Measurements(CLUSTER, "openmpi", {}, taken), seconds)
    assert [row.choice.algorithm for row in rows] == ["default", "linear", "smp"]
    assert rows[1].simulated_seconds == seconds(POINT, AlgorithmChoice("linear"))
    assert math.isnan(rows[0].simulated_seconds)
    assert math.isnan(rows[2].simulated_seconds)


def test_a_table_of_several_hosts_is_made_on_their_topology_of_what_rules_can_say(
    tmp_path: Path,
) -> None:
    path = tmp_path / "flat.yaml"
    path.write_text("{name: flat, nodes: 4, latency: 10us, bandwidth: 1GB/s}")
    paths = {("network", "host"): PathCost.from_alpha_beta(1e-6, 1e-9)}
    calibration = Calibration("ares", "openmpi 5.0.11", paths)
    rows, table = make_table(on_four_hosts(), calibration, topology=load_topology(path))
    assert {row.choice.params.get("radix", 4) for row in rows} == {4}
    assert not math.isnan(rows[-1].simulated_seconds)
    chosen = {(rule.choice.algorithm, rule.choice.params.get("radix")) for rule in table.rules}
    assert chosen == {("default", None), ("knomial", 4)}


def test_several_hosts_without_messages_between_them_need_a_topology() -> None:
    calibration = replace(CALIBRATION, library="openmpi 5.0.11")
    with pytest.raises(InputError, match="give the topology of its 4 hosts"):
        make_table(on_four_hosts(), calibration)


def test_calls_on_device_memory_are_priced_as_such_or_not_at_all() -> None:
    def price(beta: float) -> PathCost:
        return PathCost.from_alpha_beta(1e-6, beta)

    gpus = cluster(interior(1), interior(1))
    paths = {("network", "host"): price(1e-9), ("network", "cuda"): price(1e-8)}
    calibration = Calibration("ares", "openmpi", paths)
    host = CallPoint(Collective.BCAST, 2, 1, "host", 2**20)
    device, linear = replace(host, memory="cuda"), AlgorithmChoice("linear")
    seconds = Simulator(calibration, gpus)
    assert seconds(device, linear) == pytest.approx(10 * seconds(host, linear), rel=0.01)
    hosts_alone = Simulator(replace(calibration, paths={("network", "host"): price(1e-9)}), gpus)
    assert hosts_alone(host, linear) == seconds(host, linear)
    assert math.isnan(hosts_alone(device, linear))
    undrawn = replace(gpus, nodes=tuple(replace(node, node_topology=None) for node in gpus.nodes))
    assert math.isnan(Simulator(calibration, undrawn)(device, linear))
