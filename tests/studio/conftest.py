"""Chromium, and a service with the studio of the checkout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.serving import served
from tests.support.waiting import patience
from tuner.api.settings import Settings

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but opening each page to `make test-studio`."""
    for item in items:
        if item.path.parent.name == "studio" and item.path.stem != "test_accessibility":
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    reason = "playwright is not installed: pip install playwright"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def address(database: str) -> Iterator[str]:
    """The address of a service without tokens."""
    with served(Settings(database=database)) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of a new profile, on which neither errors nor requests to other hosts occur."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.set_default_timeout(1000 * patience())
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if _is_fault(said) else None)
    page.on(
        "request",
        lambda asked: faults.append(asked.url) if "//127.0.0.1:" not in asked.url else None,
    )
    yield page
    context.close()
    assert [fault for fault in faults if not fault.startswith("blob:")] == []


def _is_fault(said: Any) -> bool:
    """Return whether the console reports an error other than a refused request."""
    return said.type == "error" and "Failed to load resource" not in said.text
