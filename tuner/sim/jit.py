"""How code that moves time forward is compiled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from numba import njit
from numba.core import event

log = logging.getLogger(__name__)

# Nothing is allocated in it, so numba need not count references to the arrays that calls pass on,
# which would take three quarters of its time. A division by zero gives infinity, as in numpy.
compiled = partial(njit, cache=True, error_model="numpy", _nrt=False)


class NotCompiledError(Exception):
    """Something would have to be compiled where that is not allowed."""


class _Compilation(event.Listener):
    """Hears of what numba compiles because it does not find it compiled.

    allowed     whether it may; else NotCompiledError is raised before it begins
    """

    allowed = True

    def on_start(self, _event: event.Event) -> None:
        """Say so, or refuse."""
        if not self.allowed:
            raise NotCompiledError
        _tell()

    def on_end(self, _event: event.Event) -> None:
        """Say nothing."""


@cache
def _tell() -> None:
    """Once in a process. Without any handler, as on the command line, it goes to standard error."""
    log.warning("compiling the simulation: this takes up to a minute, once")


_compilation = _Compilation()
event.register("numba:compile", _compilation)


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Raise NotCompiledError inside this context where compiled code is not in numba's cache."""
    before, _compilation.allowed = _compilation.allowed, False
    try:
        yield
    finally:
        _compilation.allowed = before
