"""The crash harness at length: `make test-crashes`.

    python -m tests.bench.crashes [ROUNDS] [--seed SEED] [--database sqlite|postgresql]

1,000 rounds on SQLite and, where its programs are installed, on PostgreSQL
(`tests.support.crashes`). Prints what was done, and the processor time of a round; where something
acknowledged is missing it fails with the seed and the number of the round.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.crashes import Crashes
from tests.support.databases import Fresh, kinds
from tests.support.forks import forks
from tests.support.postgres import programs_of

ROUNDS = 1000
REPORT_EVERY = 50


def processor_s() -> float:
    """Return the processor time so far of this process and of those it has started, in seconds."""
    return time.process_time() + forks().processor_s()


def main() -> None:
    """Run the rounds on each kind of database."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--database", choices=("sqlite", "postgresql"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-crashes-") as scratch:
        directory = Path(scratch)
        directory.chmod(0o777)
        for kind, fresh in kinds(directory):
            if options.database in (None, kind):
                run(kind, fresh, directory, options.rounds, options.seed)


def run(kind: str, fresh: Fresh, directory: Path, rounds: int, seed: int) -> None:
    """Run the rounds on one kind of database, and print what was done."""
    with ExitStack() as databases:
        server = databases.enter_context(fresh())
        crashes = Crashes(
            lambda: databases.enter_context(fresh()),
            directory,
            seed,
            programs_of(server) if kind == "postgresql" else "",
        )
        begun = processor_s()
        while crashes.round < rounds:
            crashes.run(min(REPORT_EVERY, rounds - crashes.round))
            each = (processor_s() - begun) / crashes.round
            print(
                f"{kind}, seed {seed}: {crashes.round} rounds, {each:.2f} s of processor time each:"
                f" nothing lost; {dict(crashes.counts)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
