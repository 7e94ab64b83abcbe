"""A probe killed again and again.

    python -m tests.bench.crash_recovery_probe [KILLS] [LIBRARY ...]

The same `tuner probe` is started, ended with SIGKILL at a random moment, alone or with its launcher
and ranks, and started again, KILLS times (10), and then once more to its end. After every kill each
series that was in the file must still be there, once; at the end it must hold what a probe holds
that nobody killed. Prints what was seen; fails with a traceback. Libraries: openmpi and mpich, both
by default.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tuner.core.measurement import Measurement, read_measurements, read_partial

KILLS = 10
SEED = 20240301
LONGEST = 6.0  # seconds that a probe runs before it is killed
PATIENCE = 600.0  # seconds of a whole one
WORDS = (
    "--ranks",
    "2",
    "--sizes",
    "64B,1KiB,16KiB,64KiB,256KiB",
    "--budget",
    "60s",
    "--launches",
    "12",
    "--ci-width",
    "0.001",
)
Name = tuple[object, ...]


def name(one: Measurement) -> Name:
    """What tells series apart; the size of an eager limit is what was measured."""
    point = one.point[:5] if one.kind == "eager" else one.point
    return one.launch, point, one.algorithm, tuple(sorted(one.params.items()))


def command(library: str, out: Path) -> list[str]:
    """Of the probe."""
    return [
        sys.executable,
        "-m",
        "tuner.cli.main",
        "probe",
        "--library",
        library,
        *WORDS,
        "--out",
        str(out),
    ]


def whole(library: str, out: Path) -> None:
    """Until it is done."""
    subprocess.run(command(library, out), check=True, capture_output=True, timeout=PATIENCE)


def killed(library: str, out: Path, draw: random.Random) -> None:
    """At any moment; its ranks as well, or they are left to end by themselves."""
    with subprocess.Popen(
        command(library, out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as probe:
        time.sleep(draw.uniform(0.0, LONGEST))
        if draw.random() < 0.5:
            os.killpg(probe.pid, signal.SIGKILL)
        probe.kill()


def held(out: Path) -> Sequence[Measurement]:
    """What the file has; each series once."""
    series = read_partial(out)[1] if out.exists() else []
    twice = [one for one, times in Counter(map(name, series)).items() if times > 1]
    assert not twice, f"measured twice: {twice}"
    return series


def main(kills: int, libraries: Sequence[str], directory: Path) -> None:
    """For each library."""
    for library in libraries:
        draw, out, seen = random.Random(SEED), directory / f"{library}.ndjson", [0]
        known: Sequence[Measurement] = []
        for _ in range(kills):
            killed(library, out, draw)
            now = held(out)
            lost = [name(one) for one in known if one not in now]
            assert not lost, f"lost: {lost}"
            known = now
            seen.append(len(now))
        whole(library, out)
        found, undisturbed = read_measurements(out).series, directory / f"{library}.whole.ndjson"
        whole(library, undisturbed)
        assert all(one in found for one in known)
        odd = set(map(name, held(out))) ^ set(map(name, held(undisturbed)))
        assert not odd, f"in one file alone: {odd}"
        print(
            f"{library}: {kills} kills, series in the file {' '.join(map(str, seen))}, in the end"
            f" {len(found)}: nothing lost, nothing twice",
            flush=True,
        )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    named = [word for word in sys.argv[1:] if not word.isdigit()]
    with tempfile.TemporaryDirectory(prefix="tuner-kills-") as scratch:
        main(numbers[0] if numbers else KILLS, named or ["openmpi", "mpich"], Path(scratch))
