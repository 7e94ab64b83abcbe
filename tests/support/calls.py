"""Calls of collectives, what they must give, and schedules to give it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from tuner import algorithms
from tuner.base.arrays import AnyArray
from tuner.core.collective import Collective, Held
from tuner.core.interpret import Operator
from tuner.core.schedule import Schedule

MODULUS = 10007
EVEN = tuple(one for one in Collective if not one.is_ragged)  # whose calls have one size
ALL = [(c, name) for c in Collective for name in algorithms.algorithm_names(c)]
EVERYTHING = [
    (c, name) for c in Collective for name in algorithms.algorithm_names(c, algorithms.REQUIREMENTS)
]


def matrix_product(left: AnyArray, right: AnyArray) -> AnyArray:
    """Elements are 2x2 integer matrices modulo 10007, flattened: associative, not commutative."""
    a, b = left.reshape(-1, 2, 2), right.reshape(-1, 2, 2)
    product: AnyArray = (a @ b % MODULUS).reshape(left.shape).astype(left.dtype)
    return product


def union(left: AnyArray, right: AnyArray) -> AnyArray:
    """Elements are sets of bits: what counts once however often it is combined."""
    return left | right


def operator_of(collective: Collective, ordered: bool) -> Operator:
    """The operator with the fewest properties that a correct schedule combines rightly.

    ordered     whether the schedule keeps the order of operands
    """
    if not collective.has_data:
        return union
    return matrix_product if ordered else np.add


def segmented(collective: Collective, name: str, segment: int) -> dict[str, int]:
    """The parameters that make an algorithm use this segment size, if it has one."""
    return {"segment": segment} if "segment" in algorithms.describe(collective, name).params else {}


def every_schedule(
    collective: Collective, name: str, p: int, nbytes: int = 64, few: bool = False
) -> Iterator[Schedule]:
    """The algorithm's schedules for p ranks: every root, unsegmented and in several segments.

    With `few`, roots at both ends and in the middle only.
    """
    roots = {0, 1 % p, p // 2, p - 1} if few else set(range(p))
    variants = [segmented(collective, name, segment) for segment in (0, 20)]
    for params in variants[: 1 + (variants[0] != variants[1])]:
        for root in sorted(roots) if collective.is_rooted else [0]:
            yield algorithms.build(collective, name, p, root=root, nbytes=nbytes, params=params)


def inputs(p: int, count: int, seed: int = 0) -> list[AnyArray]:
    """One random buffer of `count` 2x2 matrices per rank."""
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, MODULUS, (p, count, 4), dtype=np.int64))


def outputs(
    schedule: Schedule, buffers: list[AnyArray], op: Operator = matrix_product
) -> list[tuple[slice, AnyArray]]:
    """Per rank: which elements the collective defines there, and their values."""
    collective, p, count = schedule.collective, schedule.p, len(buffers[0])
    everything, nothing = slice(0, count), slice(0, 0)
    offsets = schedule.offsets(count)
    bounds = offsets[np.arange(p + 1) * schedule.n_chunks // p]
    shares = [slice(bounds[r], bounds[r + 1]) for r in range(p)]
    if collective.gives_in_scratch:
        return [
            (everything, np.concatenate([buffer[share] for buffer in buffers])) for share in shares
        ]
    if collective.is_reduction or not collective.has_data:
        whole = reduce(op, buffers)
    elif collective.spec.before is Held.BLOCK:
        whole = np.concatenate(
            [buffer[share] for buffer, share in zip(buffers, shares, strict=True)]
        )
    else:
        whole = buffers[schedule.root]
    if collective in (Collective.SCATTER, Collective.REDUCE_SCATTER):
        where = shares
    elif collective in (Collective.REDUCE, Collective.GATHER):
        where = [everything if r == schedule.root else nothing for r in range(p)]
    else:
        where = [everything] * p
    return [(share, whole[share]) for share in where]
