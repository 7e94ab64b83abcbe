"""The documents: the page on the architecture, the handbook and links between pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_package_is_in_the_table_of_layers() -> None:
    named = {
        name
        for row in re.findall(r"^\|.*\|$", PAGE, re.M)
        for name in re.findall("`([a-z_]+)`", row)
    }
    packages = {init.parent.name for init in (ROOT / "tuner").glob("*/__init__.py")}
    assert packages <= named


def test_every_file_that_is_named_is_there() -> None:
    places = re.findall(r"`((?:tuner|docs|models|db)/[\w/.]*\w/?)`", PAGE)
    assert len(places) > 10
    assert [place for place in places if not (ROOT / place).exists()] == ["tuner/_data"]


def test_every_page_is_in_the_handbook() -> None:
    handbook = (ROOT / "docs" / "handbook.py").read_text()
    included = set(re.findall(r"include:: (\S+)", handbook))
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.glob("**/*.md")}
    assert included == pages


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page
