"""How code that moves time forward is compiled."""

from __future__ import annotations

import logging
from functools import cache, partial

from numba import njit
from numba.core import event

log = logging.getLogger(__name__)

# Nothing is allocated in it, so numba need not count references to the arrays that calls pass on,
# which would take three quarters of its time. A division by zero gives infinity, as in numpy.
compiled = partial(njit, cache=True, error_model="numpy", _nrt=False)


class _Told(event.Listener):
    """Of what numba compiles because it does not find it compiled."""

    def on_start(self, _event: event.Event) -> None:
        """Say so."""
        _tell()

    def on_end(self, _event: event.Event) -> None:
        """Say nothing."""


@cache
def _tell() -> None:
    """Once in a process. Without any handler, as on the command line, it goes to standard error."""
    log.warning("compiling the simulation: this takes up to a minute, once")


_timer = event.TimingListener()
event.register("numba:compile", _Told())
event.register("numba:compile", _timer)


def compiling() -> float:
    """Seconds that this process has spent on it."""
    return float(_timer.duration) if _timer.done else 0.0
