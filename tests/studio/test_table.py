"""The page "Table", in a real browser on a real service."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.serving import good, served, token
from tests.studio.browsing import COMPLETE, WIDE_ENOUGH, WIDTHS, copied, opened, query, saved
from tests.studio.tables import LAB, LIBRARY, make_table_of_a_probe, publish_two_versions
from tests.support.waiting import patience
from tuner import db
from tuner.api.settings import Settings

pytestmark = [pytest.mark.extended, pytest.mark.slow]

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=patience(), trust_env=False) as client:
        yield client


@pytest.fixture
def versions(client: httpx.Client) -> tuple[int, int]:
    return publish_two_versions(client)


def region(page: Any, label: str) -> Any:
    return page.get_by_role("button", name=re.compile(re.escape(label)))


def test_without_tables_there_is_what_to_type(page: Any, address: str) -> None:
    opened(page, f"{address}/studio/table")
    assert "tuner quickstart" in page.locator("main").inner_text()


def test_the_map_has_every_rule_and_the_panel_its_evidence(
    page: Any, address: str, versions: tuple[int, int]
) -> None:
    opened(page, f"{address}/studio/table")
    assert urlsplit(page.url).path == f"/studio/table/{versions[1]}"
    assert page.locator("h1").inner_text() == f"Version {versions[1]} for {LIBRARY} on {LAB.name}"
    assert page.locator("main i").count() == 0
    assert page.locator(".region").count() == 8  # commutative rules in place of those for any
    small = region(page, f"bcast on 2 {TIMES} 2 ranks, 1KiB to 64KiB: chain, 2.00 times as fast")
    panel = page.locator(".panel")
    region(page, f"bcast on 4 {TIMES} 2 ranks, from 4KiB: pipeline").hover()
    panel.get_by_text("Simulated: nothing was measured nearby").wait_for()
    small.click()
    panel.get_by_text("Measured at 2 sizes from 1KiB to 2KiB: 2.00 times as fast").wait_for()
    assert (query(page)["call"], query(page)["at"]) == (["bcast/2x2"], ["1024"])
    page.mouse.move(0, 0)
    panel.get_by_text(f"2.00{TIMES} as fast as the default").wait_for()
    page.reload()
    panel.get_by_text("Measured at 2 sizes from 1KiB to 2KiB: 2.00 times as fast").wait_for()
    page.get_by_label("Size", exact=True).select_option("4194304")
    panel.get_by_text("the library's default").wait_for()
    page.go_back()
    panel.get_by_text(f"2.00{TIMES} as fast as the default").wait_for()


def test_the_map_is_walked_by_keys(page: Any, address: str, versions: tuple[int, int]) -> None:
    opened(page, f"{address}/studio/table?call=bcast/2x2&at=1024&collective=bcast")
    region(page, "1KiB to 64KiB: chain").focus()
    page.keyboard.press("ArrowRight")
    focused = page.locator(".region:focus")
    assert "64KiB to 1MiB: pipeline" in focused.get_attribute("aria-label")
    page.keyboard.press("ArrowDown")
    assert f"bcast on 4 {TIMES} 2 ranks" in focused.get_attribute("aria-label")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("4x2"))
    page.wait_for_selector(COMPLETE)
    assert page.locator(".region[aria-pressed=true]").count() == 1
    assert f"4 {TIMES} 2" in focused.get_attribute("aria-label")


def test_operators_and_collectives_are_chosen(
    page: Any, address: str, versions: tuple[int, int]
) -> None:
    opened(page, f"{address}/studio/table?call=allreduce/4x2")
    page.locator(".panel").get_by_text(f"1.40{TIMES} as fast as the default").wait_for()
    page.get_by_label("Operators", exact=True).select_option("any")
    page.locator(".panel").get_by_text("Why the default stays").wait_for()
    assert query(page)["operators"] == ["any"]
    page.get_by_label("Collective", exact=True).select_option("bcast")
    page.wait_for_selector(COMPLETE)
    assert page.locator(".region").count() == 6


def test_two_versions_on_one_map(page: Any, address: str, versions: tuple[int, int]) -> None:
    before, after = versions
    opened(page, f"{address}/studio/table/{after}")
    page.get_by_label("Compare with").select_option(str(before))
    page.get_by_text(f"What changed since version {before}").wait_for()
    text = page.locator("main").inner_text()
    assert "1 of 4 calls decided otherwise at some size, in 1 range." in text
    assert "calls become 1.33 times as fast" in text
    page.get_by_label("Only what changed").check()
    page.wait_for_selector(COMPLETE)
    assert page.locator(".region[data-former='']").count() == 4
    region(page, f"version {before}: bcast on 2").first.focus()
    page.keyboard.press("Enter")  # selects what is decided there now
    assert query(page)["call"] == ["bcast/2x2"]
    assert query(page)["against"] == [str(before)]
    page.reload()
    page.locator(".changes").get_by_role("button", name=f"bcast 2{TIMES}2").click()
    page.wait_for_selector(COMPLETE)
    assert copied(page, "Copy as command").splitlines()[2].startswith("tuner table diff table-1")


def test_what_is_copied_and_saved(page: Any, address: str, versions: tuple[int, int]) -> None:
    opened(page, f"{address}/studio/table?call=bcast/2x2&at=2048")
    assert copied(page, "Copy link") == page.url
    command = copied(page, "Copy as command")
    assert "--collective bcast --nodes 2 --ppn 2 --size 2048" in command
    url = re.findall(r"'(http[^']*)'", copied(page, "Copy as curl"))[0]
    assert httpx.get(url, trust_env=False).json()["algorithm"] == "chain"
    rules = list(csv.DictReader(saved(page, "CSV of rules").read_text().splitlines()))
    assert [rule["algorithm"] for rule in rules].count("ring") == 1
    points = list(csv.DictReader(saved(page, "CSV of curves").read_text().splitlines()))
    assert {(point["nbytes"], point["gain"]) for point in points} >= {("2048", "2")}
    for button in ("SVG of map", "SVG of curves"):
        assert saved(page, button).read_text().startswith("<svg ")
    assert saved(page, "PNG of map").read_bytes().startswith(b"\x89PNG")


def test_native_files_hold_the_rules_that_are_viewed(
    page: Any, address: str, versions: tuple[int, int]
) -> None:
    opened(page, f"{address}/studio/table")
    page.get_by_text("all of whose reduction operators commute").wait_for()
    commutative = saved(page, "Download openmpi-commutative.rules").read_text()
    expected = f"{address}/v1/tables/{versions[1]}?format=openmpi&operators=commutative"
    assert commutative == page.request.get(expected).text()
    text = page.locator("main").inner_text()
    assert "--mca coll_tuned_dynamic_rules_filename $PWD/openmpi-commutative.rules" in text
    assert "Not to be had: openmpi 5.0.11 silently ignores JSON rules" in text
    details = page.locator("#export-openmpi-others")
    details.locator("summary").click()
    page.get_by_label("Rules for").select_option("any")
    left_out = page.locator("#export-openmpi-left-out")
    left_out.locator("summary").click()
    assert "from 16KiB: ring, for commutative operators alone" in left_out.inner_text()
    assert saved(page, "Download openmpi.rules").read_text() != commutative
    assert page.get_by_label("Operators", exact=True).input_value() == "any"
    assert details.get_attribute("open") is not None


def test_publishing_and_rolling_back_are_confirmed(
    page: Any, address: str, versions: tuple[int, int], client: httpx.Client
) -> None:
    before, after = versions
    opened(page, f"{address}/studio/table/{after}")
    page.get_by_role("button", name=f"Roll back to version {before} …").click()
    dialog = page.get_by_role("dialog")
    assert f"instead of version {after}" in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert good(client.get("/v1/publications"))["items"][-1]["version"] == after
    page.get_by_role("button", name=f"Roll back to version {before} …").click()
    dialog.get_by_role("button", name=f"Roll back to version {before}").click()
    page.get_by_text(f"not in force (version {before} is)").wait_for()
    page.get_by_role("button", name=f"Publish version {after} …").click()
    dialog.get_by_role("button", name=f"Publish version {after}").click()
    page.get_by_role("button", name=f"Version {after} is in force").wait_for()
    log = good(client.get("/v1/publications"))["items"]
    assert [one["version"] for one in log] == [before, after, before, after]


def test_a_reader_cannot_publish(page: Any, database: str) -> None:
    made = token(database, "reader", "read")["Authorization"].split()[1]
    publisher = token(database, "publisher", "read", "submit", "publish")
    with served(Settings(database=database, require_tokens=True)) as client:
        client.headers.update(publisher)
        before, _ = publish_two_versions(client)
        page.goto(f"{str(client.base_url).rstrip('/')}/studio/table/{before}")
        page.get_by_label("Token").fill(made)
        page.keyboard.press("Enter")
        page.wait_for_selector(COMPLETE)
        assert page.get_by_role("button", name=f"Publish version {before} …").is_disabled()
        page.get_by_text("lacks the scope publish").wait_for()


def test_what_the_service_made_of_a_probe_has_samples_and_candidates(
    page: Any, address: str, client: httpx.Client, database: str
) -> None:
    version = make_table_of_a_probe(client, database)
    engine = db.open_database(database)
    held = {
        "collective": "bcast",
        "p": 4,
        "nbytes": 512,
        "algorithm": "binomial",
        "default_s": 2e-5,
        "tuned_s": 1e-5,
        "ratio": 2.0,
        "ci95": [1.9, 2.1],
    }
    with db.transaction(engine) as session:
        db.store_heldout(session, version, [held])
    engine.dispose()
    opened(page, f"{address}/studio/table/{version}")
    text = page.locator("main").inner_text()
    assert "Calls whose algorithm the table changes became 2.00 times as fast" in text
    assert "20 in 1" in page.locator(".sizes-table").inner_text()
    assert page.locator("[data-kind=ratio] .candidate").count() == 1
    box = page.locator("[data-kind=ratio]").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    page.locator(".hover", has_text="of the default's time").wait_for()
    page.get_by_role("button", name="16KiB", exact=True).click()
    page.wait_for_selector(COMPLETE)
    assert query(page)["at"] == ["16384"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme_has_all_text_within_the_page(
    page: Any, address: str, versions: tuple[int, int], theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        opened(page, f"{address}/studio/table/{versions[1]}?against={versions[0]}")
        page.get_by_role("button", name="Download openmpi-commutative.rules", exact=True).wait_for()
        assert page.evaluate(WIDE_ENOUGH), width


def test_an_unknown_version_is_told(page: Any, address: str, versions: tuple[int, int]) -> None:
    opened(page, f"{address}/studio/table/99")
    assert "no tuning table" in page.get_by_role("alert").inner_text()
