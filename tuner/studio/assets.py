"""The files of the studio's pages, as they are sent to browsers.

Scripts and styles are sent as they are written, each as a file of its own. Their addresses contain
a digest of all of them, so that browsers keep them until one changes, and never mix two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAGES_DIR = Path(__file__).parent / "pages"
FILES = "files/"  # start of the names of scripts and styles
# Names of the pages, of which `studio.js` loads the module with their name; "" is the first one,
# which depends on what is stored.
PAGES = (
    "",
    "clusters",
    "table",
    "measure",
    "what-if",
    "call",
    "training",
    "report",
    "open",
    "login",
)
REFERENCE = "docs"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
REVALIDATED, KEPT = "no-cache", "public, max-age=31536000, immutable"  # Cache-Control
IMPORT = re.compile(r'^(?:import|\}).* from "(\.{1,2}/[^"]+)";$', re.MULTILINE)


@dataclass(frozen=True)
class Asset:
    """A file of the studio.

    etag        changes with the content; a weak one, as it is the same for compressed content
    caching     value of Cache-Control
    """

    content: bytes
    media_type: str
    etag: str
    caching: str = REVALIDATED

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)


def load_assets(folder: Path = PAGES_DIR) -> Mapping[str, Asset]:
    """Return the pages by their names, and the files by theirs, which begin with `FILES`."""
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }
    version = f"{FILES}{_digest(repr(contents).encode())}/"
    files = {name: content for name, content in contents.items() if not name.endswith(".html")}
    scripts = {name: [f"{name or 'studio'}.js", "studio.js"] for name in PAGES}
    return {
        **{name: _page("index.html", own, contents, version) for name, own in scripts.items()},
        REFERENCE: _page("docs.html", ["docs.js"], contents, version),
        **{version + name: _asset(name, content, KEPT) for name, content in files.items()},
    }


def _asset(name: str, content: bytes, caching: str) -> Asset:
    media_type = MEDIA_TYPES[Path(name).suffix]
    return Asset(content, media_type, f'W/"{_digest(content)}"', caching)


def _page(name: str, scripts: Iterable[str], contents: Mapping[str, bytes], version: str) -> Asset:
    """Return a page that names files with the digest, and all modules that its scripts import.

    Without their names a browser would ask for the modules of one import after the other.
    """
    links = "".join(
        f'<link rel="modulepreload" href="/studio/{module}" />\n'
        for module in _modules(scripts, contents)
    )
    page = contents[name].decode().replace("</head>", f"{links}</head>")
    return _asset(name, page.replace('="/studio/', f'="/studio/{version}').encode(), REVALIDATED)


def _modules(scripts: Iterable[str], contents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield modules and all that they import, each once."""
    waiting = list(dict.fromkeys(scripts))
    found = set(waiting)
    while waiting:
        module = waiting.pop()
        yield module
        folder = posixpath.dirname(module)
        for target in IMPORT.findall(contents[module].decode()):
            name = posixpath.normpath(posixpath.join(folder, target))
            if name not in found:
                found.add(name)
                waiting.append(name)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
