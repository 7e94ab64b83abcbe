"""A search path by which other interpreters import this package.

It holds this package only, since its neighbours may belong to another environment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tuner.base.errors import InputError, ProbeError

PACKAGE_DIR = Path(__file__).resolve().parents[1]


@contextmanager
def search_path(local: bool, extra_path: str | None = None) -> Iterator[str]:
    """Provide a PYTHONPATH under which `tuner` can be imported.

    local       whether it is for this computer only; other hosts see the home directory, not this
                computer's /tmp
    extra_path  further directories, in place of this process's own PYTHONPATH

    Raises InputError or ProbeError where the directory of the link cannot be created.
    """
    with _link_directory(local) as shelf:
        yield os.pathsep.join(filter(None, [shelf, extra_path or os.environ.get("PYTHONPATH")]))


@contextmanager
def _temporary_link_directory() -> Iterator[str]:
    try:
        place = tempfile.TemporaryDirectory(prefix="tuner-")
        Path(place.name, "tuner").symlink_to(PACKAGE_DIR)
    except OSError as reason:
        raise InputError(
            f"the directory of temporary files cannot be written: {reason.strerror}; make room or"
            " set TMPDIR to another one"
        ) from None
    with place as name:
        yield name


@contextmanager
def _link_directory(local: bool) -> Iterator[str]:
    """Provide a directory with a link to this package."""
    if local:
        with _temporary_link_directory() as place:
            yield place
        return
    name = sha256(str(PACKAGE_DIR).encode()).hexdigest()[:12]
    shelf = Path.home() / ".cache" / "tuner" / f"ranks-{name}"
    link = shelf / "tuner"
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(PACKAGE_DIR)
    except FileExistsError:  # another launch has created it
        pass
    except OSError as reason:
        raise ProbeError(f"{shelf}: cannot be made for the ranks: {reason.strerror}") from None
    yield str(shelf)
