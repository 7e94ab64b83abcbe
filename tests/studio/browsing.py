"""Actions of a user in the browser, which all pages have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMPLETE = "main[data-state=complete]"
WIDTHS = (360, 390, 1280, 2560)
PHONE = {"width": 390, "height": 844}
WIDE_ENOUGH = "document.documentElement.scrollWidth <= innerWidth"


def opened(page: Any, url: str, ready: str = COMPLETE) -> Any:
    """Open an address and wait until an element that matches `ready` is there."""
    page.goto(url)
    page.wait_for_selector(ready)
    return page


def query(page: Any) -> dict[str, list[str]]:
    """Return the query of the address."""
    return parse_qs(urlsplit(page.url).query)


def press(page: Any, name: str) -> None:
    """Press the button with this name."""
    page.get_by_role("button", name=name, exact=True).click()


def copied(page: Any, button: str) -> str:
    """Press a button that copies, and return what it copied."""
    press(page, button)
    page.get_by_text("copied").wait_for()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def is_in_sight(page: Any, selector: str) -> bool:
    """Return whether an element is within the window, and nothing lies over its middle."""
    found: bool = page.evaluate(
        """(selector) => {
          const element = document.querySelector(selector);
          const { left, right, top, bottom } = element.getBoundingClientRect();
          const seen = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
          return top >= 0 && bottom <= innerHeight && element.contains(seen);
        }""",
        selector,
    )
    return found


def saved(page: Any, button: str) -> Path:
    """Press a button that saves a file, and return the file."""
    with page.expect_download() as download:
        press(page, button)
    return Path(download.value.path())
