"""Exchanges of tokens with experts by kernels made for it: which bytes go where.

An all-to-all sends a token once for each of its experts. A hierarchical exchange sends it once to
each node with such experts, to the rank there in the place of the sender, which passes it on to the
ranks with the experts; the results come back the same way. DeepEP's high-throughput kernels do this
in pieces, so that both steps run at once, and its low-latency kernels send each copy directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError
from tuner.core.schedule import Round
from tuner.prediction.block_counts import Routing

ALLTOALL, HIERARCHICAL = "alltoall", "hierarchical"
DEEPEP, LOW_LATENCY = "deepep", "deepep-low-latency"
DISPATCHERS = (ALLTOALL, HIERARCHICAL, DEEPEP, LOW_LATENCY)
# Of DeepEP's kernels: what the published times of its low-latency kernels on 8 to 256 GPUs leave
# beside their messages at nine tenths of the line rate (deepseek-ai/DeepEP, docs/legacy.md).
KERNEL_SECONDS = 30e-6
TRAINING_DISPATCHERS = DISPATCHERS[:-1]  # the low-latency kernels are for inference
PIECES = {HIERARCHICAL: 1, DEEPEP: 8}  # of an exchange, which follow one another in both steps


class TokenDispatch(NamedTuple):
    """The way in which tokens reach their experts, other than by an all-to-all.

    dispatcher  HIERARCHICAL, DEEPEP or LOW_LATENCY
    copies      different experts of each token
    experts     number of experts
    most_nodes  most nodes that hold the experts of a token; 0: no limit
    """

    dispatcher: str
    copies: int
    experts: int
    most_nodes: int = 0

    @property
    def kernel_seconds(self) -> float:
        """Return the seconds that an exchange takes besides its messages."""
        return 0.0 if self.dispatcher == HIERARCHICAL else KERNEL_SECONDS

    def rounds(
        self, chunks: int, members: IntArray, node_of: IntArray, routing: Routing | None
    ) -> Iterator[Round]:
        """Yield rounds of messages by which ranks send their tokens to the experts of their group.

        chunks      chunks of the tokens of one rank
        members     ranks of each group, shape (groups, ranks of a group)
        node_of     node of each rank of the job, shape (p,)
        routing     how tokens want experts; None for all alike

        Only the number of chunks in each message has a meaning. Raises InputError where
        `most_nodes` nodes hold fewer experts than a token has.
        """
        size = members.shape[1]
        wanted = routing.taken(size) if routing else np.full(size, 1 / size)
        own = np.eye(size, dtype=bool)
        steps = [self._steps(node_of[group], wanted) for group in members]
        parts = [np.where(own, 0.0, np.stack(step)) for step in zip(*steps, strict=True)]
        parts = [part for part in parts if part.any()]
        pieces = PIECES[self.dispatcher] if len(parts) > 1 else 1
        amounts = [chunks / pieces * part for part in parts]
        between = [np.add(*amounts)] * (pieces - 1) if pieces > 1 else []
        for amount in (*amounts[:1], *between, *amounts[1:]):
            yield _messages(amount, members, node_of)

    def _steps(self, node_of: IntArray, wanted: FloatArray) -> Sequence[FloatArray]:
        """Return the part of its tokens that each rank (row) of a group sends to each, by step.

        wanted      part of all copies that each rank of the group takes, shape (ranks of a group,)
        """
        p, nodes = len(node_of), np.unique(node_of)
        if self.dispatcher == LOW_LATENCY:
            return [np.tile(self.copies * wanted, (p, 1))]
        on_node = node_of[:, None] == nodes  # of each rank (row) and node
        hits_node = self._reached(wanted @ on_node, on_node.sum(axis=0) / p, len(nodes))
        hits_rank = self._reached(wanted, np.full(p, 1 / p), len(nodes))
        place = _places(node_of)
        first, relayed = np.zeros((p, p)), np.zeros(p)
        for node, ranks in enumerate(map(np.flatnonzero, on_node.T)):
            relay = np.where(on_node[:, node], np.arange(p), ranks[place % len(ranks)])
            first[np.arange(p), relay] = hits_node[node]
            relayed += np.bincount(relay, minlength=p)
        same_node = node_of[:, None] == node_of
        return [first, same_node * np.outer(relayed, hits_rank)]

    def _reached(self, taken: FloatArray, held: FloatArray, nodes: int) -> FloatArray:
        """Return the parts of all tokens that have an expert among some of the experts.

        taken       parts of all copies that these experts take
        held        parts of all experts that these are
        nodes       nodes that hold experts

        Experts are drawn for a token without replacement, all those of one part alike.
        """
        limited = min(self.most_nodes or nodes, nodes) / nodes
        if self.experts * limited < self.copies:
            raise InputError(
                f"expert_nodes: {self.most_nodes} of {nodes} nodes hold {self.experts * limited:g}"
                f" experts, and a token has {self.copies}: allow more nodes"
            )
        here = self.experts * held[None]
        like_these = here * limited / np.maximum(taken, 1e-300)  # experts, if all were as wanted
        drawn = np.arange(self.copies)[:, None]
        left = np.maximum(like_these - here - drawn, 0.0)
        missed = np.divide(left, like_these - drawn, out=np.zeros_like(left), where=left > 0)
        reached: FloatArray = limited * (1 - missed.prod(axis=0))
        return reached


def _messages(amounts: FloatArray, members: IntArray, node_of: IntArray) -> Round:
    """Return a round with a message for each pair of ranks that has an amount.

    amounts     chunks from each rank (row) to each one of its group, shape (groups, ranks, ranks)

    A rank serves its own node first, then the next one, and on each the rank in its place first, so
    that ranks do not queue for one receiver.
    """
    group, row, column = np.nonzero(amounts)
    src, dst, place = members[group, row], members[group, column], _places(node_of)
    nodes, most = node_of.max() + 1, place.max() + 1
    turn = (place[dst] - place[src]) % most, (node_of[dst] - node_of[src]) % nodes
    order = np.lexsort(turn)
    count = np.ceil(amounts[group, row, column]).astype(np.int64)
    return Round.of(src[order], dst[order], 0, 0, count[order])


def _places(node_of: IntArray) -> IntArray:
    """Return the place of each rank among those of its node."""
    order = np.argsort(node_of, kind="stable")
    places = np.empty(len(node_of), np.int64)
    sorted_nodes = node_of[order]
    places[order] = np.arange(len(order)) - np.searchsorted(sorted_nodes, sorted_nodes)
    return places
