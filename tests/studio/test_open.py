"""The page "Open": files that are chosen, and files that are dropped on another page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.serving import served
from tests.studio.browsing import COMPLETE, PHONE, WIDE_ENOUGH, opened
from tuner.api.settings import Settings

pytestmark = [pytest.mark.extended, pytest.mark.slow]

OSU = "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n1024   20.0\n2048   25.0\n"
DROP = """(text) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], "flat.yaml"));
  dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, cancelable: true }));
}"""


@pytest.fixture
def address(database: str) -> Iterator[str]:
    with served(Settings(database=database)) as client:
        yield _address(client)


def _address(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


def test_two_runs_are_compared(page: Any, address: str, tmp_path: Path) -> None:
    paths = [tmp_path / "before.txt", tmp_path / "after.txt"]
    paths[0].write_text(OSU)
    paths[1].write_text(OSU.replace("25.0", "50.0"))
    opened(page, f"{address}/studio/open").set_input_files("#files", paths)
    table = page.get_by_role("region", name="after.txt against before.txt")
    table.get_by_role("cell", name="2.00").wait_for()
    page.get_by_label("Ranks", exact=True).fill("8")
    page.get_by_label("Nodes", exact=True).fill("4")
    page.keyboard.press("Tab")  # a field counts when it is left
    page.get_by_label("Compare with", exact=True).select_option("preset:comet")
    page.get_by_role("heading", name="as predicted").first.wait_for()


def test_a_file_is_dropped_on_another_page(page: Any, address: str) -> None:
    opened(page, f"{address}/studio/clusters")
    page.evaluate(DROP, "name: flat8\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n")
    page.get_by_role("heading", name="flat.yaml: a machine").wait_for()
    assert page.url.endswith("/studio/open")


def test_an_unknown_file_is_named(page: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear all,\n")
    opened(page, f"{address}/studio/open").set_input_files("#files", [tmp_path / "letter.txt"])
    page.get_by_role("alert").wait_for()
    assert "in no form that is read" in page.get_by_role("alert").inner_text()


def test_the_page_fits_a_phone(page: Any, address: str, tmp_path: Path) -> None:
    page.set_viewport_size(PHONE)
    (tmp_path / "osu.txt").write_text(OSU)
    opened(page, f"{address}/studio/open").set_input_files("#files", [tmp_path / "osu.txt"])
    page.get_by_role("heading", name="osu.txt: benchmark results").wait_for()
    page.wait_for_selector(COMPLETE)
    assert page.evaluate(WIDE_ENOUGH)
