"""A digest of the program itself, for answers that are kept as long as it gives the same ones."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from tuner import __version__

PACKAGE = Path(__file__).resolve().parents[1]
SOURCE_SUFFIXES = {".c", ".h", ".py", ".yaml"}
DIGITS = 12


@cache
def code_digest(folder: Path = PACKAGE) -> str:
    """Return a digest of the sources in a folder, whatever their times and owners are.

    It is computed once per process (26 ms for the whole package), and so early that the files are
    those from which this process was loaded: call it where a module is imported.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES):
        content = hashlib.sha256(path.read_bytes())
        digest.update(f"{path.relative_to(folder)} {content.hexdigest()}\n".encode())
    return digest.hexdigest()[:DIGITS]


def code_version() -> str:
    """Return the version with the digest, such as `0.2.0+1a2b3c4d5e6f`, as PEP 440 writes both."""
    return f"{__version__}+{code_digest()}"
