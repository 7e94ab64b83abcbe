"""Run the whole of continuous integration again and again, in random orders and beside a load:

    python -m tests.bench.ci_repeats [--times 5] [--loaded 2] [COMMAND...]

COMMAND is `.ci/run` unless given. The last LOADED runs have `stress-ng --cpu 4 --io 2` beside them.
pytest-randomly gives each run another order. Prints for each run its status, its minutes, and how
many tests passed, failed or were flaky, and keeps what it said in build/ci-repeats. The exit
status is that of a failure unless all runs ended well and no test was flaky. Takes hours.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.conftest import ROOT
from tuner.cli.terminal.output import print_table

CI = (str(ROOT / ".ci" / "run"),)
LOAD = ("stress-ng", "--cpu", "4", "--io", "2", "--quiet")
KEPT = ROOT / "build" / "ci-repeats"
SUMMARY = re.compile(r"(?m)^=* ?((?:\d+ \w+,? ?)+) in [\d.]+s")  # pytest's last line
COUNT = re.compile(r"(\d+) (passed|failed|errors?|flaky|skipped)")


@dataclass(frozen=True)
class Repeat:
    """The outcome of one run."""

    loaded: bool
    status: int
    minutes: float
    counts: Counter[str]

    @property
    def is_good(self) -> bool:
        """Return whether it succeeded and no test was flaky."""
        return self.status == 0 and not self.counts["flaky"]


def counted(text: str) -> Counter[str]:
    """Return how many tests ended how, in all runs of pytest of an output."""
    counts = Counter[str]()
    for summary in SUMMARY.findall(text):
        for number, state in COUNT.findall(summary):
            counts[state.rstrip("s") if state.startswith("error") else state] += int(number)
    return counts


@contextmanager
def load(wanted: bool) -> Iterator[None]:
    """Keep processors and disks busy, where that is wanted."""
    if not wanted:
        yield
        return
    with subprocess.Popen(LOAD) as running:
        try:
            yield
        finally:
            running.terminate()


def repeat(number: int, command: Sequence[str], loaded: bool) -> Repeat:
    """Run it once, and keep what it says in a file."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{number}.txt"
    begun = time.monotonic()
    with load(loaded), path.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    minutes = (time.monotonic() - begun) / 60
    return Repeat(loaded, done.returncode, minutes, counted(path.read_text(encoding="utf-8")))


def row(number: int, found: Repeat) -> tuple[str, ...]:
    """Return the row of a run in the table."""
    counts = (str(found.counts[state]) for state in ("passed", "failed", "error", "flaky"))
    beside = " ".join(LOAD[:-1]) if found.loaded else "nothing"
    return (str(number), beside, str(found.status), f"{found.minutes:.1f}", *counts)


def main(words: Sequence[str]) -> int:
    """Run it as often as asked for, and print the table."""
    parser = argparse.ArgumentParser(prog="tests.bench.ci_repeats")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--loaded", type=int, default=2)
    parser.add_argument("command", nargs="*", default=CI)
    given = parser.parse_args(words)
    if given.loaded and shutil.which(LOAD[0]) is None:
        parser.error("stress-ng is not installed: apt-get install stress-ng")
    found = [
        repeat(number, given.command, loaded=number > given.times - given.loaded)
        for number in range(1, given.times + 1)
    ]
    columns = ("run", "beside", "status", "minutes", "passed", "failed", "errors", "flaky")
    rows = [row(number, one) for number, one in enumerate(found, 1)]
    print_table(" ".join(given.command), columns, rows)
    print(f"what each run said is in {KEPT}")
    return 0 if all(one.is_good for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
