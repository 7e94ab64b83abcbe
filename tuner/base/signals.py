"""Ctrl-C and SIGTERM, which wait for the end of what must not be left half done."""

from __future__ import annotations

import threading
from types import FrameType


class Interruption:
    """`handler` raises KeyboardInterrupt, at once or at the end of what is `begun`."""

    def __init__(self) -> None:
        self._begun = 0
        self._late = False

    def handler(self, _number: int, _frame: FrameType | None) -> None:
        """Of a signal; only the main thread runs it."""
        if not self._begun:
            raise KeyboardInterrupt
        self._late = True

    def begin(self) -> None:
        """From now on signals wait; may be nested. Other threads are never interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._begun += 1

    def end(self) -> None:
        """Raises KeyboardInterrupt for a signal that came meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self._begun -= 1
            if self._late and not self._begun:
                self._late = False
                raise KeyboardInterrupt


INTERRUPTION = Interruption()
