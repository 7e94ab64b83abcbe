"""A library whose messages take device memory and whose collectives do not, on the stand-in."""

from __future__ import annotations

import os
from typing import Any


def open_during_messages() -> None:
    """Let the host touch the stand-in's device memory while schedules send and receive, and at no
    other time, if CUPY_STANDIN_ADDRESSES is `messages`.
    """
    if os.environ.get("CUPY_STANDIN_ADDRESSES") != "messages":
        return
    from cupy import _driver

    from tuner.runtime.executor import (
        PersistentSchedule,  # programs put devices in its place before
    )

    run = PersistentSchedule.run

    def opened(self: PersistentSchedule, *arguments: Any) -> None:
        with _driver.opened():
            run(self, *arguments)

    setattr(PersistentSchedule, "run", opened)  # noqa: B010 - mypy knows no other way to replace a method
