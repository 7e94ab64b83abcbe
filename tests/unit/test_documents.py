"""The page on the architecture; tests/docs has what holds for all pages."""

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
