"""Counts of the calls that followed each rule, for the summary line at the end of a program."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress

from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.runtime import log


class CallTally:
    """The counts of calls of one rank, for a communicator and those derived from it.

    rank        rank in this communicator
    to_stderr   whether `report` writes to standard error as well as to the log
    """

    def __init__(self, rank: int, *, to_stderr: bool) -> None:
        self._rank, self._to_stderr = rank, to_stderr
        self._counts = defaultdict[tuple[Collective, AlgorithmChoice], list[int]](lambda: [0])

    def counter(self, collective: Collective, choice: AlgorithmChoice) -> list[int]:
        """Return the counter of an algorithm choice: a list of one number to be incremented."""
        return self._counts[collective, choice]

    def count_as_library(self, collective: Collective, choice: AlgorithmChoice) -> None:
        """Move one counted call from an algorithm choice to the library default."""
        self.counter(collective, choice)[0] -= 1
        self.counter(collective, AlgorithmChoice())[0] += 1

    def report(self) -> None:
        """Write all counts in one line on rank 0, and reset them on every rank."""
        line = f"tuner: {self.summary_line()}"
        for entry in self._counts.values():
            entry[0] = 0
        if self._rank != 0:
            return
        log.inform(line)
        if self._to_stderr:
            with suppress(OSError, ValueError):  # a closed stream or pipe
                print(line, file=sys.stderr, flush=True)

    def summary_line(self) -> str:
        counted = {key: entry[0] for key, entry in self._counts.items() if entry[0]}
        rules = [
            (calls, f"{collective} {choice}")
            for (collective, choice), calls in counted.items()
            if not choice.is_default
        ]
        others = [
            (calls, str(collective))
            for (collective, choice), calls in counted.items()
            if choice.is_default
        ]
        followed, left = sum(n for n, _ in rules), sum(n for n, _ in others)
        return (
            f"{plural(followed + left, 'call')} of rank 0: {followed} followed the table"
            f"{_format_counts(rules)}, {left} left to the library{_format_counts(others)}"
        )


def _format_counts(counts: list[tuple[int, str]]) -> str:
    """Format counts in parentheses, the largest first; "" for none."""
    ordered = sorted(counts, key=lambda count: (-count[0], count[1]))
    return f" ({', '.join(f'{number} {name}' for number, name in ordered)})" if counts else ""
