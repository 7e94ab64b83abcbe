"""Which processes of this computer belong together, and how they are ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC = Path("/proc")
GRACE = 3.0  # s between asking a process to end and killing it, and for it to be gone then
_PAUSE = 0.02


def on(namespaces: Iterable[Path]) -> set[int]:
    """The processes that live in one of these network namespaces."""
    inodes = {path.stat().st_ino for path in namespaces if path.exists()}
    return _such(lambda process: (process / "ns/net").stat().st_ino in inodes)


def with_variable(name: str, value: str) -> set[int]:
    """The processes that were started with this environment variable."""
    wanted = f"{name}={value}".encode()
    return _such(lambda process: wanted in (process / "environ").read_bytes().split(b"\0"))


def with_words(*words: str) -> set[int]:
    """The processes whose command line has these words among its own."""
    wanted = {word.encode() for word in words}
    return _such(lambda process: wanted <= set((process / "cmdline").read_bytes().split(b"\0")))


def _such(belongs: Callable[[Path], bool]) -> set[int]:
    return {
        int(entry.name)
        for entry in PROC.iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _now(belongs, entry)
    }


def _now(belongs: Callable[[Path], bool], process: Path) -> bool:
    """False too for a process that ended while it was looked at."""
    try:
        return belongs(process)
    except OSError:
        return False


def end(find: Callable[[], set[int]]) -> bool:
    """End what `find` finds, also what those start meanwhile; True when none of them is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE
        asked: set[int] = set()
        while found := find():
            for process in found - asked:
                _send(process, number)
            asked |= found
            if time.monotonic() > until:
                break
            time.sleep(_PAUSE)
        else:
            return True
    return False


def _send(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return  # it has just ended
