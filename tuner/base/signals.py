"""Exit statuses of signals, and their deferral to the end of a critical section."""

from __future__ import annotations

import threading
from types import FrameType

EXIT_SIGNAL = 128  # plus N: exit status that shells report for a command that signal N ended


class SignalInterrupt(KeyboardInterrupt):
    """The interruption by a signal, whose number is `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class DeferredInterrupt:
    """A signal handler that raises SignalInterrupt outside of critical sections.

    A signal inside a critical section raises it at the end of the section.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._pending: SignalInterrupt | None = None

    def handler(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal; Python runs this in the main thread only."""
        if not self._depth:
            raise SignalInterrupt(number)
        self._pending = SignalInterrupt(number)

    def enter_critical_section(self) -> None:
        """Defer signals from now on; may be nested. Other threads are never interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._depth += 1

    def leave_critical_section(self) -> None:
        """End a critical section; raise SignalInterrupt if a signal arrived meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._pending and not self._depth:
                pending, self._pending = self._pending, None
                raise pending


DEFERRED_INTERRUPT = DeferredInterrupt()
