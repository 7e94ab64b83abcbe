"""Writing files so that nothing half-written is ever left behind."""

import os
import tempfile
from pathlib import Path

from tuner.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside `path`, flush to disk, then rename over it.

    Raises InputError (disk full, no permission); `path` then is what it was before.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as reason:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(
            f"{path}: cannot be written: {reason.strerror}; nothing was changed"
        ) from None
