"""Exchanges of tokens with experts, against drawn tokens and against what DeepEP publishes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.exchanges import RATE, one_switch
from tests.support.unequal_topologies import LATENCY
from tuner.base.errors import InputError
from tuner.core.schedule import Round
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.machines.loader import load_machine
from tuner.prediction.block_counts import Routing
from tuner.prediction.call_predictor import CallPredictor
from tuner.topology import CUDA, HOST, Placement
from tuner.topology.readers import nominal_calibration
from tuner.training.groups import DISPATCH, Call, Group, simulate_groups
from tuner.training.token_dispatch import (
    DEEPEP,
    HIERARCHICAL,
    KERNEL_SECONDS,
    LOW_LATENCY,
    TokenDispatch,
)

PPN = 8
FP8 = 7168 * (1 + 4 / 128)  # bytes of a token, with a scale for each 128 numbers
BF16 = 7168 * 2
COPIES = 8
EXPERTS = 256
LINEAR = AlgorithmChoice("linear", runner=SCHEDULE)
NIC = 0.9 * 50e9
NVLINK = {"H800": 160e9, "H100": 450e9}
# deepseek-ai/DeepEP, docs/legacy.md, of H800: GPUs with 128 tokens each, us of dispatching and of
# combining
LOW_LATENCIES = [
    (8, 77, 114),
    (16, 118, 195),
    (32, 155, 273),
    (64, 173, 314),
    (128, 192, 369),
    (256, 194, 360),
]
# The same page, of H800, and README.md, of GPUs with SM90 whose NVLink must be that of H100: GPUs,
# tokens, most nodes of a token, and GB/s of what a rank sends to all nodes with its own, each token
# once to a node
RATES = [
    ("H800", 16, 4096, 4, 43, 43),
    ("H800", 32, 4096, 4, 58, 57),
    ("H800", 64, 4096, 4, 51, 50),
    ("H100", 16, 8192, 0, 90, 81),
    ("H100", 32, 8192, 0, 61, 61),
]


def nodes_of(p: int, ppn: int = PPN) -> np.ndarray:
    return np.arange(p) // ppn


def rounds_of(
    made: TokenDispatch, chunks: int, node_of: np.ndarray, routing: Routing | None = None
) -> list[Round]:
    """Return the rounds of one group, of all ranks."""
    return list(made.rounds(chunks, np.arange(len(node_of))[None], node_of, routing))


def port_seconds(made: TokenDispatch, p: int, nbytes: float, nvlink: float) -> float:
    """Return how long the busiest port of a GPU needs, round after round."""
    node_of, seconds = nodes_of(p), made.kernel_seconds
    for r in rounds_of(made, round(nbytes), node_of):
        inside = node_of[r.src] == node_of[r.dst]
        seconds += max(
            np.bincount(end[rows], r.count[rows], p).max() / rate
            for rows, rate in ((~inside, NIC), (inside, nvlink))
            for end in (r.src, r.dst)
        )
    return seconds


def simulated_seconds(made: TokenDispatch, p: int, nbytes: float) -> float:
    """Return the simulated time on as many GPUs of DGX H100."""
    machine = load_machine("preset:dgx-h100")
    placement = Placement.block(machine.topology, PPN, p)
    predictor = CallPredictor.of_machine(placement, machine.calibration, CUDA, with_nccl=False)
    call = Call(DISPATCH, round(nbytes), Group(p), dispatch=made)
    return simulate_groups(call, LINEAR, predictor)


@pytest.mark.parametrize(("p", "dispatched", "combined"), LOW_LATENCIES)
def test_published_times_of_low_latency_kernels(p: int, dispatched: float, combined: float) -> None:
    made = TokenDispatch(LOW_LATENCY, COPIES, EXPERTS)
    for size, told in ((FP8, dispatched), (BF16, combined)):
        found = port_seconds(made, p, 128 * size, NVLINK["H800"])
        assert found == pytest.approx(told * 1e-6, rel=0.095)
        if p > PPN:  # the NICs decide, not the NVLink of another GPU
            found = simulated_seconds(made, p, 128 * size)
            assert found == pytest.approx(told * 1e-6, rel=0.12)


@pytest.mark.parametrize(("gpu", "p", "tokens", "most_nodes", "dispatched", "combined"), RATES)
def test_published_rates_of_high_throughput_kernels(
    gpu: str, p: int, tokens: int, most_nodes: int, dispatched: float, combined: float
) -> None:
    made, nodes = TokenDispatch(DEEPEP, COPIES, EXPERTS, most_nodes), p // PPN
    within = min(nodes, most_nodes or nodes)
    reached = within * (1 - (1 - 1 / within) ** COPIES)
    for size, rate in ((FP8, dispatched), (BF16, combined)):
        told = reached * tokens * size / (rate * 1e9)
        found = port_seconds(made, p, tokens * size, NVLINK[gpu])
        assert found == pytest.approx(told, rel=0.17)
        if gpu == "H100":
            assert simulated_seconds(made, p, tokens * size) == pytest.approx(told, rel=0.26)


def drawn_experts(rng: np.random.Generator, chances: np.ndarray, copies: int) -> np.ndarray:
    """Draw different experts for a token, each as often as its share of all copies says."""
    order = rng.permutation(len(chances))
    ends = np.cumsum(np.minimum(chances[order] / chances.sum() * copies, 1.0))
    places = np.searchsorted(ends, (np.arange(copies) + rng.random()) * ends[-1] / copies)
    drawn: np.ndarray = order[places]
    return drawn


# How far nodes may be off: experts of one node are taken to be wanted alike.
@pytest.mark.parametrize(
    ("exponent", "most_nodes", "experts", "off"),
    [(0.0, 0, 32, 0.04), (0.0, 2, 32, 0.04), (0.6, 0, 32, 0.04), (1.2, 0, 16, 0.12)],
)
def test_messages_carry_what_drawn_tokens_need(
    exponent: float, most_nodes: int, experts: int, off: float
) -> None:
    """Draw the experts of 8,000 tokens of rank 5 one by one, on 4 nodes of 4 ranks."""
    p, ppn, copies, tokens = 16, 4, 3, 8_000
    routing = Routing(exponent, np.inf, experts) if exponent else None
    node_of, rng, each = nodes_of(p, ppn), np.random.default_rng(1), experts // p
    wanted = np.repeat((routing.taken(p) if routing else np.full(p, 1 / p)) / each, each)
    to_node, to_rank = np.zeros(p // ppn), np.zeros(p)
    for _ in range(tokens):
        nodes = rng.permutation(p // ppn)[: most_nodes or p // ppn]
        allowed = np.isin(np.arange(experts) // (each * ppn), nodes)
        drawn = drawn_experts(rng, wanted * allowed, copies) // each
        to_rank[np.unique(drawn)] += 1 / tokens
        to_node[np.unique(drawn // ppn)] += 1 / tokens
    made = TokenDispatch(HIERARCHICAL, copies, experts, most_nodes)
    first, second = rounds_of(made, 1_000_000, node_of, routing)
    sent = dict(zip(first.dst[first.src == 5], first.count[first.src == 5] / 1e6, strict=True))
    assert {int(rank) for rank in sent} == {1, 9, 13}  # the others in its place
    for rank, part in sent.items():
        assert part == pytest.approx(to_node[node_of[rank]], rel=off)
    passed_on = second.count[(second.src == 5) & (second.dst == 6)].sum() / 1e6
    assert passed_on == pytest.approx(4 * to_rank[6], rel=0.08)  # of a rank of each node


def sent_by(r: Round, rank: int) -> int:
    return int(r.count[r.src == rank].sum())


def test_one_expert_on_each_rank_gets_each_copy_once() -> None:
    """One rank on each node: a token reaches a node as often as it is sent to its expert."""
    routing, copies = Routing(1.2, np.inf, 8), 2
    shares = routing.taken(8)
    (only,) = rounds_of(TokenDispatch(HIERARCHICAL, copies, 8), 1_000_000, nodes_of(8, 1), routing)
    for rank in range(8):
        received = only.count[(only.dst == rank) & (only.src == (rank + 1) % 8)]
        assert received / 1e6 == pytest.approx(min(1.0, copies * shares[rank]), rel=1e-5)


def test_all_copies_go_directly_with_low_latency() -> None:
    (only,) = rounds_of(TokenDispatch(LOW_LATENCY, 2, 8), 8000, nodes_of(8, 4))
    assert [sent_by(only, rank) for rank in range(8)] == [2 * 8000 * 7 // 8] * 8


def test_pieces_carry_what_the_whole_does() -> None:
    whole, pieces = (
        rounds_of(TokenDispatch(name, 2, 8), 80_000, nodes_of(8, 4))
        for name in (HIERARCHICAL, DEEPEP)
    )
    assert (len(whole), len(pieces)) == (2, 9)
    sums = [sum(sent_by(r, 3) for r in rounds) for rounds in (whole, pieces)]
    assert sums[0] == pytest.approx(sums[1], abs=9 * 8)


@pytest.mark.parametrize("name", [HIERARCHICAL, DEEPEP])
@pytest.mark.parametrize("ppn", [1, 8])
def test_one_step_is_enough_on_one_node_and_with_one_rank_on_each(name: str, ppn: int) -> None:
    (only,) = rounds_of(TokenDispatch(name, 2, 8), 8000, nodes_of(8, ppn))
    told = 1 - (7 / 8) * (6 / 7)  # that one of two different experts of eight is on a rank
    assert only.count.tolist() == [int(np.ceil(8000 * told))] * 56


@pytest.mark.parametrize(
    ("ranks", "ppn", "group"),
    [(24, 6, Group(8)), (24, 8, Group(12)), (24, 8, Group(4, 3)), (20, 8, Group(10))],
)
def test_each_group_sends_by_its_own_nodes(ranks: int, ppn: int, group: Group) -> None:
    made, node_of, members = (
        TokenDispatch(HIERARCHICAL, 2, 24),
        nodes_of(ranks, ppn),
        group.members(ranks),
    )
    together = list(made.rounds(100_000, members, node_of, None))
    for own in members:
        alone = rounds_of(made, 100_000, node_of[own])
        moved = [r.select(np.isin(r.src, own)) for r in together]
        for one, other in zip(alone, [r for r in moved if len(r)], strict=True):
            pairs = zip(own[one.src], own[one.dst], one.count, strict=True)
            assert {*pairs} == {*zip(other.src, other.dst, other.count, strict=True)}


def test_nodes_with_too_few_experts_are_refused() -> None:
    with pytest.raises(InputError, match="expert_nodes: 1 of 16 nodes hold 4 experts, and a token"):
        rounds_of(TokenDispatch(DEEPEP, 8, 64, 1), 1000, nodes_of(16, 1))


def test_an_exchange_is_simulated_for_all_groups_at_once() -> None:
    """Four ranks at one switch, in two groups of two, each with half of the experts."""
    placement = one_switch(4)
    predictor = CallPredictor(placement, nominal_calibration(placement.topology), HOST)
    made = TokenDispatch(LOW_LATENCY, 2, 8)
    found = simulate_groups(Call(DISPATCH, 1 << 20, Group(2, 2), None, made), LINEAR, predictor)
    bare = simulate_groups(Call("alltoall", 2 << 20, Group(2, 2)), LINEAR, predictor)
    assert found == pytest.approx(KERNEL_SECONDS + bare, rel=1e-6)


def test_gigabytes_of_tokens_are_simulated() -> None:
    placement = one_switch(2)
    predictor = CallPredictor(placement, nominal_calibration(placement.topology), HOST)
    call = Call(DISPATCH, 1 << 33, Group(2), None, TokenDispatch(LOW_LATENCY, 2, 8))
    found = simulate_groups(call, LINEAR, predictor)
    assert found == pytest.approx(KERNEL_SECONDS + LATENCY + (1 << 33) / RATE, rel=1e-6)
