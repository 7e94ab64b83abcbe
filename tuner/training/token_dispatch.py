"""Exchanges of tokens with experts by kernels made for it: which bytes go where, as schedules.

An all-to-all sends a token once for each of its experts. A hierarchical exchange sends it once to
each node with such experts, to the rank there in the place of the sender, which passes it on to the
ranks with the experts; the results come back the same way. DeepEP's high-throughput kernels do this
in pieces, so that both steps run at once, and its low-latency kernels send each copy directly.

What DeepEP publishes of itself (deepseek-ai/DeepEP, docs/legacy.md and README.md, 8 to 256 H800 and
H100 with a 400 Gb/s NIC each) is what these messages take at nine tenths of the NICs' line rate and
at the full rate of NVLink, after KERNEL_SECONDS: within 9 % for the low-latency kernels, and 17 %
for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.core.schedule import Round
from tuner.prediction.block_counts import Routing

ALLTOALL, HIERARCHICAL = "alltoall", "hierarchical"
DEEPEP, LOW_LATENCY = "deepep", "deepep-low-latency"
DISPATCHERS = (ALLTOALL, HIERARCHICAL, DEEPEP, LOW_LATENCY)
KERNEL_SECONDS = 30e-6  # of DeepEP's kernels: what their least published times leave
PIECES = {HIERARCHICAL: 1, DEEPEP: 8}  # of an exchange, which follow one another in both steps


class Dispatch(NamedTuple):
    """How tokens reach their experts, other than by an all-to-all.

    dispatcher  HIERARCHICAL, DEEPEP or LOW_LATENCY
    copies      different experts of each token
    experts     number of experts
    most_nodes  nodes on which the experts of a token are at most, in groups of equally many; 0: all
    """

    dispatcher: str
    copies: int
    experts: int
    most_nodes: int = 0

    @property
    def kernel_seconds(self) -> float:
        """Return the seconds that an exchange takes besides its messages."""
        return 0.0 if self.dispatcher == HIERARCHICAL else KERNEL_SECONDS

    def rounds(self, nbytes: int, node_of: IntArray, routing: Routing | None) -> Iterator[Round]:
        """Yield rounds of messages by which each rank sends its tokens to their experts.

        nbytes      bytes of the tokens of one rank
        node_of     node of each rank, shape (p,)
        routing     how tokens want experts; None for all alike

        Chunks are single bytes, and only the number of them in each message has a meaning.
        """
        p = len(node_of)
        wanted = routing.taken(p) if routing else np.full(p, 1 / p)
        if self.dispatcher == LOW_LATENCY:
            yield _messages(np.tile(nbytes * self.copies * wanted, (p, 1)))
            return
        pieces = PIECES[self.dispatcher]
        first, second = (nbytes / pieces * part for part in self._two_steps(node_of, wanted))
        whole = _messages(first + second)
        made = (_messages(first), *[whole] * (pieces - 1), _messages(second))
        yield from (one for one in made if len(one))

    def _two_steps(self, node_of: IntArray, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the part of its tokens that each rank (row) sends to each other one, by step."""
        p, nodes = len(node_of), np.unique(node_of)
        on_node = node_of[:, None] == nodes  # of each rank (row) and node
        hits_node = self._reached(wanted @ on_node, len(nodes))
        hits_rank = self._reached(wanted, len(nodes))
        first, second = np.zeros((p, p)), np.zeros((p, p))
        place = np.tril(node_of[:, None] == node_of, -1).sum(axis=1)  # among the ranks of its node
        for node, ranks in enumerate(map(np.flatnonzero, on_node.T)):
            relay = np.where(on_node[:, node], np.arange(p), ranks[place % len(ranks)])
            first[np.arange(p), relay] = hits_node[node]
            np.add.at(second, relay, np.where(on_node[:, node], hits_rank, 0.0))
        return first, second

    def _reached(self, parts: FloatArray, nodes: int) -> FloatArray:
        """Return the part of all tokens of which an expert is among given parts of the wishes."""
        limited = min(self.most_nodes or nodes, nodes) / nodes
        experts = max(float(self.copies), self.experts * limited)
        drawn = np.arange(self.copies)[:, None]
        missed = np.clip((experts * (1 - parts / limited) - drawn) / (experts - drawn), 0, 1)
        reached: FloatArray = limited * (1 - missed.prod(axis=0))
        return reached


def _messages(amounts: FloatArray) -> Round:
    """Return a round with a message for each pair of ranks, those to the next rank first."""
    p = len(amounts)
    distance, src = np.divmod(np.arange(p, p * p), p)
    dst = (src + distance) % p
    amount = np.ceil(amounts[src, dst]).astype(np.int64)
    return Round.of(src, dst, 0, 0, amount).select(amount > 0)
