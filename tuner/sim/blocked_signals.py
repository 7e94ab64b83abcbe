"""Blocking of signals while compiled code runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def block_signals() -> Iterator[None]:
    """Hold back SIGINT and SIGTERM until the end of the context.

    A signal handler that raises while numba unpacks arguments leaves half of them behind, which
    crashes the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
