"""The files of the studio's pages, as they were bundled."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ASSETS_DIR = Path(__file__).parent / "assets"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
NOT_BUILT = (
    "The studio is not built: type make studio in the checkout of tuner, where Node.js must be"
    " installed, and start the service again."
)


@dataclass(frozen=True)
class Asset:
    """A file of the studio.

    etag    changes with the content; a weak one, as it is the same for compressed content
    """

    content: bytes
    media_type: str
    etag: str

    @cached_property
    def compressed(self) -> bytes:
        """The content as gzip."""
        return gzip.compress(self.content, mtime=0)


def load_assets(folder: Path = ASSETS_DIR) -> Mapping[str, Asset]:
    """Return the files by name; none where the studio is not built."""
    return {path.name: _load(path) for path in sorted(folder.glob("*.*"))}


def _load(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Asset(content, MEDIA_TYPES[path.suffix], f'W/"{digest}"')
