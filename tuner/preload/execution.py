"""Start the command of a user's program: in the place of this process, or to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from tuner.base.errors import InputError
from tuner.base.signals import EXIT_SIGNAL
from tuner.preload.command import PreparedCommand
from tuner.runtime.table_cache import cache_directory

RECORD_VARIABLE = "TUNER_RECORD"  # the file for the record of a run
REPORT_VARIABLE = "TUNER_REPORT"  # the file for how often each rule was followed
NOT_FOUND = 127  # status of a shell whose command does not exist
NOT_EXECUTABLE = 126  # status of a shell whose command exists, and cannot be executed
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class CommandNotStartedError(InputError):
    """A command cannot be started; `exit_status` is what a shell returns then (POSIX, 2.8.2)."""

    def __init__(self, word: str, reason: OSError) -> None:
        super().__init__(f"{word} cannot be started: {reason.strerror}")
        self.exit_status = NOT_FOUND if isinstance(reason, FileNotFoundError) else NOT_EXECUTABLE


class Ending(NamedTuple):
    """The status of a command as of a shell, and the last signal that it was sent, 0 for none."""

    status: int
    signal: int


@contextmanager
def run_directory() -> Iterator[Path]:
    """Give a directory for what the ranks write, in the cache, which all hosts have to see anyway.

    Raises InputError where none can be made.
    """
    try:
        cache_directory().mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(dir=cache_directory().absolute(), prefix="run-")
    except OSError as reason:
        raise InputError(f"{cache_directory()} cannot be written: {reason.strerror}") from None
    with made as folder:
        yield Path(folder)


def replace_process(command: PreparedCommand) -> NoReturn:
    """Run a command in the place of this process; raises CommandNotStartedError."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by the program, too
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command.words[0], command.words, command.environment)
    except OSError as reason:
        raise CommandNotStartedError(command.words[0], reason) from None


def run_to_end(command: PreparedCommand, *, prints_to_stderr: bool = False) -> Ending:
    """Run a command to its end; return how it ended.

    prints_to_stderr    whether its standard output becomes standard error

    Signals that would end this process go to the command. Where it has no terminal it is a process
    group of its own, so that a signal to the present group reaches it once; in a terminal Ctrl-C
    reaches both, and is not passed on. Raises CommandNotStartedError.
    """
    apart = sys.stdin is None or not sys.stdin.isatty()
    watched, sent = {*FORWARDED, signal.SIGCHLD}, 0
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        process = subprocess.Popen(
            command.words,
            env=command.environment,
            stdout=sys.stderr if prints_to_stderr else None,
            process_group=0 if apart else None,
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, before),
        )
        while process.poll() is None:
            arrived = signal.sigwaitinfo(watched)
            if arrived.si_signo != signal.SIGCHLD:
                sent = arrived.si_signo
                if apart or arrived.si_pid:
                    process.send_signal(sent)
    except OSError as reason:
        raise CommandNotStartedError(command.words[0], reason) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    status = process.returncode
    return Ending(status if status >= 0 else EXIT_SIGNAL - status, sent)
