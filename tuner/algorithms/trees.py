"""Index arithmetic of broadcast trees and the pipelined broadcast along any of them.

A tree is `children[v]`, the children of rank v in the order in which v serves them; the root is
rank 0. A reduction tree is the same tree used backwards (`schedule.reverse`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tuner.collective import Collective
from tuner.schedule import Round, Schedule

Tree = Sequence[Sequence[int]]


def linear(p: int) -> Tree:
    """The root serves everybody."""
    return [range(1, p), *([] for _ in range(1, p))]


def chain(p: int, chains: int) -> Tree:
    """The root heads `chains` lines of consecutive ranks, as equal in length as they can be."""
    children: list[list[int]] = [[] for _ in range(p)]
    heads = np.array_split(np.arange(1, p), max(1, min(chains, p - 1)))
    for line in heads:
        previous = 0
        for rank in line.tolist():
            children[previous].append(rank)
            previous = rank
    return children


def binary(p: int) -> Tree:
    """Complete binary tree: odd ranks fill the root's left subtree, even ones the right.

    Rank v of level l (2^l - 1 <= v < 2^(l+1) - 1) serves v + 2^l and v + 2^(l+1), as in Open MPI
    (coll_base_topo.c, ompi_coll_base_topo_build_tree with fan-out 2).
    """
    return [
        [c for c in (v + (1 << level), v + (2 << level)) if c < p]
        for v in range(p)
        for level in [(v + 1).bit_length() - 1]
    ]


def binomial(p: int) -> Tree:
    """Rank v serves v + 2^s for every 2^s > v, the largest subtree first."""
    return [[v + (1 << s) for s in range(v.bit_length(), p.bit_length()) if v + (1 << s) < p]
            for v in range(p)]  # fmt: skip


def knomial(p: int, radix: int) -> Tree:
    """Rank v serves v + j radix^s below its lowest non-zero digit, the largest subtree first.

    Every subtree is a run of consecutive ranks.
    """
    children: list[list[int]] = [[] for _ in range(p)]
    for v in range(p):
        span = 1
        while span < p and v % (span * radix) == 0:
            span *= radix
        while span > 0:
            children[v] += [c for c in range(v + span, min(v + radix * span, p), span)
                            if v % (span * radix) == 0]  # fmt: skip
            span //= radix
    return children


def depths(children: Tree) -> list[int]:
    """Hops from the root, per rank."""
    depth = [0] * len(children)
    frontier = [0]
    while frontier:
        v = frontier.pop()
        for child in children[v]:
            depth[child] = depth[v] + 1
            frontier.append(child)
    return depth


def broadcast(children: Tree, segments: int) -> Schedule:
    """Root 0 sends `segments` chunks down the tree, pipelined.

    In round d + j the ranks at depth d send chunk j to all their children at once, while chunk
    j + 1 arrives. Rounds: segments + height - 1.
    """
    depth = np.array(depths(children))
    parent = np.array([v for v, served in enumerate(children) for _ in served], dtype=int)
    child = np.array([c for served in children for c in served], dtype=int)
    level = depth[parent]

    def make() -> Iterator[Round]:
        for t in range(segments + int(level.max(initial=-1))):
            now = (level <= t) & (t < level + segments)
            yield Round.of(parent[now], child[now], t - level[now])

    return Schedule(Collective.BCAST, len(children), segments, make)
