"""Compiled code that is left alone while it runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def block_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end.

    A signal handler that raises while numba takes arguments over leaves half of them behind, and
    the process dies of it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
