"""Pass a deadline to ranks, so that the time they took to start counts too.

Clocks that count from the boot agree between the programs of one computer. Ranks on another
computer cannot read the deadline: their limit counts from when they begin.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def format_deadline(at: float) -> str:
    """Return the text that passes on the deadline `at`, a time of time.monotonic()."""
    return f"{_boot()}:{at!r}"


def seconds_until(text: str) -> float:
    """Return the seconds until a deadline that `format_deadline` wrote.

    They are infinite if it comes from another computer or another boot. Raises ValueError for other
    text.
    """
    boot, _, at = text.rpartition(":")
    return float(at) - time.monotonic() if boot and boot == _boot() else math.inf


def _boot() -> str:
    """Return the identifier of this computer's current boot; "" if the system has none."""
    return _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else ""
