"""This package on the path of other interpreters: alone, since its neighbours may belong to another
environment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tuner.base.errors import InputError, ProbeError

PACKAGE = Path(__file__).resolve().parents[1]


@contextmanager
def search_path(local: bool, further: str | None = None) -> Iterator[str]:
    """Provide a PYTHONPATH under which `tuner` can be imported.

    local       on this computer alone; other hosts see the home directory, not this one's /tmp
    further     more directories, before those of this process's own PYTHONPATH
    """
    with _shelf(local) as shelf:
        yield os.pathsep.join(filter(None, [shelf, further or os.environ.get("PYTHONPATH")]))


@contextmanager
def _temporary() -> Iterator[str]:
    try:
        place = tempfile.TemporaryDirectory(prefix="tuner-")
        Path(place.name, "tuner").symlink_to(PACKAGE)
    except OSError as reason:
        raise InputError(
            f"the directory of temporary files cannot be written: {reason.strerror}; make room or"
            " set TMPDIR to another one"
        ) from None
    with place as name:
        yield name


@contextmanager
def _shelf(local: bool) -> Iterator[str]:
    """A directory with a link to this package."""
    if local:
        with _temporary() as place:
            yield place
        return
    name = sha256(str(PACKAGE).encode()).hexdigest()[:12]
    shelf = Path.home() / ".cache" / "tuner" / f"ranks-{name}"
    link = shelf / "tuner"
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(PACKAGE)
    except FileExistsError:  # another launch was as fast
        pass
    except OSError as reason:
        raise ProbeError(f"{shelf}: cannot be made for the ranks: {reason.strerror}") from None
    yield str(shelf)
