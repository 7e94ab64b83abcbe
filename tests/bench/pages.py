"""Time from opening a page of the studio to what is useful: `python -m tests.bench.pages [TIMES]`.

Each page is opened in a new profile of Chromium, once right after the service has started and then
TIMES times. The time is that of the page's own clock when its first answer is drawn.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from typing import Any

from playwright.sync_api import sync_playwright

from tests.service.serving import a_table, publish, serving
from tuner.cli.terminal.output import print_table

PAGES = {  # page -> what is there as soon as it is useful
    "clusters": "main[data-state=complete]",
    "table": "main[data-state=complete]",
    "measure": "main[data-state=complete]",
    "what-if": "main[data-shown]",
    "call": "main[data-state=complete]",
    "training": "main[data-shown]",
    "report": "main[data-state=complete]",
}


def milliseconds_to_useful(browser: Any, address: str, page: str) -> float:
    """Open a page in a new profile and return when it was useful."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    shown.goto(f"{address}/studio/{page}", wait_until="commit")
    shown.wait_for_selector(PAGES[page])
    found: float = shown.evaluate("performance.now()")
    context.close()
    return found


def measured(browser: Any, page: str, times: int) -> tuple[str, ...]:
    """Return the row of one page, on a service of its own."""
    with (
        tempfile.TemporaryDirectory() as place,
        serving(f"sqlite:///{place}/tuner.sqlite", "--no-jobs") as own,
    ):
        publish(own.client, a_table())
        address = str(own.client.base_url).rstrip("/")
        first = milliseconds_to_useful(browser, address, page)
        later = [milliseconds_to_useful(browser, address, page) for _ in range(times)]
    return page, f"{first:.0f}ms", f"{statistics.median(later):.0f}ms", f"{max(later):.0f}ms"


if __name__ == "__main__":
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        rows = [measured(chromium, page, times) for page in PAGES]
    heads = ("page", "first", "median", "longest")
    print_table("", heads, rows, right=heads[1:])
