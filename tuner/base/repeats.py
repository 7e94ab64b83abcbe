"""Logs in which a lasting problem does not hide everything else."""

from __future__ import annotations

import logging

INTERVAL_S = 60.0  # seconds until a message that still holds is logged again


class RepeatFilter(logging.Filter):
    """A filter that drops a message which its logger has logged within the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ("", -INTERVAL_S)  # message, and when it was logged

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record: its message is new, or old enough to be said again."""
        message, logged_at = self._last
        if record.getMessage() == message and record.created < logged_at + INTERVAL_S:
            return False
        self._last = (record.getMessage(), record.created)
        return True
