"""Parameter servers: transports, barriers, and the number of servers."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.training.frameworks import framework_from_record
from tuner.training.frameworks.parameter_server import BEST, ParameterServer
from tuner.training.iteration import make_job, predict_iteration
from tuner.training.workload import Workload, workload_from_record


def workload(framework: ParameterServer) -> Workload:
    record = {
        "model": "alexnet",
        "batch": 64,
        "rate": 500,
        "framework": "parameter-server",
        "topology": {"name": "flat", "nodes": 16, "latency": "1us", "bandwidth": "10GB/s"},
        "ranks": 16,
        "memory": "host",
        "algorithms": "best",
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


@pytest.mark.parametrize(
    ("key", "value"), [("transport", "pigeon"), ("servers", "many"), ("replicated", 1)]
)
def test_an_invalid_setting_is_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"framework parameter-server: {key}"):
        framework_from_record({"name": "parameter-server", key: value})


def test_what_a_framework_keeps_to_itself_is_no_setting() -> None:
    with pytest.raises(InputError, match="_best"):
        framework_from_record({"name": "parameter-server", "_best": {}})
