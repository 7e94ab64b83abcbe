"""Parameter servers: transports, barriers, and the number of servers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.training.frameworks import framework_from_record
from tuner.training.frameworks.parameter_server import BEST, ParameterServer
from tuner.training.iteration import make_job, predict_iteration
from tuner.training.server_load import NETWORK, RATE, assumed_rate_warning, server_load
from tuner.training.sweep import run_sweep, summarise_sweep
from tuner.training.training_limits import SERVERS, limiting_factor, training_limits
from tuner.training.workload import Workload, workload_from_record

FLAT: dict[str, Any] = {"name": "flat", "nodes": 16, "latency": "1us", "bandwidth": "10GB/s"}
FAST: dict[str, Any] = {"rate": 1e14, "worker_rate": 1e14, "request": 1e-9, "token": 1e-12}


def workload(
    framework: ParameterServer, topology: dict[str, Any] = FLAT, **changed: Any
) -> Workload:
    record = {
        "model": "alexnet",
        "batch": 64,
        "rate": 500,
        "framework": "parameter-server",
        "topology": topology,
        "ranks": 16,
        "memory": "host",
        "algorithms": "best",
        **changed,
    }
    return replace(workload_from_record(record, Path()), framework=framework)


def seconds(framework: ParameterServer, ranks: int = 16) -> float:
    return predict_iteration(workload(framework), ranks).seconds


def test_a_single_rank_exchanges_nothing() -> None:
    alone = predict_iteration(workload(ParameterServer()), 1)
    assert alone.seconds == pytest.approx(alone.compute)


def test_one_server_takes_as_long_as_all_bytes_take_both_ways() -> None:
    framework = ParameterServer(rate=1e9, worker_rate=1e12, request=1e-9, token=1e-12)
    nbytes = 4 * workload(framework).model.elements * 16
    assert seconds(framework) == pytest.approx(2 * nbytes / 1e9, rel=0.15)


def test_rdma_is_faster_than_grpc_by_at_most_the_ratio_of_their_rates() -> None:
    ratio = seconds(ParameterServer()) / seconds(ParameterServer(transport="rdma-grpc"))
    assert 2 < ratio <= 2.7
    assert seconds(ParameterServer(transport="mpi")) < seconds(
        ParameterServer(transport="rdma-grpc")
    )


def test_a_barrier_costs_a_token_for_each_pair_of_ranks() -> None:
    without, with_tokens = (
        seconds(ParameterServer(servers=16, replicated=True, token=token)) for token in (1e-9, 1e-3)
    )
    assert with_tokens - without == pytest.approx(16 * 15 * 1e-3, rel=0.01)


def test_ranks_that_copy_parameters_wait_for_all_of_them() -> None:
    assert seconds(ParameterServer(replicated=True)) > seconds(ParameterServer())


def test_large_tensors_on_all_servers_are_faster_than_on_one_each() -> None:
    assert seconds(ParameterServer(servers=8, shard=1 << 20)) < seconds(ParameterServer(servers=8))


def test_the_best_number_of_servers_is_the_fastest_of_all_that_are_tried() -> None:
    best = ParameterServer(servers=BEST, shard=1 << 20)
    job = make_job(workload(best), 16)
    tried = {number: seconds(replace(best, servers=number)) for number in (1, 2, 4, 8, 16)}
    assert tried[best.settled(job).servers] == min(tried.values())
    assert seconds(best) == pytest.approx(min(tried.values()))


def test_a_node_that_aggregates_pushes_once() -> None:
    record = {"name": "parameter-server", "local_aggregation": True}
    machine = {
        "name": "two",
        "nodes": 2,
        "latency": "1us",
        "bandwidth": "10GB/s",
        "cores": 8,
        "local": {"latency": "1us", "bandwidth": "10GB/s", "memory_bandwidth": "40GB/s"},
    }
    base = {
        "model": "alexnet",
        "batch": 8,
        "rate": 5000,
        "topology": machine,
        "ranks": 16,
        "ppn": 8,
        "memory": "host",
        "algorithms": "best",
    }
    once, eight = (
        predict_iteration(workload_from_record({**base, "framework": one}, Path()), 16).seconds
        for one in (record, "parameter-server")
    )
    assert eight > 4 * once


@pytest.mark.parametrize("servers", [1, 4, 16])
def test_ports_bound_what_servers_exchange(servers: int) -> None:
    """A server's port carries its tensors to 15 other nodes, twice; 16 share out what one had."""
    framework = ParameterServer(servers=servers, shard=1, **FAST)
    slow = workload(framework, {**FLAT, "bandwidth": "0.1GB/s"}, rate=1e9)
    nbytes = 4 * slow.model.elements
    expected = 2 * 15 * nbytes / servers / 0.1e9
    found = predict_iteration(slow, 16)
    assert found.seconds == pytest.approx(expected, rel=0.02)
    load = server_load(slow, found, slow.call_times(16))
    assert load is not None
    assert (load.servers, load.bound, load.is_best) == (servers, NETWORK, False)
    assert load.seconds == pytest.approx(found.seconds, rel=0.02)
    assert f"{servers} (as given)" in load.sentence(found)
    assert "bounded by the network" in load.sentence(found)


def test_ports_of_ranks_bound_more_servers_than_nodes() -> None:
    """Two nodes of four ranks each: every port carries the tensors of four ranks one way."""
    inside = {"latency": "1us", "bandwidth": "10GB/s", "memory_bandwidth": "40GB/s"}
    two = {**FLAT, "nodes": 2, "cores": 4, "bandwidth": "0.1GB/s", "local": inside}
    for servers in (2, 4, 8):
        framework = ParameterServer(servers=servers, shard=1, **FAST)
        given = workload(framework, two, ranks=8, ppn=4, rate=1e9)
        nbytes = 4 * given.model.elements
        found = predict_iteration(given, 8).seconds
        assert found == pytest.approx(2 * 4 * nbytes / 2 / 0.1e9, rel=0.02)


def test_links_between_switches_bound_all_servers() -> None:
    links = [[f"n{node}", f"s{node // 4}"] for node in range(8)]
    racks = {
        "name": "racks",
        "nodes": [f"n{node}" for node in range(8)],
        "switches": ["s0", "s1"],
        "links": [
            *({"between": pair, "latency": "1us", "bandwidth": "10GB/s"} for pair in links),
            {"between": ["s0", "s1"], "latency": "1us", "bandwidth": "0.1GB/s"},
        ],
    }
    given = workload(ParameterServer(servers=8, shard=1, **FAST), racks, ranks=8, rate=1e9)
    nbytes = 4 * given.model.elements
    # half of the tensors of four ranks cross the link in either direction
    assert predict_iteration(given, 8).seconds == pytest.approx(
        2 * 4 * nbytes / 2 / 0.1e9, rel=0.02
    )
    limits = training_limits(given, predict_iteration(given, 8), given.call_times(8))
    assert limits["switch_links"] == pytest.approx(2, rel=0.05)
    assert limiting_factor(limits, predict_iteration(given, 8)) == "switch links"
    load = server_load(given, predict_iteration(given, 8), given.call_times(8))
    assert load is not None
    assert load.shared_link in ("s0 -> s1", "s1 -> s0")
    said = load.sentence(predict_iteration(given, 8))
    assert f"; the link {load.shared_link}, which they share, limits them all." in said


def test_the_best_number_of_servers_depends_on_the_network() -> None:
    """The server of the largest tensor limits a slow network as soon as it has no other one.

    On a fast one requests do, which 16 servers answer for a tensor each.
    """
    requests = {**FAST, "request": 1e-3, "token": 1e-9}
    framework = ParameterServer(servers=BEST, **requests)
    best = {}
    for bandwidth in ("0.05GB/s", "100GB/s"):
        given = workload(framework, {**FLAT, "bandwidth": bandwidth}, rate=1e9)
        tried = {
            number: predict_iteration(
                replace(given, framework=replace(framework, servers=number)), 16
            ).seconds
            for number in (1, 2, 4, 8, 16)
        }
        best[bandwidth] = framework.settled(make_job(given, 16)).servers
        assert tried[best[bandwidth]] == min(tried.values())
    assert best == {"0.05GB/s": 2, "100GB/s": 16}


def test_servers_that_are_slower_than_the_network_limit() -> None:
    given = workload(ParameterServer(servers=4, rate=1e9, worker_rate=1e9))
    found = predict_iteration(given, 16)
    times = given.call_times(16)
    load = server_load(given, found, times)
    assert load is not None
    assert load.bound == RATE
    limits = training_limits(given, found, times)
    assert limits[SERVERS] > 1.5
    assert "nics" not in limits
    assert limiting_factor(limits, found) == "parameter servers"


def test_default_rates_are_cautioned_with_their_source() -> None:
    said = assumed_rate_warning(workload(ParameterServer()))
    assert "rate 1.5GB/s (assumed: gRPC of TensorFlow on IPoIB" in said
    assert "give rate and worker_rate as measured" in said
    half = assumed_rate_warning(workload(ParameterServer(transport="mpi", rate=1e9)))
    assert "worker_rate 10GB/s (assumed: as a server); give worker_rate as measured" in half
    assert not assumed_rate_warning(workload(ParameterServer(rate=1e9, worker_rate=1e9)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["0.01GB/s", "0.146GB/s"], "The fastest is bandwidth 0.146GB/s."),
        (["50GB/s", "100GB/s"], "changes nothing. All configurations are equally fast, within"),
    ],
)
def test_a_sweep_over_bandwidth_says_what_changes(values: list[str], said: str) -> None:
    framework = {"name": "parameter-server", "rate": "1.5GB/s", "worker_rate": "1.5GB/s"}
    record = {
        **{"model": "alexnet", "batch": 64, "rate": 500, "framework": framework, "ranks": 4},
        **{"topology": FLAT, "memory": "host", "algorithms": "best"},
        "vary": {"bandwidth": values},
    }
    found = run_sweep(record, Path(), processes=1)
    assert said in summarise_sweep(found)
    assert ("The fastest" in summarise_sweep(found)) == ("fastest" in said)


@pytest.mark.parametrize(
    ("key", "value"), [("transport", "pigeon"), ("servers", "many"), ("replicated", 1)]
)
def test_an_invalid_setting_is_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"framework parameter-server: {key}"):
        framework_from_record({"name": "parameter-server", key: value})


def test_what_a_framework_keeps_to_itself_is_no_setting() -> None:
    with pytest.raises(InputError, match="_best"):
        framework_from_record({"name": "parameter-server", "_best": {}})
