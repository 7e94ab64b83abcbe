"""Count how often the interval of `tuner compare` holds the true ratio of a program's times.

    python -m tests.bench.program_gain [--seconds S] [--spread SD] [--pairs N] [--repeats N]

The program sleeps for a time whose distribution is known, log-normal with median S and standard
deviation SD: in 20 trials both sides are equal, and the interval should hold 1 in 19 of them; in 10
trials the program takes 5 % more with the table, and the interval should hold the ratio in 9. A
repeat is all 30 trials once more. The start of the program, some milliseconds, is on both sides.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from tuner.cli.terminal.output import print_table
from tuner.preload.command import PreparedCommand
from tuner.preload.paired_runs import ProgramComparison, continue_comparison, timed_run

SOURCE = Path(__file__).with_name("lognormal_sleep.c")
CASES = ((1.0, 20, 19), (1.05, 10, 9))  # slower by, trials, of which the interval holds the ratio


def trial(words: list[str], slower: float, pairs: int) -> tuple[float, float, float]:
    """Return the gain of one comparison with its interval."""
    sides = {
        "with": PreparedCommand(tuple(words), {**os.environ, "SLOWER": str(slower)}),
        "without": PreparedCommand(tuple(words), os.environ),
    }
    begun = ProgramComparison(tuple(words), "")
    runs = {side: partial(timed_run, command) for side, command in sides.items()}
    *_, found = continue_comparison(begun, runs, pairs, lambda _done, _text: None)
    return found.gain


def main() -> None:
    """Run all trials and print how often the interval held the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--spread", type=float, default=0.03)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        program = str(Path(place) / "program")
        subprocess.run(["cc", "-O1", "-o", program, SOURCE, "-lm"], check=True)
        words = [program, str(options.seconds), str(options.spread)]
        for slower, trials, wanted in CASES:
            for _ in range(options.repeats):
                found = [trial(words, slower, options.pairs) for _ in range(trials)]
                held = sum(low <= 1 / slower <= high for _, low, high in found)
                shown = sum(not low <= 1 <= high for _, low, high in found)
                rows.append((f"{slower:g}", *map(str, (trials, held, wanted, shown))))
    columns = ("slower by", "trials", "ratio held", "wanted", "difference shown")
    print_table("", columns, rows, right=columns)


if __name__ == "__main__":
    main()
