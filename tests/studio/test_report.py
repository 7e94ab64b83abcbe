"""The page "Report" and the report's own file, in a real browser."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.studio.browsing import COMPLETE, WIDE_ENOUGH, WIDTHS, query, saved
from tests.support.reported import a_result, store_result
from tests.support.studio_command import started_studio
from tuner.cli.quickstart_files import DATABASE, OUT
from tuner.report.page import render_page

pytestmark = [pytest.mark.extended, pytest.mark.slow]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "report.html"
    path.write_text(render_page([a_result()]), encoding="utf-8")
    return path.as_uri()


def shown_titles(page: Any) -> list[str]:
    titles: list[str] = page.locator("section:visible h3").all_inner_texts()
    return titles


def test_the_file_works_by_itself(browser: Any, file: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: faults.append(asked.url) if asked.url != file else None)
    page.goto(file)
    page.locator("svg.plot").first.hover()
    assert "knomial (radix=4)" in page.locator(".readout").first.inner_text()
    page.get_by_label("Collective").select_option("bcast")
    assert "allreduce on 4 ranks" not in shown_titles(page)
    assert page.url == f"{file}#collective=bcast"
    page.reload()
    assert "allreduce on 4 ranks" not in shown_titles(page)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDE_ENOUGH), width
    context.close()
    assert faults == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_file_follows_the_theme_of_the_system(browser: Any, file: str, theme: str) -> None:
    context = browser.new_context(color_scheme=theme)
    page = context.new_page()
    page.goto(file)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 23)"
    assert dark == (theme == "dark")
    context.close()


def test_a_stored_table_is_reported(page: Any, address: str, database: str) -> None:
    version = store_result(database)
    page.goto(f"{address}/studio/report")
    page.wait_for_selector(COMPLETE)
    assert "became 2.00 times as fast" in page.locator(".verdict").inner_text()
    page.locator("svg.plot").first.focus()
    page.keyboard.press("ArrowRight")
    assert "Times at 64B" in page.locator(".readout").first.inner_text()
    page.get_by_label("Collective").select_option("bcast")
    assert query(page) == {"collective": ["bcast"]}
    assert page.url.startswith(f"{address}/studio/report/{version}?")
    page.reload()
    page.wait_for_selector(COMPLETE)
    assert "allreduce on 4 ranks" not in shown_titles(page)
    rows = list(csv.DictReader(saved(page, "CSV").read_text().splitlines()))
    assert {row["call"] for row in rows} == {"bcast on 4 ranks"}
    assert {int(row["nbytes"]) for row in rows} == {64, 2048, 65536}
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").last.click()
    assert Path(download.value.path()).read_text().startswith("<svg ")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as one file").click()
    assert Path(download.value.path()).read_text().startswith("<!doctype html>")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDE_ENOUGH), width


def test_the_studio_opens_with_the_report_of_a_quickstart(page: Any, tmp_path: Path) -> None:
    (tmp_path / OUT).mkdir()
    store_result(f"sqlite:///{tmp_path / OUT / DATABASE}")
    command = [sys.executable, "-m", "tuner.cli.main"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with started_studio(command, tmp_path, environment) as (address, _):
        page.goto(address)
        page.wait_for_selector(COMPLETE)
        assert "became 2.00 times as fast" in page.locator(".verdict").inner_text()


def test_without_tables_the_page_says_how_to_get_one(page: Any, address: str) -> None:
    page.goto(f"{address}/studio/report")
    page.get_by_text("No tables yet").wait_for()
    assert "tuner quickstart" in page.locator(".command").first.inner_text()
