"""Which processes of this computer belong together, and how they are ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC_DIR = Path("/proc")
GRACE_PERIOD_S = 3.0  # s between asking a process to end and killing it, and for it to be gone then
_POLL_INTERVAL_S = 0.02


def pids_in_namespaces(namespaces: Iterable[Path]) -> set[int]:
    """The processes that live in one of these network namespaces."""
    inodes = {path.stat().st_ino for path in namespaces if path.exists()}
    return _matching_pids(lambda process: (process / "ns/net").stat().st_ino in inodes)


def pids_with_variable(name: str, value: str) -> set[int]:
    """The processes that were started with this environment variable."""
    wanted = f"{name}={value}".encode()
    return _matching_pids(lambda process: wanted in (process / "environ").read_bytes().split(b"\0"))


def pids_with_arguments(*arguments: str) -> set[int]:
    """The processes whose command line has these words among its own."""
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
    """False too for a process that ended while it was looked at."""
    try:
        return belongs(process)
    except OSError:
        return False


def terminate(find_pids: Callable[[], set[int]]) -> bool:
    """End what `find` finds, also what those start meanwhile; True when none of them is left."""
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
        return  # it has just ended
