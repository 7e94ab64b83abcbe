"""Programs in a real pseudo-terminal, and what they wrote there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from tests.support.waiting import patience

WIDTH = 200
CONTROL = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
ROWS = 50


def screen(words: Sequence[str], columns: int, folder: Path, until: str = "") -> tuple[int, str]:
    """Return the exit status of a program, and all lines that it wrote, also those drawn over.

    until   what it writes before it gets Ctrl-C; nothing: it ends by itself
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    running = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**known, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = ""
    for piece in _pieces(ours):
        shown += piece
        if until and until in plain(shown):
            running.send_signal(signal.SIGINT)
            until = ""
    os.close(ours)
    return running.wait(), plain(shown)


class Typist:
    """Somebody at an interactive shell, which runs in `folder`."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, WIDTH, 0, 0))
        self._shell = subprocess.Popen(
            words,
            preexec_fn=partial(os.login_tty, theirs),
            cwd=folder,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._terminal)

    def type(self, keys: str, until: str) -> str:
        """Press keys, and return what the terminal shows up to a pattern; raises AssertionError
        where that does not come.
        """
        os.write(self._terminal, keys.encode())
        shown, deadline = "", time.monotonic() + patience()
        while not re.search(until, shown, re.DOTALL):
            assert time.monotonic() < deadline, shown
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += plain(os.read(self._terminal, 1 << 16).decode(errors="replace"))
        return shown


def _pieces(terminal: int) -> Iterator[str]:
    with suppress(OSError):  # the last program that had the terminal is gone
        while piece := os.read(terminal, 1 << 16):
            yield piece.decode(errors="replace")


def plain(text: str) -> str:
    """Return what a terminal shows, without colours; what is drawn over is a line, too."""
    return CONTROL.sub("", text).replace("\r", "\n")
