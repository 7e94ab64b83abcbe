"""A directory for the files of a launch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_DIRECTORY = Path.home() / ".cache" / "tuner"  # in the home directory, which all hosts see


@contextmanager
def shared_directory(is_local: bool) -> Iterator[Path]:
    """Yield a temporary directory that all hosts of a launch see.

    With remote hosts (not `is_local`) it is in the home directory, since they do not see /tmp of
    this computer.
    """
    if not is_local:
        SHARED_DIRECTORY.mkdir(parents=True, exist_ok=True)
    folder = None if is_local else SHARED_DIRECTORY
    with tempfile.TemporaryDirectory(prefix="tuner-launch-", dir=folder) as place:
        yield Path(place)
