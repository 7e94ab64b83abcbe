"""Every page of the navigation, as axe-core judges it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from tests.studio.browsing import COMPLETE, opened
from tuner.studio.assets import PAGES

pytestmark = [pytest.mark.extended, pytest.mark.slow]

LOUD = ("serious", "critical")
WHAT_IF = (
    "/studio/what-if?topology=preset:kesch&collective=bcast&nodes=2&ppn=2&from=1024&to=65536"
    "&map=1&pin=topology%3Dpreset%3Akesch%26nodes%3D2%26ppn%3D1"
)


SETTLED = {  # what is there when a page is, where that is not COMPLETE
    "/studio/": "main[data-others=complete]",
    "/studio/what-if": "main[data-others=complete]",
    WHAT_IF: "main[data-others=complete]",
    "/studio/login": "main form",
    "/docs": "main details",
}
PATHS = [*(f"/studio/{name}" for name in PAGES), WHAT_IF, "/docs"]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    reason = "axe-core is not installed: pip install axe-playwright-python"
    package = pytest.importorskip("axe_playwright_python", reason=reason)
    return (files(package) / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_serious_is_found(page: Any, address: str, axe: str, path: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    opened(page, address + path, SETTLED.get(path, COMPLETE))
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    said = [
        f"{one['id']}: {node['html']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in LOUD
        for node in one["nodes"]
    ]
    assert said == []
