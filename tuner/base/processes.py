"""Finding the processes of this computer that belong together, and ending them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC_DIR = Path("/proc")
GRACE_PERIOD_S = 3.0  # between SIGTERM and SIGKILL, and after SIGKILL
_POLL_INTERVAL_S = 0.02


def available_cores() -> int:
    """Return the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0))


def pids_in_namespaces(namespaces: Iterable[Path]) -> set[int]:
    """Return the processes in any of these network namespaces."""
    inodes = {path.stat().st_ino for path in namespaces if path.exists()}
    return _matching_pids(lambda process: (process / "ns/net").stat().st_ino in inodes)


def pids_with_variable(name: str, value: str) -> set[int]:
    """Return the processes that were started with this environment variable."""
    wanted = f"{name}={value}".encode()
    return _matching_pids(lambda process: wanted in (process / "environ").read_bytes().split(b"\0"))


def pids_with_arguments(*arguments: str) -> set[int]:
    """Return the processes whose command line contains all these arguments."""
    wanted = {word.encode() for word in arguments}
    return _matching_pids(
        lambda process: wanted <= set((process / "cmdline").read_bytes().split(b"\0"))
    )


def _matching_pids(belongs: Callable[[Path], bool]) -> set[int]:
    return {
        int(entry.name)
        for entry in PROC_DIR.iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _is_match(belongs, entry)
    }


def _is_match(belongs: Callable[[Path], bool], process: Path) -> bool:
    """Return whether the process matches; False if it ended meanwhile or cannot be inspected."""
    try:
        return belongs(process)
    except OSError:
        return False


def terminate(find_pids: Callable[[], set[int]]) -> bool:
    """End the processes that `find_pids` returns, also ones that they start meanwhile.

    Returns whether none of them is left.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE_PERIOD_S
        asked: set[int] = set()
        while found := find_pids():
            for process in found - asked:
                _send_signal(process, number)
            asked |= found
            if time.monotonic() > until:
                break
            time.sleep(_POLL_INTERVAL_S)
        else:
            return True
    return False


def _send_signal(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return  # it has already ended
