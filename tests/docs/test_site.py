"""The built site: no warnings, every page reachable, every link valid, nothing from the network."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, name
from tests.support.waiting import patience

pytestmark = pytest.mark.extended


class Page(HTMLParser):
    """A page: where its links lead, which files it loads, and which anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element refers to."""
        values = dict(attrs)
        self.anchors |= {values["id"] or ""} if "id" in values else set()
        target = values.get("href") or values.get("src") or ""
        if tag == "a":
            self.links.append(target)
        elif tag in ("link", "script", "img", "iframe") and target:
            self.loads.append(target)


@dataclass(frozen=True)
class Site:
    """The folder of a built site and its pages."""

    folder: Path
    pages: Mapping[Path, Page]

    def target(self, path: Path, link: str) -> Path | None:
        """Return the file that a link of a page leads to; None for another site."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        return (path.parent / unquote(parts.path)).resolve() if parts.path else path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("built") / "docs"
    command = ["make", "docs", f"SITE={folder}"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(180))
    assert made.returncode == 0, made.stderr
    assert "WARNING" not in made.stderr
    return Site(folder, {path: Page(path) for path in folder.rglob("*.html")})


def test_every_page_is_built_and_reached(site: Site) -> None:
    border, found = {site.folder / "index.html"}, set[Path]()
    while border:
        found |= border
        linked = {site.target(path, link) for path in border for link in site.pages[path].links}
        border = {path for path in linked if path and path in site.pages} - found
    assert {site.folder / name(page).replace(".md", ".html") for page in PAGES} <= found
    assert site.folder / "reference" / "machines.html" in found
    assert site.pages.keys() - found <= {site.folder / "search.html"}


def test_links_and_anchors_are_valid(site: Site) -> None:
    broken = defaultdict(list)
    for path, page in site.pages.items():
        for link in [*page.links, *page.loads]:
            target = site.target(path, link)
            if target is None:
                continue
            anchor = unquote(urlsplit(link).fragment)
            anchors = site.pages[target].anchors if target in site.pages else set[str]()
            if not target.exists() or (anchor and anchor not in anchors):
                broken[path.name].append(link)
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    loaded = {load for page in site.pages.values() for load in page.loads}
    assert [load for load in loaded if urlsplit(load).netloc] == []
    styles = "".join(style.read_text() for style in site.folder.rglob("*.css"))
    assert "url(http" not in styles
    assert "url(//" not in styles


def test_the_site_is_searched_without_a_server(site: Site) -> None:
    index = (site.folder / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    for page in PAGES:
        assert f'"{name(page).removesuffix(".md")}"' in index
