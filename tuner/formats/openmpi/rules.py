"""Open MPI's classic rules file for versions 4.1 and 5.x: its content and how it decides.

A file lists collectives, for each ascending communicator sizes, for each of these ascending message
sizes with an algorithm. All sizes are lower bounds: the last one that a call reaches applies, and a
communicator smaller than the first entry gets the first entry.

Message sizes are compared with the bytes of the whole buffer: for allgather, gather and scatter the
library multiplies what one rank sends or receives by the number of ranks. An allgather in place
counts 0 bytes, whatever it moves, so our files have no rule for an allgather of 0 bytes. Nor have
they one with a segment for 0 bytes (`min_call_bytes` of `tuner.mpi_libraries.openmpi`).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule
from tuner.mpi_libraries.openmpi import min_call_bytes
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVE_OF, COLLECTIVES
from tuner.mpi_libraries.openmpi_rule_numbers import canonical_choice, choice_of

LIMITED_HEADER = "rule-file-version-2"  # the first line of files with a column of requests


@dataclass(frozen=True)
class RuleLine:
    """The numbers that the library is given from `min_bytes` on, counted as the library does.

    number      its line in the file it was read from
    """

    min_bytes: int
    algorithm: int
    chains: int = 0
    segment_bytes: int = 0
    requests: int = 0
    number: int = field(default=0, compare=False)

    def to_choice(self, collective: Collective) -> AlgorithmChoice:
        """Return the choice that these numbers stand for."""
        return choice_of(collective, self.algorithm, self.chains, self.segment_bytes, self.requests)


@dataclass(frozen=True)
class ClassicRules:
    """The rules of each collective number, as (communicator size, lines), both ascending."""

    collectives: Mapping[int, tuple[tuple[int, tuple[RuleLine, ...]], ...]]


def decide(rules: ClassicRules, collective: Collective, p: int, nbytes: int) -> AlgorithmChoice:
    """Return what Open MPI 5.x takes from the file for a call of `nbytes` of the whole buffer."""
    entries = rules.collectives.get(COLLECTIVES[collective].number)
    if not entries:
        return AlgorithmChoice()
    above = bisect.bisect_right([ranks for ranks, _ in entries], p)
    rows = entries[max(0, above - 1)][1]
    row = rows[bisect.bisect_right([row.min_bytes for row in rows], nbytes) - 1]
    return row.to_choice(collective)


def decision_bounds(rules: ClassicRules, collective: Collective) -> tuple[set[int], set[int]]:
    """Return where decisions on `collective` may change: numbers of ranks, and bytes."""
    entries = rules.collectives.get(COLLECTIVES[collective].number, ())
    return {ranks for ranks, _ in entries}, {row.min_bytes for _, rows in entries for row in rows}


def min_decided_bytes(rule: Rule) -> int:
    """Return the smallest message size in bytes that a table's rule decides in a file."""
    known = COLLECTIVES.get(rule.key.collective)
    blind = known is not None and known.is_blind_in_place
    return max(rule.start_bytes, 1 if blind else min_call_bytes(rule.choice))


def expected_choice(
    collective: Collective, rule_list: Sequence[Rule], nbytes: int
) -> AlgorithmChoice:
    """Return what a file must name for a call, given the table's rule list."""
    rule = next((r for r in rule_list if min_decided_bytes(r) <= nbytes < r.stop_bytes), None)
    return canonical_choice(collective, rule.choice) if rule else AlgorithmChoice()


def render(rules: ClassicRules) -> str:
    """Return the file, one entry per line, with comments that explain the numbers.

    It is of version 2, which few releases read, only where a line limits the requests in flight.
    """
    left = "" if rules.collectives else ": all calls are left to the library"
    limited = any(
        row.requests
        for entries in rules.collectives.values()
        for _, rows in entries
        for row in rows
    )
    lines = [LIMITED_HEADER] if limited else []
    lines += [f"{len(rules.collectives)} # collectives{left}"]
    for number, entries in rules.collectives.items():
        collective = COLLECTIVE_OF[number]
        lines += [f"{number} # {collective}", f"{len(entries)} # communicator sizes"]
        for ranks, rows in entries:
            lines += [f"{ranks} # ranks", f"{len(rows)} # message sizes"]
            for row in rows:
                lines.append(f"{row.min_bytes} {row.algorithm} {row.chains} {row.segment_bytes}")
                lines[-1] += f" {row.requests}" if limited else ""
                if row.algorithm < len(COLLECTIVES[collective].algorithms):
                    lines[-1] += f" # {row.to_choice(collective)}"
    return "\n".join(lines) + "\n"
