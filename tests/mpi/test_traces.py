"""What ranks of MPICH that die leave behind on their host."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import expiring
from tuner.base import processes
from tuner.launch import Launcher
from tuner.probe.driver import ProbeProgress, SingleHostSpec, probe
from tuner.validation.validation import VALIDATION_PROGRAM

LOOK_INTERVAL_S = 0.005
SHARED = re.compile(r"/dev/shm/mpich_shm_\w+")


def mapped(ranks: Iterable[int]) -> set[str]:
    """The shared memory of MPICH that these have, whether it still has a name or not."""
    found = set[str]()
    for rank in ranks:
        try:
            found |= set(SHARED.findall(Path(f"/proc/{rank}/maps").read_text()))
        except OSError:
            continue
    return found


@contextmanager
def seen_while_running(argument: str) -> Iterator[set[str]]:
    """Collect the shared memory of the ranks that have this argument, until the block ends."""
    names, ended = set[str](), threading.Event()

    def look() -> None:
        while not ended.wait(expiring(LOOK_INTERVAL_S)):
            names.update(mapped(processes.pids_with_arguments(argument)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield names
    finally:
        ended.set()
        looking.join()


def require_gone(launcher: Launcher, names: set[str]) -> None:
    """What MPICH 5 calls its shared memory is known; others may call it otherwise."""
    if not names and not launcher.version().startswith("mpich 5."):
        pytest.skip("this MPICH gives its shared memory no such name")
    assert names, "no shared memory of MPICH was seen"
    assert [name for name in names if Path(name).exists()] == []


def test_an_interrupted_probe_leaves_no_shared_memory(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    out, names = tmp_path / "m.ndjson", set[str]()

    def interrupt(progress: ProbeProgress) -> None:
        if progress.done:
            names.update(mapped(processes.pids_with_arguments(str(out))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(
            out,
            SingleHostSpec("mpich", ranks=2, sizes=(64,)),
            python=mpich_launcher.python,
            budget=3.0,
            on_progress=interrupt,
        )
    require_gone(mpich_launcher, names)


def test_ranks_that_abort_in_a_proof_leave_no_shared_memory(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    calls = tmp_path / "calls.json"
    call = {"nodes": 1, "ppn": 2, "nbytes": 64, "commutative": True}
    calls.write_text(json.dumps([{**call, "collective": name} for name in ("bcast", "shout")]))

    with seen_while_running(str(calls)) as names:
        run = mpich_launcher.run(2, [*VALIDATION_PROGRAM, str(calls)], check=False)
    assert run.returncode != 0
    require_gone(mpich_launcher, names)
