"""Limit rules to the calls for which a dispatcher can follow them, and to those where it pays."""

from __future__ import annotations

from dataclasses import replace

from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmChoice, Evidence, Rule
from tuner.mpi_libraries import min_call_bytes

# The least that a call takes where a table states no time.
MIN_CALL_S = 1e-6
MIN_BYTE_S = 1e-11  # seconds per byte
COUNT_LIMIT_BYTES = 1 << 31  # bytes; where counts are bytes: Open MPI counts in C's int


def default_seconds(rule: Rule) -> float:
    """Return the least time in seconds that the library's default takes for a call of a rule."""
    stated = rule.evidence.default_s
    return min(stated) if stated else MIN_CALL_S + rule.start_bytes * MIN_BYTE_S


def is_worth_forcing(evidence: Evidence, overhead_s: float) -> bool:
    """Return whether a choice saves more than `overhead_s` seconds at every size measured for it.

    It is always worth it without overhead.
    """
    times = zip(evidence.default_s, evidence.chosen_s, strict=True)
    return all(default - chosen > overhead_s for default, chosen in times) or overhead_s == 0.0


def split_at_limits(rule: Rule, library: str) -> tuple[Rule, ...]:
    """Split a rule into the part that its algorithm can run and the library default beside it.

    The default has calls of too few bytes for the algorithm in this library, and calls from
    COUNT_LIMIT_BYTES on for an algorithm that counts in bytes.
    """
    choice = rule.choice
    forced = choice.runner == LIBRARY and not choice.is_default
    moves = not (rule.key.collective.is_reduction or rule.key.collective.is_ragged)
    in_bytes = choice.runner == SCHEDULE or (forced and moves)
    first = max(rule.start_bytes, min_call_bytes(library, choice))
    last = min(rule.stop_bytes, COUNT_LIMIT_BYTES) if in_bytes else rule.stop_bytes
    if (first, last) == (rule.start_bytes, rule.stop_bytes):
        return (rule,)
    parts = (
        (rule.start_bytes, min(first, rule.stop_bytes), AlgorithmChoice()),
        (first, last, choice),
        (max(last, rule.start_bytes), rule.stop_bytes, AlgorithmChoice()),
    )
    return tuple(
        replace(rule, start_bytes=int(low), stop_bytes=high, choice=own)
        for low, high, own in parts
        if low < high
    )
