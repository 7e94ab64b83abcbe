"""Both engines against SimGrid on all-to-alls at one switch with equal links.

    python -m tests.bench.exchanges [CASES] [--write FILE]

Needs what `unequal_links` needs. Every algorithm in turn exchanges blocks of one length and, in the
next case, of random lengths. Prints the worst difference of each collective, and each case that
differs by more than 0.1 %; `--write` writes SimGrid's times to a file, which tests read.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.bench.unequal_links import compiled, own_seconds, simgrid_seconds, write_times
from tests.support.exchanges import case_of

TOLERANCE = 1e-3


def main(cases: int, written: Path | None) -> None:
    """Compare all cases and print how far they are off."""
    rows, worst = [], defaultdict[str, float](float)
    with tempfile.TemporaryDirectory(prefix="tuner-simgrid-") as place:
        program = compiled(Path(place))
        for case in map(case_of, range(cases)):
            expected = simgrid_seconds(case, program, Path(place) / "case.txt")
            rows.append((case.seed, case.name, expected))
            ratios = [own_seconds(case, engine) / expected for engine in ("fast", "events")]
            off = max(abs(ratio - 1) for ratio in ratios)
            name = str(case.schedule.collective)
            worst[name] = max(worst[name], off)
            if off > TOLERANCE:
                shown = ", ".join(f"{ratio:.5f}" for ratio in ratios)
                print(f"{case.name} p={case.schedule.p} {case.nbytes} B: {expected:.6g} s, {shown}")
    for name, off in worst.items():
        print(f"{name}: at most {off:.2g} off")
    if written:
        write_times(written, rows)


if __name__ == "__main__":
    reader = argparse.ArgumentParser(prog="python -m tests.bench.exchanges")
    reader.add_argument("cases", nargs="?", type=int, default=120)
    reader.add_argument("--write", type=Path)
    options = reader.parse_args()
    main(options.cases, options.write)
