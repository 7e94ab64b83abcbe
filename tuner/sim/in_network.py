"""Sharing of traffic by messages that the network replicates (multicast) or combines (reduction).

Each of n rows over one link loads it with 1/n of its bytes; they flow side by side, so the link
carries the message once. Each of the n ranks at the other end loads its own port in full.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tuner.base.arrays import BoolArray, FloatArray, Int32Array, IntArray
from tuner.core.schedule import NO_REDUCTION
from tuner.sim.flat_schedule import FlatSchedule
from tuner.sim.unique import unique_inverse

InNetworkGroups = tuple[
    IntArray, IntArray
]  # for each row: the message it is a copy of, and the message it is combined into


def in_network_groups(rows: FlatSchedule) -> InNetworkGroups:
    """Return which rows are copies of one message (multicast) and which are combined into one."""
    row = 1 + np.arange(len(rows.src))
    reduces = rows.reduce != NO_REDUCTION
    copies = (rows.round, rows.src, rows.src_chunk, rows.count, np.where(reduces, row, 0))
    parts = (rows.round, rows.dst, rows.dst_chunk, rows.count, np.where(reduces, 0, row))
    return _numbered(copies), _numbered(parts)


def _numbered(columns: Iterable[IntArray]) -> IntArray:
    """Return a number for each row of the columns, equal for equal rows."""
    code: IntArray = np.zeros(1, np.int64)
    for column in columns:
        _, number = unique_inverse(code * (1 + int(column.max(initial=0))) + column)
        code = number.astype(np.int64)
    return code


def reduced_in_network(rows: FlatSchedule) -> BoolArray:
    """Return which rows cost no reduction: all but one of those that arrive as one message."""
    folded: BoolArray = rows.reduce != NO_REDUCTION
    folded[np.unique(in_network_groups(rows)[1], return_index=True)[1]] = False
    return folded


def port_share(groups: InNetworkGroups) -> FloatArray:
    """Return the share of its bytes that each row sends through its two ports, shape (rows, 2)."""
    return np.stack([1.0 / np.bincount(group)[group] for group in groups], axis=1)


def shared_load_factor(
    groups: InNetworkGroups, links: Int32Array, load_factor: FloatArray, resources: int
) -> FloatArray:
    """Return bytes over each link per byte sent, divided among rows that cross it together.

    The result has the shape of `links`.
    """
    for group in groups:
        crossing = group[:, None] * (resources + 1) + links + 1
        _, where = unique_inverse(crossing.reshape(-1))
        load_factor = load_factor / np.bincount(where, minlength=1)[where].reshape(links.shape)
    return load_factor
