"""Deferral of SIGINT and SIGTERM to the end of a critical section."""

from __future__ import annotations

import threading
from types import FrameType


class DeferredInterrupt:
    """A signal handler that raises KeyboardInterrupt outside of critical sections.

    A signal inside a critical section raises it at the end of the section.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._is_pending = False

    def handler(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal; Python runs this in the main thread only."""
        if not self._depth:
            raise KeyboardInterrupt
        self._is_pending = True

    def enter_critical_section(self) -> None:
        """Defer signals from now on; may be nested. Other threads are never interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._depth += 1

    def leave_critical_section(self) -> None:
        """End a critical section; raise KeyboardInterrupt if a signal arrived meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._is_pending and not self._depth:
                self._is_pending = False
                raise KeyboardInterrupt


DEFERRED_INTERRUPT = DeferredInterrupt()
