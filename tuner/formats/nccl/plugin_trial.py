"""Load a compiled tuner plugin as NCCL 2.28 does, and ask it for the bounds of every rule.

Run it as a program with the path of the library; the rules are beside that. It prints the number of
calls that were tried. At the first call that is decided differently from the rules it ends with one
sentence on standard error and status 1.
"""

from __future__ import annotations

import bisect
import ctypes as c
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tuner.core.collective import Collective
from tuner.formats.nccl.csv_rules import MAX_SIZE_BYTES, RCCL, CsvRule, parse
from tuner.mpi_libraries.nccl.constants import (
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    NVLS,
    NVLS_TREE,
    PAT,
    PROTOCOLS,
    RING,
    TREE,
)
from tuner.mpi_libraries.nccl.names import NCCL_COLLECTIVES

ALGORITHMS = (TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT)
IMPOSSIBLE_SIZES = {-1, MAX_SIZE_BYTES + 1}
UNCHANGED_CHANNELS = -2  # a number of channels that no plugin sets
_COSTS = c.c_float * (len(ALGORITHMS) * len(PROTOCOLS))


class Plugin(c.Structure):
    """Version 5 of the structure that NCCL looks up (tuner_v5.h of NVIDIA/nccl)."""

    _fields_ = (
        ("name", c.c_char_p),
        (
            "init",
            c.CFUNCTYPE(
                c.c_int,
                c.POINTER(c.c_void_p),
                c.c_uint64,
                c.c_size_t,
                c.c_size_t,
                c.c_void_p,
                c.c_void_p,
                c.c_void_p,
            ),
        ),
        (
            "decide",
            c.CFUNCTYPE(
                c.c_int,
                c.c_void_p,
                c.c_int,
                c.c_size_t,
                c.c_int,
                c.c_void_p,
                c.c_int,
                c.c_int,
                c.c_int,
                c.POINTER(c.c_int),
            ),
        ),
        ("finalize", c.CFUNCTYPE(c.c_int, c.c_void_p)),
    )


def boundary_sizes(rows: Sequence[CsvRule]) -> Iterator[tuple[int, CsvRule | None]]:
    """Yield both bounds of each row and one byte beside them, with the row for each size.

    rows    of one collective, ascending
    """
    starts = [row.min_bytes for row in rows]
    for row in rows:
        for nbytes in sorted(
            {row.min_bytes - 1, row.min_bytes, row.max_bytes, row.max_bytes + 1} - IMPOSSIBLE_SIZES
        ):
            place = bisect.bisect_right(starts, nbytes) - 1
            yield nbytes, rows[place] if place >= 0 and nbytes <= rows[place].max_bytes else None


PluginDecision = tuple[list[int], int]


def plugin_decision(
    plugin: Plugin, context: c.c_void_p, collective: Collective, nbytes: int
) -> PluginDecision:
    """Return the entries of the cost table that the plugin prefers for a call, and its channels."""
    costs, channels = _COSTS(*[1.0] * len(_COSTS())), c.c_int(UNCHANGED_CHANNELS)
    plugin.decide(
        context,
        NCCL_COLLECTIVES[collective].number,
        nbytes,
        1,
        c.byref(costs),
        len(ALGORITHMS),
        len(PROTOCOLS),
        0,
        c.byref(channels),
    )
    return [i for i, cost in enumerate(costs) if cost == 0], channels.value


def expected_decision(row: CsvRule | None) -> PluginDecision:
    """Return the entries of the cost table and the channels that a row asks for.

    NCCL limits channels neither for CollNet nor for NVLS on several nodes, which runs over CollNet.
    """
    if row is None:
        return [], UNCHANGED_CHANNELS
    way = row.algo_proto
    unlimited = way.algorithm in (COLLNET_DIRECT, COLLNET_CHAIN) or (
        way.algorithm == NVLS and row.nodes > 1
    )
    entry = ALGORITHMS.index(way.algorithm) * len(PROTOCOLS) + PROTOCOLS.index(way.protocol)
    return [entry], UNCHANGED_CHANNELS if unlimited or row.channels < 1 else row.channels


def check_rules(plugin: Plugin, rows: Sequence[CsvRule]) -> int:
    """Return how many calls on the rows' communicator were tried.

    Raises ValueError for a call that is decided differently from the rows.
    """
    context, calls = c.c_void_p(), 0
    plugin.init(c.byref(context), 0, rows[0].ranks, rows[0].nodes, None, None, None)
    for collective, mine in groupby(rows, lambda row: row.collective):
        for nbytes, row in boundary_sizes(tuple(mine)):
            calls += 1
            if plugin_decision(plugin, context, collective, nbytes) != expected_decision(row):
                raise ValueError(f"{collective} of {nbytes} bytes: the rule is {row}")
    plugin.finalize(context)
    return calls


def main(library: Path) -> int:
    """Check the plugin against the rules beside it and return the exit status."""
    rows = parse((library.parent / "rules.csv").read_text(), RCCL)
    plugin = Plugin.in_dll(c.CDLL(str(library)), "ncclTunerPlugin_v5")
    shapes = groupby(sorted(rows, key=shape_of), shape_of)
    try:
        print(sum(check_rules(plugin, tuple(of_shape)) for _, of_shape in shapes))
    except ValueError as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def shape_of(row: CsvRule) -> tuple[int, int]:
    """Return nodes and ranks."""
    return row.nodes, row.ranks


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
