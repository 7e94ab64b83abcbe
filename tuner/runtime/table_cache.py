"""A cache on disk of the last valid table of every service, for later jobs.

It has one file per service, cluster and library, in `$TUNER_CACHE`, else `$XDG_CACHE_HOME/tuner`,
else `~/.cache/tuner`. The file name is a digest, so no outside text becomes a path. Only the user
may read it, since a table may hold confidential facts about a cluster.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.base.atomic_io import dataclass_from_record, write_atomically
from tuner.base.errors import InputError
from tuner.runtime.table_source import FetchedTable, TableRequest, sha256_hex

_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700


@dataclass(frozen=True)
class _Entry:
    """The content of a file; `digest` is the SHA-256 of `text`."""

    service: str
    cluster: str
    library: str
    etag: str
    digest: str
    text: str


def cache_directory() -> Path:
    """Return the directory of the cache; raises InputError for a user without a home."""
    own = os.environ.get("TUNER_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "tuner"
    except RuntimeError:
        raise InputError("this user has no home: name a place for copies in TUNER_CACHE") from None


def cache_path(request: TableRequest) -> Path:
    """Return the cache file for this request; raises as `cache_directory` does."""
    subject = json.dumps([request.service, request.cluster, request.library])
    return cache_directory() / f"{sha256_hex(subject)}.json"


def load(request: TableRequest) -> FetchedTable | None:
    """Load the copy for this request; None where this user has none.

    Raises InputError for a damaged copy.
    """
    try:
        path = cache_path(request)
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            content = file.read()
    except (OSError, InputError):
        return None
    try:
        entry = dataclass_from_record(_Entry, json.loads(content))
        request.parse_and_check(entry.text)
    except (InputError, ValueError, TypeError, RecursionError):
        raise _damaged_error(path) from None
    asked = (request.service, request.cluster, request.library, sha256_hex(entry.text))
    if (entry.service, entry.cluster, entry.library, entry.digest) != asked:
        raise _damaged_error(path)
    return FetchedTable(entry.text, f"the copy in {path}", entry.etag)


def _damaged_error(path: Path) -> InputError:
    return InputError(f"the copy in {path} is damaged")


def save(request: TableRequest, fetched: FetchedTable) -> None:
    """Replace the copy; errors are ignored, such as those of a full home directory."""
    entry = _Entry(
        request.service,
        request.cluster,
        request.library,
        fetched.etag,
        sha256_hex(fetched.text),
        fetched.text,
    )
    try:
        path = cache_path(request)
        path.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(entry)), _PRIVATE_FILE)
    except (OSError, InputError):
        return
