"""Model parallelism against closed forms, and against the calls of a public workload."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.exchanges import RATE, one_switch
from tests.support.properties import examples
from tests.support.unequal_topologies import LATENCY
from tuner.base.errors import InputError
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.machines.loader import load_machine
from tuner.prediction.block_counts import Routing
from tuner.prediction.call_predictor import CallPredictor
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.readers import nominal_calibration
from tuner.training.call_times import CallTimes
from tuner.training.framework_arguments import framework_arguments
from tuner.training.frameworks import framework_from_record, stage_gradients
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.stage_blocks import divide_blocks
from tuner.training.frameworks.stage_gradients import (
    gradient_buckets,
    stage_elements,
    updated_elements,
)
from tuner.training.frameworks.stage_work import stage_work
from tuner.training.groups import DISPATCH, Call, Group, simulate_groups
from tuner.training.job import TrainingJob
from tuner.training.models import Architecture, build_model, gpt, llama
from tuner.training.policies import FastestKnown
from tuner.training.recorded import COMPUTE
from tuner.training.timeline import BACKWARD, CALL, FORWARD, UPDATE, Operation, Timeline
from tuner.training.token_dispatch import DISPATCHERS, TokenDispatch

BLOCKS = 16
WIDTH = 64
SEQUENCE = 32


class SameTimes:
    """Calls that all take the same time, on ranks of one node."""

    def __init__(self, ranks: int, seconds: float = 0.0) -> None:
        self.placement = SimpleNamespace(p=ranks)
        self._seconds = seconds

    def seconds(self, call: Call) -> float:
        assert call.nbytes > 0
        return self._seconds if call.group.size > 1 else 0.0


def bubble_seconds(operations: Sequence[Operation]) -> float:
    """Return how long a stage has nothing to do between its first and last step, on average."""
    stages: dict[str, list[Operation]] = {}
    for one in operations:
        if one.phase in (FORWARD, BACKWARD) or (one.phase == CALL and one.stream in stages):
            stages.setdefault(one.stream, []).append(one)
    begun = min(float(own[0].start[0]) for own in stages.values())
    ended = max(float(own[-1].end[0]) for own in stages.values())
    busy = sum(float(one.end[0] - one.start[0]) for own in stages.values() for one in own)
    return ended - begun - busy / len(stages)


def job_of(
    ranks: int, passes: int = 8, seconds: float = 0.0, experts: int = 1, head: float = 0.0
) -> TrainingJob:
    """Return a job whose blocks take 3 s of a rank alone, a third of them forward."""
    architecture = Architecture(
        BLOCKS, WIDTH, 8, SEQUENCE, 128, 4 * WIDTH, experts=experts, active_experts=min(2, experts)
    )
    model = (llama if experts > 1 else gpt)("made up", architecture)
    names = [layer.name for layer in model.layers]
    own = np.array([1.0 if re.match(r"block \d+ attention", name) else 0.0 for name in names])
    own[-1] = head
    times = cast(CallTimes, SameTimes(ranks, seconds))
    return TrainingJob(model, own, 2 * own, 0.0, times, 2, 2, passes=passes, samples=1)


def iteration(framework: ModelParallel, job: TrainingJob) -> Timeline:
    timeline = Timeline()
    framework.add_iteration(job, timeline, [None] * len(job.model.layers))
    return timeline


def forward_peak(timeline: Timeline, stage: int) -> int:
    """Return how many microbatches a stage keeps activations of at most."""
    kept = most = 0
    for one in timeline.operations:
        if one.stream == (f"stage {stage}" if stage else COMPUTE):
            kept += {FORWARD: 1, BACKWARD: -1}.get(one.phase, 0)
            most = max(most, kept)
    return most


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 8), (8, 3), (16, 32)])
def test_bubble_of_a_pipeline(schedule: str, stages: int, microbatches: int) -> None:
    job = job_of(stages, microbatches)
    timeline = iteration(ModelParallel(pipeline=stages, schedule=schedule), job)
    busy = microbatches * 3 * BLOCKS / stages
    # (p - 1) / m of the time in which a stage is busy: arXiv 2104.04473, section 2.2.1
    assert bubble_seconds(timeline.operations) == pytest.approx(busy * (stages - 1) / microbatches)
    assert timeline.end_of(COMPUTE) == pytest.approx(busy * (1 + (stages - 1) / microbatches))


@pytest.mark.parametrize(("stages", "chunks", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 4, 16)])
def test_bubble_of_interleaved_stages(stages: int, chunks: int, microbatches: int) -> None:
    job = job_of(stages, microbatches)
    timeline = iteration(ModelParallel(pipeline=stages, interleaved=chunks), job)
    busy = microbatches * 3 * BLOCKS / stages
    expected = busy * (stages - 1) / (microbatches * chunks)  # the same, section 2.2.2
    assert bubble_seconds(timeline.operations) == pytest.approx(expected)


def test_one_f_one_b_keeps_fewer_activations() -> None:
    job = job_of(4, 12)
    kept = [forward_peak(iteration(ModelParallel(pipeline=4), job), stage) for stage in range(4)]
    assert kept == [4, 3, 2, 1]
    assert ModelParallel(pipeline=4).order.kept_passes(0, 12) == 4
    assert ModelParallel(pipeline=4).order.kept_passes(0, 3) == 3
    assert ModelParallel(pipeline=4, schedule="gpipe").order.kept_passes(0, 12) == 12
    chunks = ModelParallel(pipeline=4, interleaved=2)
    assert chunks.order.kept_passes(0, 12) == forward_peak(iteration(chunks, job), 0)
    assert forward_peak(iteration(ModelParallel(pipeline=4, schedule="gpipe"), job), 0) == 12


@given(
    stages=st.sampled_from([1, 2, 4, 8]),
    chunks=st.sampled_from([1, 2]),
    rounds=st.integers(1, 3),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
)
@settings(max_examples=examples(40), deadline=None)
def test_every_stage_does_every_pass_once(
    stages: int, chunks: int, rounds: int, schedule: str
) -> None:
    if chunks > 1 and (schedule == "gpipe" or stages == 1):
        chunks = 1
    framework = ModelParallel(pipeline=stages, interleaved=chunks, schedule=schedule)
    job = job_of(stages, stages * rounds)
    for stage in range(stages):
        steps = framework.order.steps(stage, job.passes)
        assert len(set(steps)) == len(steps) == 2 * chunks * job.passes
        for step in steps:
            if step.phase == BACKWARD:
                assert steps.index(step._replace(phase=FORWARD)) < steps.index(step)
    layers = [
        layer
        for stage in range(stages)
        for chunk in range(chunks)
        for layer in framework.layers_of(job.model, stage, chunk)
    ]
    assert sorted(layers) == list(range(len(job.model.layers)))


@pytest.mark.parametrize(
    ("blocks", "stages", "chunks", "ends", "expected"),
    [
        (126, 8, 1, (0, 0), (15, *[16] * 6, 15)),  # Llama 3 405B, arXiv 2407.21783
        (126, 16, 1, (0, 0), (7, *[8] * 14, 7)),
        (126, 16, 8, (0, 0), (0, *[1] * 126, 0)),
        (61, 4, 1, (0, 0), (15, 16, 16, 14)),
        (16, 4, 2, (0, 0), (2,) * 8),
        (16, 4, 1, (2, 2), (2, 6, 6, 2)),
        (16, 3, 1, (0, 3), (7, 6, 3)),
        (16, 2, 2, (6, 0), (3, 5, 3, 5)),
        (2, 4, 1, (0, 0), (0, 1, 1, 0)),
    ],
)
def test_blocks_of_uneven_stages(
    blocks: int, stages: int, chunks: int, ends: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert divide_blocks(blocks, stages, chunks, *ends) == expected
    assert sum(expected) == blocks


@given(blocks=st.integers(1, 200), stages=st.integers(1, 40), chunks=st.integers(1, 4))
@settings(max_examples=examples(100), deadline=None)
def test_blocks_by_default_differ_by_few(blocks: int, stages: int, chunks: int) -> None:
    if blocks + 2 < stages * chunks and blocks % (stages * chunks):
        with pytest.raises(InputError, match="are too few"):
            divide_blocks(blocks, stages, chunks)
        return
    counts = divide_blocks(blocks, stages, chunks)
    assert len(counts) == stages * chunks
    assert sum(counts) == blocks
    assert max(counts) - min(counts) <= 2
    assert all(counts[1:-1])


def test_the_slowest_stage_decides_how_long_uneven_stages_take() -> None:
    microbatches, stages = 12, 3
    job = job_of(stages, microbatches)  # of blocks of 3 s
    timeline = iteration(ModelParallel(pipeline=stages, first_blocks=4, last_blocks=4), job)
    slowest, others = 3 * 8, 3 * 4
    # the first stage computes before and after the middle one, which pauses once: the last one has
    # 12 s for the first microbatch, beside 8 s of a forward pass of the middle one
    assert timeline.end_of(COMPUTE) == pytest.approx(microbatches * slowest + others + 12 - 8)
    even = iteration(ModelParallel(pipeline=2), job_of(2, microbatches)).end_of(COMPUTE)
    uneven = iteration(ModelParallel(pipeline=2, first_blocks=6), job_of(2, microbatches))
    assert uneven.end_of(COMPUTE) > even * 1.2
    busy = sum(float(one.end[0] - one.start[0]) for one in uneven.operations)
    assert busy == pytest.approx(3 * BLOCKS * microbatches)  # the same work
    assert bubble_seconds(uneven.operations) > bubble_seconds(
        iteration(ModelParallel(pipeline=2), job_of(2, microbatches)).operations
    )


def test_a_stage_holds_its_own_elements() -> None:
    job = job_of(4)
    framework = ModelParallel(pipeline=4, first_blocks=1)
    layers = [
        sum(job.model.layers[at].elements for at in framework.layers_of(job.model, stage, 0))
        for stage in range(4)
    ]
    tied = 128 * WIDTH
    assert stage_elements(framework, job.model) == [*layers[:3], layers[3] + tied]
    assert sum(layers) == job.model.elements


def test_messages_delay_the_next_stage() -> None:
    alone = iteration(ModelParallel(pipeline=4), job_of(4, 1)).end_of(COMPUTE)
    waited = iteration(ModelParallel(pipeline=4), job_of(4, 1, seconds=0.5)).end_of(COMPUTE)
    # three messages forward, three back, and the sum of the gradients of the embedding
    assert waited == pytest.approx(alone + 7 * 0.5)


def calls_of(framework: ModelParallel, job: TrainingJob) -> dict[tuple[str, int, int], int]:
    found: dict[tuple[str, int, int], int] = {}
    for one in iteration(framework, job).operations:
        if one.call is not None:
            key = (one.call.operation, one.call.nbytes, one.call.group.stride)
            found[key] = found.get(key, 0) + one.count
    return found


def test_tensor_parallelism_reduces_twice_per_block_and_pass() -> None:
    job = job_of(8, passes=3)
    nbytes = SEQUENCE * WIDTH * 2
    plain = calls_of(ModelParallel(tensor=4), job)
    # and once for the embedding, once for the head
    assert plain["allreduce", nbytes, 1] == 3 * (4 * BLOCKS + 2)
    again = calls_of(ModelParallel(tensor=4, recompute=True), job)
    assert again["allreduce", nbytes, 1] == 3 * (6 * BLOCKS + 2)
    divided = calls_of(ModelParallel(tensor=4, sequence_parallel=True), job)
    assert divided["allgather", nbytes, 1] == divided["reduce_scatter", nbytes, 1]
    assert ("allreduce", nbytes, 1) not in divided


def test_gradients_are_reduced_over_the_replicas_of_each_stage() -> None:
    job = job_of(16)
    reduced = calls_of(ModelParallel(tensor=2, pipeline=4), job)
    own = [key for key in reduced if key[2] == 2 and key[0] == "allreduce"]
    held = job.model.elements + 128 * WIDTH  # the last stage has the embedding of tokens, too
    assert sum(nbytes * reduced["allreduce", nbytes, 2] for _, nbytes, _ in own) == (
        held * job.gradient_bytes // 2
    )
    divided = calls_of(ModelParallel(tensor=2, pipeline=4, distributed=True), job)
    kinds = {name for name, _, stride in divided if stride == 2}
    assert kinds == {"reduce_scatter", "allgather"}


def test_first_and_last_stage_add_up_the_gradients_of_the_embedding() -> None:
    job = job_of(16, seconds=0.25)
    done = iteration(ModelParallel(tensor=2, pipeline=4), job).operations
    (found,) = [one for one in done if one.call and one.call.group.ends_of]
    assert found.call == Call("allreduce", 128 * WIDTH * 2 // 2, Group(2, 4, 4))
    assert found.call.group.members(16).tolist() == [[rank, rank + 12] for rank in range(4)]
    of_ends = {"stage 0 gradients", "stage 3 gradients"}
    assert of_ends <= {done[number].stream for number in found.after}
    (update,) = [one for one in done if one.phase == UPDATE]
    assert found.number in update.after


@pytest.mark.parametrize(("pipeline", "experts"), [(1, 1), (4, 4)])
def test_an_embedding_of_one_stage_or_one_use_is_not_added_up(pipeline: int, experts: int) -> None:
    done = iteration(ModelParallel(pipeline=pipeline), job_of(16, experts=experts)).operations
    assert not any(one.call.group.ends_of for one in done if one.call)


@pytest.mark.parametrize(
    ("order", "strides"),
    [
        ("tensor-data-pipeline", {"tensor": 1, "data": 2, "pipeline": 6}),
        ("pipeline-tensor-data", {"pipeline": 1, "tensor": 4, "data": 8}),
    ],
)
def test_order_of_the_dimensions_over_the_ranks(order: str, strides: dict[str, int]) -> None:
    framework, job = ModelParallel(tensor=2, pipeline=4, rank_order=order), job_of(24)
    for name, stride in strides.items():
        group = framework.group(job, name)
        assert group.stride == stride
        assert len(group.members(24)) * group.size == 24


@pytest.mark.parametrize("expert", [1, 2, 4])
def test_a_distributed_optimizer_updates_each_parameter_once(expert: int) -> None:
    """On the 16 ranks of each stage together, however the experts are divided."""
    job = job_of(32, passes=2, experts=4)
    framework = ModelParallel(tensor=2, pipeline=2, expert=expert, distributed=True)
    updated = updated_elements(framework, job.model, framework.replicas(job))
    assert sum(updated) * 16 == pytest.approx(job.model.elements, rel=0.01)


def test_experts_exchange_tokens_and_gradients_of_their_own() -> None:
    job = job_of(16, passes=2, experts=4)
    framework = ModelParallel(tensor=2, expert=4)
    found = calls_of(framework, job)
    tokens = SEQUENCE * WIDTH * 2 * 2  # two bytes, two active experts
    assert found["alltoall", tokens, 2] == 2 * 4 * BLOCKS
    experts = sum(one.elements for one in job.model.layers if one.name.endswith("experts"))
    assert found["allreduce", experts * 2 // (2 * 4), 8] == 1


def test_calls_are_those_of_a_public_workload(shared: Path) -> None:
    """Its block gathers and reduces 48 MiB, and exchanges 96 MiB of tokens among 16 ranks."""
    lines = (shared / "data" / "simai" / "workload_analytical.txt").read_text().splitlines()
    head = dict(re.findall(r"(\w+): (\d+)", lines[0]))
    tensor, expert = int(head["model_parallel_NPU_group"]), int(head["ep"])
    columns = [line.split("\t") for line in lines[2:]]
    forward = {(row[0], row[3], int(row[4])) for row in columns if row[3] != "NONE"}
    architecture = Architecture(96, 6144, 48, 4096, 50000, 1024, experts=16, active_experts=4)
    model = llama("like it", architecture)
    ones = np.ones(len(model.layers))
    times = cast(CallTimes, SameTimes(tensor * expert))
    job = TrainingJob(model, ones, ones, 0.0, times, 2, 2, samples=1)
    framework = ModelParallel(tensor=tensor, expert=expert, sequence_parallel=True)
    ours = {(name, nbytes) for name, nbytes, _ in calls_of(framework, job)}
    assert ("attention_column", "ALLGATHER", 4096 * 6144 * 2) in forward
    assert ("allgather", 4096 * 6144 * 2) in ours
    exchanged = next(nbytes for _, kind, nbytes in forward if kind == "ALLTOALL_EP")
    assert ("alltoall", exchanged) in ours


@pytest.mark.parametrize(
    ("ranks", "entry", "sentence"),
    [
        (12, {"tensor": 8}, "12 ranks cannot be divided into replicas of 8"),
        (20, {"pipeline": 20}, "16 blocks are too few for 20 parts .*: take at most 18"),
        (4, {"pipeline": 4, "first_blocks": 15}, "leave 1 of 16 blocks for 3 other parts"),
        (
            2,
            {"pipeline": 2, "interleaved": 2, "last_blocks": 3},
            "last_blocks: 3 blocks cannot be divided over interleaved: 2",
        ),
        (16, {"tensor": 16}, "8 attention heads cannot be divided over tensor: 16"),
        (4, {"expert": 3}, "expert: 3 must divide"),
        (4, {"pipeline": 4, "interleaved": 2}, r"passes \(6\) must be a multiple of pipeline"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    ranks: int, entry: dict[str, int], sentence: str
) -> None:
    framework = framework_from_record({"name": "megatron", **entry})
    job = job_of(ranks, passes=6)
    with pytest.raises(InputError, match=sentence):
        framework.add_iteration(job, Timeline(), [None] * len(job.model.layers))


def test_images_and_unknown_orders_are_refused() -> None:
    with pytest.raises(InputError, match="interleaved needs schedule 1f1b"):
        framework_from_record({"name": "megatron", "interleaved": 2})
    with pytest.raises(InputError, match=r"rank_order is one of .*, not 'data'"):
        framework_from_record({"name": "megatron", "rank_order": "data"})
    model = build_model("resnet50")
    ones = np.ones(len(model.layers))
    job = TrainingJob(model, ones, ones, 0.0, cast(CallTimes, SameTimes(4)))
    with pytest.raises(InputError, match="must be a transformer, not resnet50"):
        ModelParallel(tensor=2).add_iteration(job, Timeline(), [None] * len(model.layers))


@pytest.mark.parametrize(
    "settings",
    [{"tensor": 2}, {"pipeline": 4}, {"pipeline": 4, "interleaved": 2}, {"distributed": True}],
)
def test_overlapped_reductions_do_the_same_work(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_gradients, "LEAST_BUCKET", 100_000)
    monkeypatch.setattr(stage_gradients, "BUCKET_PER_REPLICA", 0)
    job = job_of(16, seconds=0.01)
    after, during = (
        iteration(ModelParallel(**settings, overlapped=overlapped), job).operations
        for overlapped in (False, True)
    )
    for phase in (FORWARD, BACKWARD):
        whole = [
            sum(float(one.end[0] - one.start[0]) for one in done if one.phase == phase)
            for done in (after, during)
        ]
        assert whole[0] == pytest.approx(whole[1])
    moved = [
        {
            (one.call.operation, one.call.group): sum(
                other.count * other.call.nbytes
                for other in done
                if other.call and other.call[::2] == one.call[::2]
            )
            for one in done
            if one.call
        }
        for done in (after, during)
    ]
    assert moved[0] == moved[1]


def test_gradients_are_reduced_while_earlier_blocks_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_of(16, passes=1, seconds=1.0)
    monkeypatch.setattr(stage_gradients, "BUCKET_PER_REPLICA", 0)
    monkeypatch.setattr(stage_gradients, "LEAST_BUCKET", job.model.elements // 4)
    after, during = (
        iteration(ModelParallel(overlapped=overlapped), job) for overlapped in (False, True)
    )
    calls = [one for one in during.operations if one.stream == "stage 0 gradients"]
    assert len(calls) == 4
    # all but the last call run beside the 32 s of the backward pass
    assert after.end_of(COMPUTE) == pytest.approx(3 * BLOCKS + 1.0)
    assert during.end_of(COMPUTE) == pytest.approx(3 * BLOCKS + 1.0)
    assert all(one.start[0] < 3 * BLOCKS for one in calls[:-1])


def test_later_stages_and_chunks_reduce_all_gradients_at_once() -> None:
    job = job_of(16)
    framework = ModelParallel(pipeline=2, interleaved=2, overlapped=True)
    for stage, chunk in ((0, 1), (1, 0), (1, 1)):
        assert list(gradient_buckets(framework, job, stage, chunk)) == [
            framework.layers_of(job.model, stage, chunk)
        ]


def routed(exponent: float, capacity: float = 0.0) -> ModelParallel:
    return ModelParallel(expert=4, routing_exponent=exponent, capacity_factor=capacity)


def test_experts_that_all_want_alike_exchange_equal_blocks() -> None:
    assert (
        calls_of(routed(0.0), job_of(4, experts=8)).keys()
        == calls_of(ModelParallel(expert=4), job_of(4, experts=8)).keys()
    )


def test_dropped_tokens_are_not_sent() -> None:
    """Limit experts that want 0.368, 0.184, 0.123, ... of the tokens to 0.15 each."""
    wanted = np.arange(1, 9) ** -1.0 / (np.arange(1, 9) ** -1.0).sum()
    kept = np.minimum(wanted, 1.2 / 8).sum()
    assert Routing(1.0, 1.2, 8).taken(4).sum() == pytest.approx(kept)
    tokens = SEQUENCE * WIDTH * 2 * 2
    found = {name: nbytes for name, nbytes, _ in calls_of(routed(1.0), job_of(4, experts=8))}
    assert found["alltoallv"] == tokens


def test_the_rank_with_most_tokens_decides() -> None:
    """The experts alone compute: 4 ranks with 2 of 8 experts each, one of them the most wanted."""
    job = job_of(4, experts=8)
    of_experts = np.array([float(one.name.endswith("experts")) for one in job.model.layers])
    job = replace(job, forward=of_experts, backward=2 * of_experts)

    def seconds(framework: ModelParallel) -> float:
        ends = [one.end.max() for one in iteration(framework, job).operations]
        return float(max(ends))

    even, limited, free = (seconds(routed(*one)) for one in ((0.0,), (1.0, 1.2), (1.0,)))
    most = Routing(1.0, np.inf, 8).taken(4).max() * 4
    assert free == pytest.approx(even * most)
    assert routed(1.0).compute_seconds(job) == pytest.approx(free)
    assert even < limited <= even * 1.2 < free


def test_uneven_tokens_are_simulated() -> None:
    """Compare the linear exchange on one switch with what the most wanted rank receives."""
    placement = one_switch(4)
    costs = nominal_calibration(placement.topology)
    predictor = CallPredictor(placement, costs, HOST)
    linear = AlgorithmChoice("linear", runner=SCHEDULE)
    nbytes = 4 << 20
    own = Routing(1.0, np.inf, 8)
    call = Call("alltoallv", nbytes, Group(4), own)
    most = own.taken(4).max() * 3 * nbytes  # from three others
    found = simulate_groups(call, linear, predictor)
    assert found == pytest.approx(LATENCY + most / RATE, rel=1e-3)
    pairs = Call("alltoallv", nbytes, Group(2, 2), own)
    shares = own.taken(2)
    two = simulate_groups(pairs, linear, predictor)
    assert two == pytest.approx(LATENCY + shares.max() * nbytes / RATE, rel=1e-3)


def test_a_dispatcher_sends_tokens_once_to_each_node() -> None:
    job = job_of(4, experts=8)
    tokens = SEQUENCE * WIDTH * 2
    for routing in (0.0, 1.0):
        framework = ModelParallel(expert=4, dispatcher="deepep", routing_exponent=routing)
        found = {name: nbytes for name, nbytes, _ in calls_of(framework, job)}
        assert found[DISPATCH] == tokens
        assert not {"alltoall", "alltoallv"} & found.keys()


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_hardly_uneven_tokens_take_as_long_as_even_ones(dispatcher: str) -> None:
    placement = Placement.block(load_machine("preset:dgx-h100").topology, 8, 16)
    machine = load_machine("preset:dgx-h100")
    times = CallTimes(placement, machine.calibration, CUDA, FastestKnown())

    def seconds(exponent: float) -> float:
        framework = ModelParallel(expert=16, dispatcher=dispatcher, routing_exponent=exponent)
        work = stage_work(framework, job_of(16, experts=32), range(BLOCKS), FORWARD)
        return sum(
            count * times.seconds(call._replace(nbytes=32 << 20)) for call, count in work.calls
        )

    assert seconds(1e-4) == pytest.approx(seconds(0.0), rel=0.1)


def test_a_capacity_below_one_drops_tokens_that_want_all_alike() -> None:
    job = job_of(4, experts=8)
    found = ModelParallel(expert=4, capacity_factor=0.5).routing(job)
    assert found is not None
    assert found.taken(4) == pytest.approx(np.full(4, 0.5 / 4))
    assert ModelParallel(expert=4, capacity_factor=1.5).routing(job) is None


def test_no_expert_gets_a_token_twice() -> None:
    """Give the first of eight experts half of the copies of which it wants 0.65."""
    parts = np.sort(Routing(2.0, np.inf, 8, copies=2).taken(8))[::-1]
    rest = np.arange(2, 9) ** -2.0
    assert parts == pytest.approx([0.5, *(0.5 * rest / rest.sum())])


def test_calls_of_a_dispatcher_are_timed_by_its_messages() -> None:
    placement = one_switch(4)
    costs = nominal_calibration(placement.topology)
    times = CallTimes(placement, costs, HOST, FastestKnown())
    direct = TokenDispatch("deepep-low-latency", 2, 8)
    timed = times.timed(Call(DISPATCH, 1 << 20, Group(4), dispatch=direct))
    assert timed.algorithm == "deepep-low-latency"
    assert timed.seconds == pytest.approx(30e-6 + LATENCY + 3 * (1 << 19) / RATE, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dispatcher": "deepep"}, "dispatcher and expert_nodes need expert of at least 2"),
        ({"expert_nodes": 1}, "dispatcher and expert_nodes need expert of at least 2"),
        (
            {"expert": 2, "expert_nodes": 1, "routing_exponent": 1},
            "expert_nodes needs routing_exponent 0",
        ),
        ({"expert": 2, "dispatcher": "nccl"}, "dispatcher is one of alltoall, hierarchical"),
    ],
)
def test_settings_of_dispatchers_that_mean_nothing_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        framework_from_record({"name": "megatron", **settings})


def test_arguments_name_the_dispatcher() -> None:
    model = job_of(2, experts=8).model
    lines = {
        name: framework_arguments(ModelParallel(expert=2, dispatcher=name), model, 2)
        for name in DISPATCHERS
    }
    assert "--moe-token-dispatcher-type alltoall" in lines["alltoall"]
    deepep = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep"
    assert deepep in lines["deepep"]
    assert any(line.startswith("# dispatcher") for line in lines["deepep-low-latency"])
    limited = ModelParallel(expert=2, dispatcher="deepep", expert_nodes=4)
    assert any("group-topk 4" in line for line in framework_arguments(limited, model, 2))
