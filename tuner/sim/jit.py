"""Numba settings for the engines, and control over when numba compiles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from numba.core import event

from tuner.base.compiled import compiled

log = logging.getLogger(__name__)

# For functions that allocate nothing: without reference counts for the arrays that calls pass on,
# which would take three quarters of the time. A division by zero gives infinity, as in numpy.
njit_no_alloc = partial(compiled, error_model="numpy", _nrt=False)


class NotCompiledError(Exception):
    """Something would have to be compiled where that is forbidden."""


class _CompileListener(event.Listener):
    """A listener for what numba compiles because its cache lacks it.

    is_allowed  whether it may; otherwise NotCompiledError is raised before it begins
    """

    is_allowed = True

    def on_start(self, _event: event.Event) -> None:
        """Warn that numba compiles, or raise NotCompiledError."""
        if not self.is_allowed:
            raise NotCompiledError
        _warn_once()

    def on_end(self, _event: event.Event) -> None:
        """Do nothing."""


@cache
def _warn_once() -> None:
    """Log a warning once per process.

    Without any handler, as on the command line, it goes to standard error.
    """
    log.warning("compiling the simulation: this takes up to a minute, once")


_compile_listener = _CompileListener()
event.register("numba:compile", _compile_listener)


@contextmanager
def forbid_compilation() -> Iterator[None]:
    """Raise NotCompiledError inside this context where compiled code is not in numba's cache."""
    before, _compile_listener.is_allowed = _compile_listener.is_allowed, False
    try:
        yield
    finally:
        _compile_listener.is_allowed = before
