"""Signals that arrive while numba compiles."""

from __future__ import annotations

from functools import cache

from numba.core import event

from tuner.base.signals import DEFERRED_INTERRUPT


class _SignalBlocker(event.Listener):
    """Listener that defers signals while numba holds its compiler lock.

    LLVM hands over compiled code in callbacks, where an exception would be lost together with the
    code.
    """

    def on_start(self, _event: event.Event) -> None:
        """Defer signals when the compiler lock is taken."""
        DEFERRED_INTERRUPT.enter_critical_section()

    def on_end(self, _event: event.Event) -> None:
        """Deliver signals again when the compiler lock is released."""
        DEFERRED_INTERRUPT.leave_critical_section()


@cache
def defer_signals_while_compiling() -> None:
    """Register the listener, once per process."""
    event.register("numba:compiler_lock", _SignalBlocker())
