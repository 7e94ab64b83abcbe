"""The pages of the documentation as their tests read them: links, anchors, blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# Pages, and folders of pages, that the build of the site makes.
GENERATED = ("reference/machines", "reference/commands", "reference/rest", "reference/python")
FENCE = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name(page: Path) -> str:
    """Return a page as its path below the folder of documents."""
    return page.relative_to(DOCS).as_posix()


def is_generated(page: Path) -> bool:
    """Return whether the build of the site makes a page."""
    return any(page.with_suffix("").is_relative_to(DOCS / made) for made in GENERATED)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the blocks of code in these languages."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if found[1] in languages:
            yield found[2]


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code and code in lines."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"^ {4}.*$", "", re.sub(r"`[^`\n]*`", "code", text), flags=re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return the targets of all links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def children(page: Path) -> set[Path]:
    """Return the pages in the tables of contents of a page."""
    found = set[Path]()
    for toctree in blocks(page, "{toctree}"):
        entries = [line for line in toctree.splitlines() if line and not line.startswith(":")]
        for entry in entries:
            matches = set(page.parent.glob(f"{entry}.md")) - {page}
            assert matches or is_generated(page.parent / entry), (
                f"{name(page)}: {entry} is not there"
            )
            found |= {match.resolve() for match in matches}
    return found
