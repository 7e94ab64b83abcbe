"""The constants of RCCL's tuning models, by architecture of the GPUs, in microseconds.

Source: `src/graph/tuning.cc`, `src/rccl_wrap.cc` and `src/include/rccl_common.h` of RCCL
(ROCm/rocm-systems, 03a8914, 006a440 and 00b959f). Rows list LL, LL128 and Simple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.core.collective import Collective
from tuner.mpi_libraries.nccl.constants import (
    LL,
    LL128,
    PROTOCOLS,
    RING,
    SIMPLE,
    TREE,
    AlgoProto,
    numbers,
)

TITLE = "RCCL (ROCm/rocm-systems 03a8914)"
BASE_LATENCY = {LL: 12.0, LL128: 12.0, SIMPLE: 17.0}
Ways = Mapping[AlgoProto, float]
Limits = tuple[int, int]  # bytes: more than the first one, and no more than the second


def _ways(tree: str, ring: str) -> dict[AlgoProto, float]:
    """Return numbers for LL, LL128 and Simple of both algorithms."""
    return {
        AlgoProto(algorithm, protocol): number
        for algorithm, text in ((TREE, tree), (RING, ring))
        for protocol, number in zip(PROTOCOLS, numbers(text), strict=True)
    }


@dataclass(frozen=True)
class RcclTuning:
    """One of RCCL's tuning models.

    inside, between     seconds of a hop inside a node and between nodes, in microseconds
    ratios              share of the rings' bandwidth that a pair reaches, on up to two nodes and
                        on more
    tree_factors        share of it at 64 B, 128 B, 256 B, ... by protocol: powers of two
    ring_factors        the same of rings on several nodes
    limits              sizes of LL and LL128 on several nodes by collective: of allreduces the
                        bytes of the buffer, of others those of one rank; empty: as expected
    limits_inside       bytes of one rank up to which a collective on one node is in LL
    has_ll128           whether its models of machines allow LL128
    direct_trees        whether trees have Simple on one node
    rooted_gain         factor of LL rings of broadcast and reduce on one node
    """

    inside: Ways
    between: Ways
    ratios: tuple[Ways, Ways]
    tree_factors: Mapping[str, tuple[float, ...]]
    ring_factors: Mapping[str, tuple[float, ...]]
    limits: Mapping[Collective, tuple[Limits, Limits]]
    has_ll128: bool = True
    direct_trees: bool = False
    limits_inside: Mapping[Collective, int] = field(default_factory=dict)
    rooted_gain: float = 1.0


def _factors(*rows: str) -> dict[str, tuple[float, ...]]:
    """Return the factors of LL, LL128 and Simple."""
    return dict(zip(PROTOCOLS, map(numbers, rows), strict=True))


_LL_TREE_5 = ".1 .1 .1 .1 .1 .1 1 1 1 1 1 .6 1 .9 1 1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1"
_LL_RING_5 = ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 1 .2 1 .4 .4 .1 .2 .2 .1 .1 .1 .1 .1 .1 .1 .1"
_CDNA_3_INSIDE = _ways(".9 .9 2.3", ".8 .8 2.1")
_CDNA_3_BETWEEN = _ways("10.5 10.5 25", "9.5 9.5 320")
_CDNA_3_RATIOS = (_ways(".06 .06 .11", ".08 .08 1"), _ways(".06 .06 .59", ".08 .08 1"))
TUNINGS = {  # by architecture: models 3 (of machines like Frontier), 5 and 6
    "gfx90a": RcclTuning(
        inside=_ways(".8 0 2.5", ".8 0 3.6"),
        between=_ways("12.5 0 22.4", "9.5 0 19.8"),
        ratios=(_ways(".2 0 1.75", ".2 0 1"), _ways(".2 0 .96", ".2 0 1")),
        tree_factors=_factors(
            ".1 .1 .1 .1 .1 .1 1 1 .2 1 .9 1 .6 .4 .6 .4 .3 .3 .3 .3 .3 .2 .2 .2 .2 .2 .2",
            "0",
            "1 1 1 1 1 1 .1 .1 .1 .2 1 .8 1 1 1 1 1 1 1 1 1 .8 .7 .8 .9 .7 .7",
        ),
        ring_factors=_factors(
            ".1 .1 .1 .1 .1 .3 .1 .2 .1 .4 .4 .2 .2 .3 .7 .5 .4 .3 .3 .3 .3 .2 .2 .2 .2 .2 .2",
            "0",
            ".1 .1 .1 .1 .1 .1 .1 .5 1 .1 .3 .1 .1 .1 .2 .2 .2 .3 .4 .7 1 1 1 1 1 1 1",
        ),
        limits={},
        has_ll128=False,
        direct_trees=True,
    ),
    "gfx942": RcclTuning(
        inside=_CDNA_3_INSIDE,
        between=_CDNA_3_BETWEEN,
        ratios=_CDNA_3_RATIOS,
        tree_factors=_factors(
            _LL_TREE_5,
            _LL_TREE_5,
            ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .7 1 1 1 1 1 .7 .7 .5 .6 .6 .6",
        ),
        ring_factors=_factors(
            _LL_RING_5,
            _LL_RING_5,
            ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .7 .2 1 1 1",
        ),
        limits={
            Collective.REDUCE_SCATTER: ((0, 655360), (131072, 3211264)),
            Collective.ALLGATHER: ((0, 98304), (98304, 5046272)),
            Collective.ALLREDUCE: ((0, 524288), (524288, 4415057)),
            Collective.REDUCE: ((0, 4096), (4096, 16777216)),
            Collective.BCAST: ((0, 8192), (8192, 33554432)),
        },
        limits_inside={Collective.REDUCE_SCATTER: 352128},
        rooted_gain=1.65,
    ),
    "gfx950": RcclTuning(
        inside=_CDNA_3_INSIDE,
        between=_CDNA_3_BETWEEN,
        ratios=_CDNA_3_RATIOS,
        tree_factors=_factors(
            _LL_TREE_5,
            ".1 .1 .1 .1 .1 .1 1 1 1 1 1 .6 1 .9 1 1 1 1 1 2 2 1 .1 .9 .9 .1 .1",
            ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .7 1 .1 .1 .1 .1 .1 .7 .15 .6 .7 .6",
        ),
        ring_factors=_factors(
            _LL_RING_5,
            ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 1 .2 1 .4 .4 .1 .2 .1 .1 .1 .1 5.5 .1 .1 1 1",
            ".1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .1 .9 .1 1 .1 .6 1 1",
        ),
        limits={
            Collective.REDUCE_SCATTER: ((0, 65536), (65536, 8388608)),
            Collective.ALLGATHER: ((0, 65536), (65536, 8388608)),
            Collective.ALLREDUCE: ((0, 262144), (262144, 70640910)),
            Collective.REDUCE: ((0, 16383), (16383, 16777216)),
            Collective.BCAST: ((0, 2048), (2048, 16777216)),
        },
        limits_inside={Collective.ALLGATHER: 88448, Collective.REDUCE_SCATTER: 1048576},
        rooted_gain=1.65,
    ),
}
LARGE_JOB_GAIN = 3.8  # of the limit of LL128 for allreduces on more than two nodes
