"""PyTorch's own tests of distributed backends, from the installed package, on the backend `tuner`.

python -m tests.torch.suite [--ranks P] [--python FILE] [TEST ...]

Print one line per test that did not pass on all ranks, and how many passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tuner.launch import Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
PROGRAM = Path(__file__).with_name("suite_program.py")
RANKS = 4
TEST_TIMEOUT_S = 240.0
ORDER = ("failed", "skipped", "passed")  # of several ranks, the first of these counts


def names(python: Path = PYTHON) -> list[str]:
    """Return the names of all tests of the suite."""
    command = [str(python), str(PROGRAM), "--list"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.split()


def run_suite(launcher: Launcher, ranks: int, tests: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Run tests; return for each how it ended, and why.

    A new job continues after a test that failed, since its ranks may be apart.
    """
    left, found = list(tests), dict[str, tuple[str, str]]()
    while left:
        with tempfile.TemporaryDirectory() as place:
            failure = _run_job(launcher, ranks, place, left)
            lines = [
                [json.loads(line) for line in path.read_text().splitlines()]
                for path in sorted(Path(place).glob("*.jsonl"))
            ]
        told = _merged(lines)
        if all(how != "failed" for how, _ in told.values()) and len(told) < len(left):
            told[left[len(told)]] = "failed", failure or "the job ended"
        found |= told
        left = [name for name in left if name not in found]
    return found


def _run_job(launcher: Launcher, ranks: int, place: str, tests: Sequence[str]) -> str:
    run = launcher.run(
        ranks,
        [str(PROGRAM), place, *tests],
        environment={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=TEST_TIMEOUT_S * len(tests),
        check=False,
    )
    return run.stderr[-1500:]


def _merged(ranks: Sequence[Sequence[dict[str, str]]]) -> dict[str, tuple[str, str]]:
    """Return how each test ended, the worst of all ranks, in the order in which they ran."""
    merged = dict[str, tuple[str, str]]()
    for line in (line for lines in ranks for line in lines):
        now = line["how"], line["why"]
        known = merged.get(line["test"], now)
        merged[line["test"]] = min(known, now, key=lambda one: ORDER.index(one[0]))
    return merged


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--python", type=Path, default=PYTHON)
    parser.add_argument("tests", nargs="*")
    given = parser.parse_args(argv)
    launcher = Launcher.find(python=given.python)
    outcomes = run_suite(launcher, given.ranks, given.tests or names(given.python))
    for name, (how, why) in sorted(outcomes.items(), key=lambda item: item[1][0]):
        if how != "passed":
            print(f"{how} {name}: {why.strip().splitlines()[-1] if why.strip() else ''}")
    print(dict(Counter(how for how, _ in outcomes.values())))


if __name__ == "__main__":
    main(sys.argv[1:])
