"""Every page of the navigation, as axe-core judges it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.extended, pytest.mark.slow]

AXE = ROOT / "studio/node_modules/axe-core/axe.min.js"
NAVIGATION = re.compile(r'\["(/studio/[^"]+)", "[^"]+", show')  # PAGES of studio.js
LOUD = ("serious", "critical")
WHAT_IF = (
    "/studio/what-if?topology=preset:kesch&collective=bcast&nodes=2&ppn=2&from=1024&to=65536"
    "&map=1&pin=topology%3Dpreset%3Akesch%26nodes%3D2%26ppn%3D1"
)


def pages() -> list[str]:
    """The paths of the navigation, and those that are not in it."""
    found = NAVIGATION.findall((ROOT / "studio/src/studio.js").read_text())
    assert found
    return [*found, WHAT_IF, "/studio/login", "/docs"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", pages())
def test_nothing_serious_is_found(page: Any, address: str, path: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.goto(address + path)
    page.wait_for_load_state("networkidle")
    if path.startswith("/studio/what-if"):
        page.wait_for_selector("main[data-others=complete]")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    said = [
        f"{one['id']}: {node['html']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in LOUD
        for node in one["nodes"]
    ]
    assert said == []
