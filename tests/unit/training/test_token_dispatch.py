"""Exchanges of tokens with experts, against drawn tokens and against what DeepEP publishes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.exchanges import one_switch
from tuner.core.schedule import Round
from tuner.core.table import SCHEDULE, AlgorithmChoice
from tuner.prediction.block_counts import Routing
from tuner.prediction.call_predictor import CallPredictor
from tuner.topology import HOST
from tuner.topology.readers import nominal_calibration
from tuner.training.groups import DISPATCH, Call, Group, simulate_groups
from tuner.training.token_dispatch import (
    DEEPEP,
    HIERARCHICAL,
    KERNEL_SECONDS,
    LOW_LATENCY,
    Dispatch,
)

PPN = 8
FP8, BF16 = 7168 * (1 + 4 / 128), 7168 * 2  # bytes of a token; FP8 has a scale for each 128
COPIES, EXPERTS = 8, 256
LINEAR = AlgorithmChoice("linear", runner=SCHEDULE)
NIC, NVLINK = 0.9 * 50e9, {"H800": 160e9, "H100": 450e9}


def nodes_of(p: int, ppn: int = PPN) -> np.ndarray:
    return np.arange(p) // ppn


def port_seconds(made: Dispatch, p: int, nbytes: float, nvlink: float) -> float:
    """Return how long the busiest port of a GPU needs, round after round."""
    node_of, seconds = nodes_of(p), made.kernel_seconds
    for r in made.rounds(round(nbytes), node_of, None):
        inside = node_of[r.src] == node_of[r.dst]
        seconds += max(
            np.bincount(end[rows], r.count[rows], p).max() / rate
            for rows, rate in ((~inside, NIC), (inside, nvlink))
            for end in (r.src, r.dst)
        )
    return seconds


# deepseek-ai/DeepEP, docs/legacy.md: 128 tokens, us of dispatching and combining
@pytest.mark.parametrize(
    ("p", "dispatched", "combined"),
    [
        (8, 77, 114),
        (16, 118, 195),
        (32, 155, 273),
        (64, 173, 314),
        (128, 192, 369),
        (256, 194, 360),
    ],
)
def test_published_times_of_low_latency_kernels(p: int, dispatched: float, combined: float) -> None:
    made = Dispatch(LOW_LATENCY, COPIES, EXPERTS)
    for size, told in ((FP8, dispatched), (BF16, combined)):
        found = port_seconds(made, p, 128 * size, NVLINK["H800"])
        assert found == pytest.approx(told * 1e-6, rel=0.095)


# The same page, and README.md for H100: tokens, and GB/s of what a rank sends to all nodes with its
# own, each token once to a node
@pytest.mark.parametrize(
    ("gpu", "p", "tokens", "most_nodes", "dispatched", "combined"),
    [
        ("H800", 16, 4096, 4, 43, 43),
        ("H800", 32, 4096, 4, 58, 57),
        ("H800", 64, 4096, 4, 51, 50),
        ("H100", 16, 8192, 0, 90, 81),
        ("H100", 32, 8192, 0, 61, 61),
    ],
)
def test_published_rates_of_high_throughput_kernels(
    gpu: str, p: int, tokens: int, most_nodes: int, dispatched: float, combined: float
) -> None:
    made, nodes = Dispatch(DEEPEP, COPIES, EXPERTS, most_nodes), p // PPN
    within = most_nodes or nodes
    reached = min(nodes, within) * (1 - (1 - 1 / min(nodes, within)) ** COPIES)
    for size, rate in ((FP8, dispatched), (BF16, combined)):
        told = reached * tokens * size / (rate * 1e9)
        found = port_seconds(made, p, tokens * size, NVLINK[gpu])
        assert found == pytest.approx(told, rel=0.17)


@pytest.mark.parametrize("most_nodes", [0, 2])
@pytest.mark.parametrize("exponent", [0.0, 0.4])
def test_messages_carry_what_drawn_tokens_need(most_nodes: int, exponent: float) -> None:
    """Draw the experts of 20,000 tokens of rank 5 one by one, on 4 nodes of 4 ranks."""
    p, ppn, copies, experts, tokens = 16, 4, 3, 32, 20_000
    routing = Routing(exponent, np.inf, experts) if exponent else None
    node_of, rng = nodes_of(p, ppn), np.random.default_rng(1)
    wanted = np.repeat(routing.taken(p) if routing else np.full(p, 1 / p), experts // p)
    if exponent:  # within a rank the model knows no more than the sum
        wanted = np.repeat(wanted.reshape(p, -1).mean(1), experts // p)
    to_node, to_rank = np.zeros(p // ppn), np.zeros(p)
    for _ in range(tokens):
        nodes = rng.permutation(p // ppn)[: most_nodes or p // ppn]
        allowed = np.isin(nodes_of(experts, experts * ppn // p), nodes)
        chances = wanted * allowed
        drawn = rng.choice(experts, copies, replace=False, p=chances / chances.sum())
        to_rank[np.unique(drawn // (experts // p))] += 1 / tokens
        to_node[np.unique(drawn // (experts // p) // ppn)] += 1 / tokens
    made = Dispatch(HIERARCHICAL, copies, experts, most_nodes)
    first, second = made.rounds(1_000_000, node_of, routing)
    sent = dict(zip(first.dst[first.src == 5], first.count[first.src == 5] / 1e6, strict=True))
    assert {int(rank) for rank in sent} == {1, 9, 13}  # the others in its place
    for rank, part in sent.items():
        assert part == pytest.approx(to_node[node_of[rank]], abs=0.03)
    passed_on = second.count[(second.src == 5) & (second.dst == 6)].sum() / 1e6
    assert passed_on == pytest.approx(4 * to_rank[6], abs=0.12)  # of a rank of each node


def sent_by(r: Round, rank: int) -> int:
    return int(r.count[r.src == rank].sum())


def test_all_copies_go_directly_with_low_latency() -> None:
    (only,) = Dispatch(LOW_LATENCY, 2, 8).rounds(8000, nodes_of(8, 4), None)
    assert [sent_by(only, rank) for rank in range(8)] == [2 * 8000 * 7 // 8] * 8


def test_pieces_carry_what_the_whole_does() -> None:
    whole, pieces = (
        list(Dispatch(name, 2, 8).rounds(8000, nodes_of(8, 4), None))
        for name in (HIERARCHICAL, DEEPEP)
    )
    assert (len(whole), len(pieces)) == (2, 9)
    sums = [sum(sent_by(r, 3) for r in rounds) for rounds in (whole, pieces)]
    assert sums[0] == pytest.approx(sums[1], abs=9 * 8)


@pytest.mark.parametrize("ppn", [1, 8])
def test_one_step_is_enough_on_one_node_and_with_one_rank_on_each(ppn: int) -> None:
    rounds = list(Dispatch(HIERARCHICAL, 2, 8).rounds(8000, nodes_of(8, ppn), None))
    assert len(rounds) == 1
    told = 1 - (7 / 8) * (6 / 7)  # that one of two different experts of eight is on a rank
    assert rounds[0].count.tolist() == [int(np.ceil(8000 * told))] * 56


def test_an_exchange_is_simulated_for_all_groups_at_once() -> None:
    """Four ranks at one switch, in two groups of two: each sends 7/8 of its tokens to another."""
    placement = one_switch(4)
    predictor = CallPredictor(placement, nominal_calibration(placement.topology), HOST)
    made = Dispatch(LOW_LATENCY, 2, 8)
    call = Call(DISPATCH, 1 << 20, Group(2, 2), dispatch=made)
    choice = call.own_algorithm
    assert choice is not None
    assert choice.algorithm == LOW_LATENCY
    found = simulate_groups(call, choice, predictor)
    bare = simulate_groups(Call("alltoall", 2 << 20, Group(2, 2)), LINEAR, predictor)
    assert found == pytest.approx(KERNEL_SECONDS + bare, rel=1e-6)
