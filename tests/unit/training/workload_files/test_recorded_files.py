"""Recorded iterations: SimAI's workloads, traces of PyTorch's profiler and of Chakra."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.unit.training.workload_files.test_layer_tables import GRAPH, HEAD
from tuner.base.errors import InputError
from tuner.training.recorded import (
    BARRIER_BYTES,
    COMMUNICATION,
    COMPUTE,
    HOST,
    RecordedStep,
    RecordedWorkload,
    operation_of,
)
from tuner.training.workload_files import load_workload, parse_workload, write_chakra_trace
from tuner.training.workload_files import wire_format as wire
from tuner.training.workload_files.chakra import parse_chakra_trace

SIMAI = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 2 \
all_gpus: 16 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 500
2
grad\t-1\t1\tNONE\t0\t1\tNONE\t0\t30\tALLGATHER\t2807\t100
moe\t-1\t1000\tALLTOALL_EP\t400\t2000\tREDUCESCATTER\t800\t3000\tNONE\t0\t100
"""
# Written by mlc-chakra 1.0.0: a computation of 1.5 ms, metadata, an allgather of 1000 bytes per
# rank after it, an allreduce of a group, a message from rank 0 to rank 4, a computation after all
CHAKRA = (
    b"\x07\n\x050.0.4\x0b\x08\x01\x12\x02n1\x18\x048\xdc\x0b\x0b\x08\x02\x12\x02n2\x18\x01*\x01\x01"
    b"*\x08\x03\x12\x02n3\x18\x07*\x01\x02R\r\n\tcomm_typeH\x02R\x0e\n\tcomm_sizeH\xe8\x07;\x08\x04"
    b"\x12\x02n4\x18\x07*\x01\x01R\r\n\tcomm_typeH\x00R\x0f\n\tcomm_sizeH\x80\x80@R\x0e\n\x07pg_name"
    b"\xea\x01\x02TP6\x08\x05\x12\x02n5\x18\x05*\x01\x01R\r\n\tcomm_sizeHMR\x0c\n\x08comm_srcH\x00R"
    b"\x0c\n\x08comm_dstH\x04\x0f\x08\x06\x12\x02n6\x18\x04*\x03\x03\x04\x058\n"
)


def recorded(data: bytes) -> RecordedWorkload:
    found = parse_workload(data, "own")
    assert isinstance(found, RecordedWorkload)
    return found


def calls(workload: RecordedWorkload) -> list[tuple[str, int, str]]:
    return [
        (one.collective, one.nbytes, one.group)
        for one in workload.steps
        if one.stream == COMMUNICATION
    ]


def event(name: str, category: str, start: float, duration: float, **fields: Any) -> dict[str, Any]:
    thread = fields.pop("thread", 1)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": {key.replace("_", " "): value for key, value in fields.items()},
    }


def trace(*events: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), **more}).encode()


def gloo_trace() -> bytes:
    """Return a trace like PyTorch 2.13 for gloo: a call overlaps a computation, then is awaited."""
    shapes = {"Input_Dims": [[1000]], "Input_type": ["float"]}
    return trace(
        event("ProfilerStep#3", "user_annotation", 0, 900),
        event("ProfilerStep#4", "user_annotation", 1000, 1000),
        event("aten::mm", "cpu_op", 0, 800),
        event("aten::linear", "cpu_op", 1000, 100),
        event("aten::addmm", "cpu_op", 1010, 80),
        event("c10d::allreduce_", "cpu_op", 1100, 5, thread=2),
        event("aten::mul", "cpu_op", 1110, 190),
        event("gloo:all_reduce", "user_annotation", 1120, 380, thread=3, **shapes),
        event("aten::add_", "cpu_op", 1510, 400),
        distributedInfo={"backend": "gloo", "world_size": 4},
    )


def nccl_trace(**fields: Any) -> bytes:
    called = {
        "Collective_name": "_allgather_base",
        "In_msg_nelems": 500,
        "Out_msg_nelems": 1000,
        "dtype": "BFloat16",
        "Group_size": 2,
        "Process_Group_Name": "7",
        "Process_Group_Ranks": "[0, 4]",
        **fields,
    }
    return trace(
        event("ProfilerStep#4", "user_annotation", 0, 50),
        event("cudaLaunchKernel", "cuda_runtime", 5, 2, correlation=1),
        event("record_param_comms", "cpu_op", 8, 10, **called),
        event("cudaLaunchKernelExC", "cuda_runtime", 10, 2, correlation=2),
        event("cudaLaunchKernel", "cuda_runtime", 20, 2, correlation=3),
        event("gemm", "kernel", 100, 300, thread=7, correlation=1),
        event("ncclDevKernel_AllGather_RING_LL", "kernel", 400, 500, thread=9, correlation=2),
        event("gemm", "kernel", 905, 95, thread=7, correlation=3),
        distributedInfo={"world_size": 8},
    )


def test_the_steps_of_a_simai_workload() -> None:
    workload = recorded(SIMAI.encode())
    assert workload.groups == {
        "TP": (2, 1),
        "EP": (2, 2),
        "DP": (4, 2),
        "DP_EP": (2, 4),
        "PP": (2, 8),
    }
    assert (workload.ranks, workload.bubble) == (16, 0.5)
    assert calls(workload) == [
        ("alltoall", 400, "EP"),
        *[("send", 500, "PP")] * 2,
        ("reduce_scatter", 800, "TP"),
        ("allgather", 2807, "DP"),
        *[("send", 500, "PP")] * 2,
    ]
    times = [step.seconds for step in workload.steps if step.stream == COMPUTE]
    assert times == pytest.approx([1e-9, 1e-6, 2e-6, 3e-6, 1e-9, 30e-9])


def test_a_collective_of_weights_is_not_waited_for() -> None:
    text = SIMAI.replace("pp: 2", "pp: 1").replace("all_gpus: 16", "all_gpus: 8")
    steps = recorded(text.replace("pp_comm: 500", "").encode()).steps
    waits = {other for step in steps if step.stream == COMPUTE for other in step.after}
    awaited = [steps[number].collective for number in sorted(waits)]
    assert awaited == ["alltoall", "reduce_scatter"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ep: 2", "", "line 1: ep is missing"),
        ("pp: 2", "pp: 0", "line 1: pp cannot be '0'"),
        ("all_gpus: 16", "all_gpus: 18", "line 1: 18 GPUs cannot be divided"),
        ("checkpoints: 0", "checkpoints: 1", "line 1: checkpoints are not read"),
        ("\n2\n", "\n3\n", "line 2: 3 operations are announced and 2 there"),
        ("\t1000\t", "\t-1000\t", "line 4: the time of the forward cannot be '-1000'"),
        ("ALLTOALL_EP", "ALLTOSOME", "line 4: unknown collective 'ALLTOSOME'; known"),
        ("\t100\n", "\n", "line 3: 11 fields, expected 12"),
    ],
)
def test_damaged_simai_workloads_are_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        recorded(SIMAI.replace(old, new, 1).encode())


def test_the_published_simai_workload(shared: Path) -> None:
    found = load_workload(shared / "data" / "simai" / "workload_analytical.txt")
    assert isinstance(found, RecordedWorkload)
    assert found.ranks == 9216
    assert found.groups["DP_EP"] == (24, 32)
    assert sum(one.collective == "alltoall" for one in found.steps) == 4 * 384
    assert found.bubble == pytest.approx(11 / (24 * 8))


def test_a_call_on_a_cpu_overlaps_and_is_awaited() -> None:
    workload = recorded(gloo_trace())
    assert calls(workload) == [("allreduce", 4000, "world")]
    assert workload.ranks == 4
    first, called, during, after = workload.steps
    assert first.seconds == pytest.approx(100e-6)
    assert called.after == (0,)
    assert [during.seconds, after.seconds] == pytest.approx([200e-6, 500e-6])
    assert [during.after, after.after] == [(), (1,)]
    # with the recorded time of the call, 400 us, the iteration takes what was recorded
    assert first.seconds + 400e-6 + after.seconds == pytest.approx(1000e-6)


def test_kernels_of_nccl_have_the_sizes_and_groups_of_their_calls(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(nccl_trace()))
    workload = load_workload(tmp_path / "trace.json.gz")
    assert isinstance(workload, RecordedWorkload)
    assert calls(workload) == [("allgather", 2000, "7")]
    assert workload.groups["7"] == (2, 4)
    computed = [one for one in workload.steps if one.stream == COMPUTE]
    assert [one.seconds for one in computed] == pytest.approx([300e-6, 100e-6])
    assert [one.after for one in computed] == [(), (1,)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not JSON"),
        (b'{"traceEvents": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": []}', "with a list traceEvents"),
        (trace(), "expected events with a duration in the trace"),
        (trace(event("a", "cpu_op", 0, -5)), "event 'a' has a negative duration"),
        (nccl_trace(dtype="Quaternion"), "unknown type of elements 'Quaternion'"),
        (nccl_trace(In_msg_nelems=-1), "In msg nelems cannot be -1"),
        (nccl_trace(Collective_name="wait")[:-200], "not JSON"),
    ],
)
def test_damaged_traces_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        recorded(data)


def test_ranks_at_unequal_distances_are_kept_as_they_are() -> None:
    workload = recorded(nccl_trace(Process_Group_Ranks="[4, 0, 1]"))
    assert (workload.uneven, "7" in workload.groups) == ({"7": (0, 1, 4)}, False)


def host_calls_of(backend: str) -> bytes:
    """Return a trace of the host with calls of a backend."""
    return gloo_trace().replace(b'"gloo:', f'"{backend}:'.encode())


def test_calls_of_nccl_without_kernels_are_refused() -> None:
    with pytest.raises(InputError, match=r"such as 'nccl:all_reduce'.*ProfilerActivity\.CUDA, too"):
        recorded(host_calls_of("nccl"))


def test_calls_of_other_backends_are_named() -> None:
    assert recorded(host_calls_of("mpi")).unread == ("mpi:all_reduce",)
    both = json.loads(gloo_trace())
    both["traceEvents"].append(event("xccl:broadcast 3", "user_annotation", 1200, 5))
    workload = recorded(json.dumps(both).encode())
    assert (len(calls(workload)), workload.unread) == (1, ("xccl:broadcast",))


def test_operators_alone_show_that_a_trace_has_calls() -> None:
    operators = (event("c10d::allreduce_", "cpu_op", 0, 5), event("aten::gather", "cpu_op", 9, 5))
    assert recorded(trace(*operators)).unread == ("c10d::allreduce_",)


def test_kernels_of_other_libraries_leave_their_calls_unread() -> None:
    data = nccl_trace().replace(b"ncclDevKernel", b"oneccl_kernel")
    data = data.replace(b'"record_param_comms"', b'"xccl:_allgather_base"')
    assert recorded(data).unread == ("xccl:_allgather_base",)


def test_annotations_of_nccl_have_the_sizes_that_old_parameters_lack() -> None:
    sizes = {"Input_Dims": [[500]], "Input_type": ["c10::BFloat16"]}
    events = json.loads(nccl_trace())["traceEvents"]
    events[2] = event("record_param_comms", "cpu_op", 8, 10)
    events.append(event("nccl:_all_gather_base", "user_annotation", 9, 5, **sizes))
    workload = recorded(trace(*events))
    assert (calls(workload), workload.unread) == ([("allgather", 1000, "world")], ())
    assert workload.steps[1].per_rank


def test_calls_of_unknown_operations_are_counted() -> None:
    workload = recorded(nccl_trace(Collective_name="coalesced"))
    assert calls(workload) == []
    assert workload.unread[-1] == "ncclDevKernel_AllGather_RING_LL (1 call)"
    sparse = gloo_trace().replace(b"gloo:all_reduce", b"gloo:sparse_all_reduce")
    assert "gloo:sparse_all_reduce (1 call)" in recorded(sparse).unread


@pytest.mark.parametrize("name", ["void rcclGenericKernel<1, false>(ncclDevComm*)", "moved"])
def test_a_kernel_with_the_fields_of_a_call_is_one_whatever_its_name(name: str) -> None:
    record = json.loads(nccl_trace())
    kernel = next(one for one in record["traceEvents"] if one["name"].startswith("nccl"))
    kernel["name"] = name
    if name == "moved":
        kernel["args"] |= next(
            one["args"] for one in record["traceEvents"] if one["name"] == "record_param_comms"
        )
    assert calls(recorded(json.dumps(record).encode())) == [("allgather", 2000, "7")]


def test_the_gpus_of_a_trace_are_named() -> None:
    record = json.loads(nccl_trace())
    devices = [{"id": number, "name": "NVIDIA A100-SXM4-80GB"} for number in range(2)]
    record["deviceProperties"] = [*devices, {"id": 2}, "none"]
    assert recorded(json.dumps(record).encode()).gpu == "NVIDIA A100-SXM4-80GB"
    assert recorded(nccl_trace()).gpu == ""


@pytest.mark.parametrize(
    ("splits", "said"),
    [("[10, 30, 20, 20]", "up to 1.5 times"), ("[10, 30, ..., 20]", "up to 1.5 times"), ("[]", "")],
)
def test_blocks_of_unequal_lengths_are_said(splits: str, said: str) -> None:
    fields = {"Collective_name": "all_to_allv", "In_split_size": "[8, 8]"}
    workload = recorded(nccl_trace(**fields, Out_split_size=splits))
    assert calls(workload) == [("alltoall", 2000, "7")]
    assert [f"1 call with blocks of unequal lengths, {said}" in one for one in workload.notes] == (
        [True] if said else []
    )


CHAKRA_METADATA = CHAKRA[:8]


def chakra_node(number: int, kind: int, *after: int, **values: int | list[bool]) -> bytes:
    """Return the message of a node that takes 1 ms, with its length before it."""
    node = wire.encode_number(1, number) + wire.encode_number(3, kind)
    node += b"".join(wire.encode_number(5, one) for one in after) + wire.encode_number(7, 1000)
    for name, value in values.items():
        told = (
            wire.encode_bytes(28, wire.encode_bytes(1, bytes(value)))
            if isinstance(value, list)
            else wire.encode_number(9, value)
        )
        node += wire.encode_bytes(10, told + wire.encode_bytes(1, name.encode()))
    return wire.encode_varint(len(node)) + node


def test_operations_of_the_host_run_beside_those_of_a_gpu() -> None:
    host = [chakra_node(number, 4, is_cpu_op=1) for number in (1, 2)]
    gpu = [chakra_node(3, 4, 1, is_cpu_op=0)]
    workload = parse_chakra_trace(CHAKRA_METADATA + b"".join([*host, *gpu]), "own")
    assert [one.stream for one in workload.steps] == [HOST, HOST, COMPUTE]
    alone = parse_chakra_trace(CHAKRA_METADATA + b"".join(host), "own")
    assert [one.stream for one in alone.steps] == [COMPUTE, COMPUTE]


def test_a_written_trace_keeps_what_the_host_does(tmp_path: Path) -> None:
    steps = (RecordedStep("launch", HOST, 1e-3), RecordedStep("gemm", COMPUTE, 2e-3, after=(0,)))
    write_chakra_trace(tmp_path / "own.et", RecordedWorkload("own", steps, {}))
    found = load_workload(tmp_path / "own.et")
    assert isinstance(found, RecordedWorkload)
    assert found.steps == steps


def test_a_call_along_some_dimensions_is_of_a_group_of_its_own() -> None:
    call = {"comm_type": 0, "comm_size": 64}
    nodes = [
        chakra_node(number, 7, **call, involved_dim=dimensions)
        for number, dimensions in enumerate([[True, True], [True, False], [True, False, True]], 1)
    ]
    found = parse_chakra_trace(CHAKRA_METADATA + b"".join(nodes), "own")
    assert [group for _, _, group in calls(found)] == ["world", "dimension 0", "dimension 0 and 2"]
    nowhere = chakra_node(1, 7, **call, involved_dim=[False, False])
    with pytest.raises(InputError, match="node 1: involved_dim leaves no dimension to the call"):
        parse_chakra_trace(CHAKRA_METADATA + nowhere, "own")


def test_calls_of_chakra_without_a_size_are_counted_and_keep_the_order() -> None:
    nodes = [
        chakra_node(1, 4),
        chakra_node(2, 7, 1, comm_type=0),
        chakra_node(3, 5, 2, comm_dst=1),
        chakra_node(4, 7, 3, comm_type=9),
        chakra_node(5, 4, 3),
    ]
    found = parse_chakra_trace(CHAKRA_METADATA + b"".join(nodes), "own")
    assert calls(found) == [("allreduce", BARRIER_BYTES, "world")]
    assert found.unread == ("1 of ALL_REDUCE without comm_size", "1 of SEND without comm_size")
    assert [one.after for one in found.steps] == [(), (0,), (0,)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"workload_graph": [{"Id": 1}]}', "a trace of Chakra as JSON, which is not read"),
        (b'{\n "version": "0.0.4"\n}{\n "id": "1"\n}', "a trace of Chakra as JSON"),
        (
            b'{"schema": "1.1.0-chakra.0.0.4", "pid": 7, "nodes": []}',
            r"PyTorch's execution trace \(ExecutionTraceObserver\)",
        ),
    ],
    ids=["feeder", "jsonizer", "PyTorch"],
)
def test_json_of_chakra_is_no_broken_trace_of_the_profiler(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_workload(data, "own")


def test_a_trace_of_chakra_whose_calls_are_computations_names_them() -> None:
    kernel = b"\x1a\x08\x01\x12\x14ncclDevKernel_X<4>()\x18\x04"
    found = parse_chakra_trace(CHAKRA[:8] + kernel, "own")
    assert found.unread == ("ncclDevKernel_X",)


def test_a_trace_without_shapes_says_how_to_record_them() -> None:
    data = gloo_trace().replace(b'"Input Dims"', b'"Others"')
    with pytest.raises(InputError, match="record_shapes=True"):
        recorded(data)


def test_a_barrier_of_gloo_has_no_sizes_and_is_awaited_all_the_same() -> None:
    workload = recorded(
        trace(
            event("ProfilerStep#4", "user_annotation", 0, 1000),
            event("aten::mm", "cpu_op", 0, 100),
            event("c10d::barrier", "cpu_op", 100, 5, thread=2),
            event("gloo:barrier", "user_annotation", 110, 390, thread=3),
            event("aten::add_", "cpu_op", 510, 490),
            distributedInfo={"backend": "gloo", "world_size": 4},
        )
    )
    assert calls(workload) == [("allreduce", BARRIER_BYTES, "world")]
    assert [one.after for one in workload.steps] == [(), (0,), (1,)]


def test_a_barrier_of_nccl_is_an_allreduce_of_one_float() -> None:
    data = nccl_trace(Collective_name="barrier", In_msg_nelems=0, Out_msg_nelems=0, dtype="Byte")
    assert calls(recorded(data)) == [("allreduce", BARRIER_BYTES, "7")]


def test_a_barrier_of_chakra_takes_time_as_a_small_allreduce() -> None:
    barrier = CHAKRA.replace(b"R\r\n\tcomm_typeH\x00", b"R\r\n\tcomm_typeH\x09")
    assert ("allreduce", BARRIER_BYTES, "TP") in calls(parse_chakra_trace(barrier, "own"))


def test_a_trace_that_chakra_wrote() -> None:
    workload = parse_chakra_trace(CHAKRA, "own")
    assert [(one.name, one.seconds, one.after) for one in workload.steps] == [
        ("n1", 1.5e-3, ()),
        ("n3", 0.0, (0,)),
        ("n4", 0.0, (0,)),
        ("n5", 0.0, (0,)),
        ("n6", 1e-5, (1, 2, 3)),
    ]
    assert calls(workload) == [
        ("allgather", 1000, "world"),
        ("allreduce", 1 << 20, "TP"),
        ("send", 77, "pairs at distance 4"),
    ]
    assert workload.steps[1].per_rank
    assert workload.groups["pairs at distance 4"] == (2, 4)


def test_a_written_chakra_trace_reads_the_same(tmp_path: Path) -> None:
    workload = parse_chakra_trace(CHAKRA, "own")
    workload = replace(workload, groups={**workload.groups, "TP": (2, 1)})
    write_chakra_trace(tmp_path / "own.0.et", workload)
    assert load_workload(tmp_path / "own.0.et") == workload


def test_a_ragged_exchange_counts_as_an_even_one(tmp_path: Path) -> None:
    """Traces have no counts; PyTorch's profiler calls it all_to_allv, and Chakra has one kind."""
    assert operation_of("all_to_allv") == operation_of("all_to_all") == "alltoall"
    step = RecordedStep("a", COMMUNICATION, 0.0, operation_of("all_to_allv"), 4000, "world")
    write_chakra_trace(tmp_path / "a.et", RecordedWorkload("a", (step,), {"world": (0, 1)}, 4))
    found = load_workload(tmp_path / "a.et")
    assert isinstance(found, RecordedWorkload)
    assert found.steps[0].collective == "alltoall"


def test_a_written_allgather_has_the_bytes_of_one_rank(tmp_path: Path) -> None:
    step = RecordedStep("a", COMMUNICATION, 0.0, "allgather", 4000, "world")
    write_chakra_trace(tmp_path / "a.et", RecordedWorkload("a", (step,), {"world": (0, 1)}, 4))
    found = load_workload(tmp_path / "a.et")
    assert isinstance(found, RecordedWorkload)
    assert (found.steps[0].nbytes, found.steps[0].per_rank) == (1000, True)
    with pytest.raises(InputError, match="how many ranks are in group world is not known"):
        write_chakra_trace(tmp_path / "b.et", RecordedWorkload("a", (step,), {"world": (0, 1)}))
    assert not (tmp_path / "b.et").exists()


def test_the_bytes_of_one_rank_follow_from_the_size_of_its_own_group(tmp_path: Path) -> None:
    step = RecordedStep("a", COMMUNICATION, 0.0, "allgather", 3000, "7")
    workload = RecordedWorkload("a", (step,), {"world": (0, 1)}, 8, uneven={"7": (0, 1, 4)})
    write_chakra_trace(tmp_path / "a.et", workload)
    found = load_workload(tmp_path / "a.et")
    assert isinstance(found, RecordedWorkload)
    assert found.steps[0].nbytes == 1000
    with pytest.raises(InputError, match="how many ranks are in group 7 is not known"):
        write_chakra_trace(tmp_path / "b.et", replace(workload, uneven={}))


@pytest.mark.parametrize("caller", [b"c", b"\x06"], ids=["missing", "later"])
def test_the_caller_of_a_node_of_chakra_delays_nothing(caller: bytes) -> None:
    called = CHAKRA.replace(b"\x0b\x08\x01", b"\x0e\x08\x01")
    called = called.replace(b"n1\x18\x048\xdc\x0b", b'n1\x18\x048\xdc\x0b"\x01' + caller)
    assert parse_chakra_trace(called, "own") == parse_chakra_trace(CHAKRA, "own")


def test_a_collective_of_the_host_that_launches_another_is_work_of_the_host() -> None:
    """A trace of Chakra's own tests has `c10d::broadcast_` as a collective without comm_type."""
    launch = b"\x1a\x08\x09\x12\x02n9\x18\x078\x03R\x0e\n\tis_cpu_op\xd8\x01\x01"
    step = parse_chakra_trace(CHAKRA + launch, "own").steps[-1]
    assert step.stream == HOST
    assert step.seconds == pytest.approx(3e-6)
    with pytest.raises(InputError, match="node 9: comm_type must be"):
        parse_chakra_trace(CHAKRA + launch[:-1] + b"\x00", "own")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (CHAKRA[:-3], "the file ends within a message"),
        (
            CHAKRA.replace(b"*\x01\x02R", b"*\x01\x09R"),
            "node 3 depends on node 9: expected that, too",
        ),
        (CHAKRA.replace(b"*\x01\x01R", b"*\x01\x06R", 1), "form a cycle"),
        (CHAKRA.replace(b"\x08\x05\x12", b"\x08\x04\x12"), "node 4 is in the file twice"),
        (CHAKRA.replace(b"n1\x18\x04", b"n1\x18\x0a"), "node 1: the type must be 1 to 7, not 10"),
        (CHAKRA.replace(b"comm_typeH\x00", b"comm_typeH\x0b"), "node 4: comm_type must be"),
    ],
)
def test_damaged_chakra_traces_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_chakra_trace(data, "own")


FILES = (
    SIMAI.encode(),
    (HEAD + "a,1,2,3+4,5\nb,1,2,,6\n").encode(),
    GRAPH.encode(),
    gloo_trace(),
    nccl_trace(),
    CHAKRA,
)


@given(st.data())
@settings(max_examples=examples(600))
def test_any_damage_gives_a_workload_or_one_sentence(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(FILES))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        until = data.draw(st.integers(at, min(at + 20, len(content))))
        put = data.draw(
            st.binary(max_size=6)
            | st.text('0123456789.-eE,"{}[] \tnaN+', max_size=6).map(str.encode)
        )
        content = content[:at] + put + content[until:]
    read = data.draw(st.sampled_from([parse_chakra_trace, parse_workload]))
    said = ""
    try:
        read(content, "own")
    except InputError as reason:
        said = str(reason)
    assert "\n" not in said
    assert len(said) < 500


def test_a_bomb_of_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.training.workload_files.file_contents.MAX_BYTES", 1 << 20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * (1 << 24)))
    with pytest.raises(InputError, match=r"bomb\.json\.gz: more than 1 MiB"):
        load_workload(tmp_path / "bomb.json.gz")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(gloo_trace())[:-20])
    with pytest.raises(InputError, match="truncated gzip file"):
        load_workload(tmp_path / "cut.json.gz")
