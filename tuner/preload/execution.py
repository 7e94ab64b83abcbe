"""Start the command of a user's program: in the place of this process, or to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tuner.base.errors import InputError
from tuner.preload.command import PreparedCommand

RECORD_VARIABLE = "TUNER_RECORD"  # the file for the record of a run
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def run_directory() -> Iterator[Path]:
    """Give a directory for what the ranks write, which rank 0 sees where it sees the program's."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".tuner-run-") as folder:
        yield Path(folder)


def replace_process(command: PreparedCommand) -> NoReturn:
    """Run a command in the place of this process; raises InputError where it cannot start."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by the program, too
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command.words[0], command.words, command.environment)
    except OSError as reason:
        raise _not_started(command, reason) from None


def run_to_end(command: PreparedCommand) -> int:
    """Run a command to its end; return its status as a shell does.

    Signals that would end this process end the command instead; Ctrl-C reaches both. Raises
    InputError where it cannot start.
    """
    try:
        process = subprocess.Popen(command.words, env=command.environment)
    except OSError as reason:
        raise _not_started(command, reason) from None

    def forward(number: int, _: FrameType | None) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (*FORWARDED, signal.SIGINT)}
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _not_started(command: PreparedCommand, reason: OSError) -> InputError:
    return InputError(f"{command.words[0]} cannot be started: {reason.strerror}")
