"""The page "Clusters", in a real browser on a real service."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.service.serving import good, publish, served, token
from tests.studio.browsing import COMPLETE, WIDE_ENOUGH, WIDTHS, opened
from tests.studio.tables import LAB, LIBRARY, make_table_of_a_probe, publish_two_versions
from tests.support import stored
from tests.support.waiting import patience
from tuner import db
from tuner.api.settings import Settings
from tuner.core.table import table_record

pytestmark = [pytest.mark.extended, pytest.mark.slow]

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def client(address: str) -> Any:
    with httpx.Client(base_url=address, timeout=patience(), trust_env=False) as client:
        yield client


def test_without_clusters_there_is_what_to_type(page: Any, address: str) -> None:
    opened(page, f"{address}/studio/clusters")
    assert "tuner quickstart" in page.locator("main").inner_text()
    page.get_by_role("button", name="Copy: tuner quickstart").click()
    page.get_by_text("The command copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "tuner quickstart"
    page.goto(f"{address}/studio/")
    page.locator("nav a[aria-current=page]", has_text="What if").wait_for()
    page.goto("about:blank")  # what it asked is given up


def test_a_cluster_shows_what_is_in_force_and_what_to_do(
    page: Any, address: str, client: httpx.Client
) -> None:
    first, second = publish_two_versions(client)
    opened(page, f"{address}/studio/")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Clusters"
    text = page.locator("main").inner_text()
    assert LAB.name in text
    assert page.locator("main i").count() == 0
    assert LIBRARY in text
    assert "2 collectives on 2 shapes, with evidence from 1KiB to 2MiB" in text
    assert "tuner table compare table.json" in text
    page.locator("summary").click()
    assert page.locator(".versions tbody tr").count() == 2
    page.get_by_role(
        "link", name=f"allreduce on 4 {TIMES} 2: 1.40{TIMES} as fast, measured"
    ).click()
    page.locator("main[data-state=complete] h1", has_text=f"Version {second}").wait_for()
    assert page.get_by_label("Call").input_value() == "allreduce/4x2"
    page.go_back()
    good(client.post("/v1/publications", json={"version": first}), 201)
    opened(page, f"{address}/studio/clusters")
    page.get_by_role("link", name=f"Compare the newer version {second}").click()
    page.get_by_text(f"What changed since version {first}").wait_for()


def test_probes_without_a_table_and_a_table_that_is_not_published(
    page: Any, address: str, client: httpx.Client, database: str
) -> None:
    engine = db.open_database(database)
    with db.transaction(engine) as session:
        db.store_measurements(session, stored.probe())
    engine.dispose()
    opened(page, f"{address}/studio/clusters")
    assert '"kind":"tune","measurements":1' in page.locator("main").inner_text()
    version = good(client.post("/v1/tables", json=table_record(stored.table())), 201)["version"]
    opened(page, f"{address}/studio/clusters")
    page.get_by_role("link", name=f"Look at version {version}, and publish it").wait_for()


def test_a_library_that_is_refused_is_said_at_its_place(
    page: Any, address: str, client: httpx.Client
) -> None:
    publish_two_versions(client)
    page.route("**/overview", lambda route: route.abort())
    opened(page, f"{address}/studio/clusters")
    assert "does not answer" in page.locator(".library").get_by_role("alert").inner_text()
    page.unroute("**/overview")
    opened(page, f"{address}/studio/clusters")
    style = "element => getComputedStyle(element).display"
    assert page.locator(".facts").first.evaluate(style) == "grid"


def test_a_stale_table_is_said_to_be_stale(page: Any, address: str, client: httpx.Client) -> None:
    version = publish(client, table_record(stored.table()))
    for factor, judged in ((2.0, "not known yet"), (2.1, "no: stale")):  # it takes two reports
        report = {**stored.report(factor), "version": version}
        good(client.post("/v1/feedback", json=report), 201)
        opened(page, f"{address}/studio/clusters")
        text = page.locator("main").inner_text()
        assert judged in text
        assert "the table holds" not in text
    assert "tuner tune --measurements again.ndjson" in text


def test_what_the_service_made_of_a_probe_is_there(
    page: Any, address: str, client: httpx.Client, database: str
) -> None:
    version = make_table_of_a_probe(client, database)
    opened(page, f"{address}/studio/clusters")
    page.get_by_role("link", name=f"version {version}", exact=True).first.wait_for()
    page.get_by_role("link", name=f"bcast on 1 {TIMES} 4").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme_has_all_text_within_the_page(
    page: Any, address: str, client: httpx.Client, theme: str
) -> None:
    publish_two_versions(client)
    page.emulate_media(color_scheme=theme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        opened(page, f"{address}/studio/clusters")
        assert page.evaluate(WIDE_ENOUGH), width


def test_a_reader_sees_the_clusters(page: Any, database: str) -> None:
    made = token(database, "reader", "read")["Authorization"].split()[1]
    publisher = token(database, "publisher", "read", "submit", "publish")
    with served(Settings(database=database, require_tokens=True)) as client:
        client.headers.update(publisher)
        publish_two_versions(client)
        page.goto(str(client.base_url).rstrip("/") + "/studio/")
        page.get_by_label("Token").fill(made)
        page.keyboard.press("Enter")
        page.wait_for_selector(COMPLETE)
        assert LAB.name in page.locator("main").inner_text()
