"""Groups of ranks that have the times of NCCL's own model."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.machines import preset, preset_spec
from tuner.machines.loader import load_machine
from tuner.machines.model_accuracy import SIMULATION
from tuner.prediction.block_counts import Routing
from tuner.topology import NVLINK, Placement
from tuner.training.call_times import CallTimes
from tuner.training.groups import Call, Group
from tuner.training.iteration import predict_iteration
from tuner.training.policies import FastestKnown, NcclChoice
from tuner.training.scaling import predict_scaling, scaling_accuracy
from tuner.training.training_limits import COMMUNICATION, COMPUTATION, training_limits
from tuner.training.workload import Workload, workload_from_record
from tuner.whatif.axes import apply_axes
from tuner.whatif.machine_resources import LATENCY


def times_on(preset: str, nodes: int) -> CallTimes:
    """Return the times of NCCL's own choices on eight GPUs of each node."""
    machine = apply_axes(load_machine(f"preset:{preset}", Path()), {"nodes": nodes})
    placement = Placement.block(machine.topology, 8, 8 * nodes)
    return CallTimes(placement, machine.calibration, "cuda", NcclChoice())


def experts(framework: dict[str, Any], **changed: Any) -> Workload:
    """Return a workload of eight experts on one node of H100, with some keys changed."""
    record = {
        "name": "experts on one node",
        "model": {"kind": "mixtral", "layers": 2, "width": 1024, "heads": 16, "sequence": 1024}
        | {"vocabulary": 32000, "experts": 8, "active_experts": 2},
        "batch": 4,
        "rate": 500,
        "precision": "amp",
        "framework": framework,
        "topology": "preset:dgx-h100",
        "ranks": [8],
    }
    return workload_from_record({**record, **changed}, Path())


def accuracy(asked: Workload) -> str:
    """Return the accuracy that the report of a prediction states."""
    return scaling_accuracy(asked, predict_scaling(asked, explains_limits=False))


def test_a_report_tells_the_errors_of_all_to_alls_that_the_machine_records() -> None:
    told = accuracy(experts({"name": "megatron", "expert": 8}))
    known = preset_spec("dgx-h100").accuracy["nccl_alltoall"]
    assert "; times of NCCL's all-to-all were off by" in told
    assert told.endswith(f"in {known.results} measurements ({known.source}).")
    assert "simulated" not in told


def test_a_report_tells_no_errors_of_nccl_for_calls_that_are_simulated() -> None:
    """Expert groups of one GPU on each node share its ports, so that NCCL's model does not hold."""
    groups = {"name": "megatron", "tensor": 8, "expert": 2}
    told = accuracy(experts(groups, ranks=[16]))
    assert "times of NCCL's all-to-all" not in told
    assert "simulated times were not compared" in told


def test_a_report_of_one_rank_tells_no_accuracy() -> None:
    assert accuracy(experts({"name": "ddp"}, ranks=[1])) == ""


def test_simulations_with_measured_costs_have_not_the_errors_of_the_machine_s_own() -> None:
    machine = preset("summit", 2)
    assert "simulated times were off by" in machine.accuracy_sentence({SIMULATION: ()})
    measured = machine.with_calibration(machine.calibration)
    assert "simulated times were not compared" in measured.accuracy_sentence({SIMULATION: ()})


def test_tokens_take_as_long_as_the_rank_with_the_most_wanted_experts() -> None:
    times, routing, size = times_on("dgx-h100", 1), Routing(1.2, inf, 8), 1 << 24
    own = times.timed(Call("alltoallv", size, times.world, routing))
    most = 8 * routing.taken(8).max()
    even = times.timed(Call("alltoallv", round(most * size), times.world))
    assert own.algorithm == even.algorithm == "nccl_pairwise"
    assert own.choice is None
    assert most > 2
    assert own.seconds == pytest.approx(even.seconds, rel=1e-5)


def test_a_faster_part_that_unevenly_wanted_experts_do_not_use_is_no_limit() -> None:
    """Twice the rate of NVLink alone helps on one node, at most as much as twice that of all."""
    asked = experts({"name": "megatron", "expert": 8, "routing_exponent": 1.2})
    times = asked.call_times(8)
    limits = training_limits(asked, predict_iteration(asked, 8, times), times)
    assert {COMPUTATION, COMMUNICATION, LATENCY, NVLINK} == set(limits)
    assert limits[NVLINK] < limits[COMMUNICATION]


def test_nvls_between_nodes_is_not_offered_where_nobody_configured_sharp() -> None:
    """NCCL's model does not hold for a group that shares its nodes with another one."""
    group = Group(16, 2)
    call = Call("allreduce", 1 << 20, group)
    with pytest.raises(InputError, match="no algorithm for allreduce of 16 ranks"):
        FastestKnown(("nvls",)).choose(call, times_on("dgx-h100", 4))


@pytest.mark.parametrize(
    ("preset", "nodes", "group"), [("dgx-a100", 4, Group(4, 8)), ("mi300x", 2, Group(16))]
)
def test_an_all_to_all_is_simulated_where_the_model_does_not_hold(
    preset: str, nodes: int, group: Group
) -> None:
    """Groups share ports on the first machine, and the second has RCCL."""
    found = times_on(preset, nodes).timed(Call("alltoall", 1 << 20, group))
    assert found.choice is not None
    assert found.choice.algorithm == "nccl_pairwise"


@pytest.mark.parametrize(
    ("group", "known"),
    [
        (Group(32), True),  # all ranks
        (Group(4), True),  # half a node
        (Group(16), True),  # two whole nodes: its ports serve no other group
        (Group(4, 8), False),  # one GPU of each node: eight groups share the ports
        (Group(16, 2), False),  # half of each node
    ],
)
def test_nccl_times_hold_for_groups_that_share_no_port(group: Group, *, known: bool) -> None:
    assert (times_on("dgx-a100", 4).nccl(group) is not None) is known
