"""Ctrl-C and SIGTERM, which wait for the end of what must not be left half done."""

from __future__ import annotations

import threading
from types import FrameType


class DeferredInterrupt:
    """`handler` raises KeyboardInterrupt, at once or at the end of what is `begun`."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_pending = False

    def handler(self, _number: int, _frame: FrameType | None) -> None:
        """Of a signal; only the main thread runs it."""
        if not self._depth:
            raise KeyboardInterrupt
        self._is_pending = True

    def enter_critical_section(self) -> None:
        """From now on signals wait; may be nested. Other threads are never interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._depth += 1

    def leave_critical_section(self) -> None:
        """Raises KeyboardInterrupt for a signal that came meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._is_pending and not self._depth:
                self._is_pending = False
                raise KeyboardInterrupt


DEFERRED_INTERRUPT = DeferredInterrupt()
