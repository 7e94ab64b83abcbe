"""The page "Measure", with a real probe of this computer."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.serving import good, probe_file, running, served
from tests.studio.browsing import COMPLETE, PHONE, WIDE_ENOUGH, WIDTHS, copied, query, saved
from tests.studio.tables import publish_two_versions
from tests.support.reported import swept_measurements
from tuner import db
from tuner.api.settings import Settings

pytestmark = [pytest.mark.extended, pytest.mark.slow]

BOUND = {"bound": {"seconds": 20.0, "expected": 0.03, "upper": 0.08}}
CALL = {"collective": "<b>bcast</b>", "nodes": 1, "ppn": 2, "nbytes": 64}


@pytest.fixture
def measuring(database: str) -> Iterator[httpx.Client]:
    """A service that may measure, with its runner."""
    settings = Settings(database=database, measures=True)
    with served(settings) as client, running(database, settings.job_kinds):
        yield client


def address_of(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


@pytest.mark.usefixtures("launcher")
def test_a_probe_is_started_followed_and_leads_to_its_report(
    page: Any, measuring: httpx.Client
) -> None:
    page.goto(f"{address_of(measuring)}/studio/measure")
    page.wait_for_selector(COMPLETE)
    page.get_by_label("allreduce").uncheck()
    page.get_by_label("Time", exact=True).select_option("60")
    page.get_by_label("Smallest size").select_option("64")
    page.get_by_label("Largest size").select_option("1200")
    page.get_by_role("button", name="Measure", exact=True).click()
    page.locator("[data-job=running]").wait_for()
    assert page.url.endswith("/studio/measure/1")
    page.reload()
    page.locator("[data-job=done]").wait_for()
    assert "series of calls" in page.get_by_role("region", name="Log").inner_text()
    assert "64B" in page.get_by_role("region", name="Measured so far").inner_text()
    assert copied(page, "Copy as command").startswith("tuner tune --hosts localhost:")
    rows = list(csv.DictReader(saved(page, "CSV").read_text().splitlines()))
    assert {row["collective"] for row in rows} == {"bcast"}
    page.get_by_role("link", name="Report of table 1").click()
    page.get_by_role("heading", name="Tuning report").wait_for()
    page.go_back()
    page.locator("[data-job=done]").wait_for()


@pytest.mark.usefixtures("launcher")
def test_a_probe_that_one_viewer_cancels_ends_for_the_other(
    page: Any, browser: Any, measuring: httpx.Client
) -> None:
    wanted = {"ranks": 2, "budget": 600.0}
    good(measuring.post("/v1/probes", json=wanted), 202)
    other = browser.new_context().new_page()
    for viewer in (page, other):
        viewer.goto(f"{address_of(measuring)}/studio/measure/1")
        viewer.locator("[data-job=running]").wait_for()
    page.get_by_role("button", name="Cancel").click()
    for viewer in (page, other):
        viewer.locator("[data-job=cancelled]").wait_for()
    other.context.close()


@pytest.mark.usefixtures("launcher")
def test_a_service_that_does_not_answer_for_a_while_is_asked_again(
    page: Any, measuring: httpx.Client
) -> None:
    good(measuring.post("/v1/probes", json={"ranks": 2, "budget": 600.0}), 202)
    page.goto(f"{address_of(measuring)}/studio/measure/1")
    page.locator("[data-job=running]").wait_for()
    page.route("**/v1/jobs/1", lambda route: route.abort())
    page.get_by_role("alert").get_by_text("does not answer").wait_for()
    page.unroute("**/v1/jobs/1")
    page.get_by_role("alert").wait_for(state="hidden")
    page.get_by_role("button", name="Cancel").click()
    page.locator("[data-job=cancelled]").wait_for()


def test_what_the_log_holds_is_drawn_as_text(page: Any, address: str, database: str) -> None:
    engine = db.open_database(database)
    spec = {"collectives": ["bcast"], "target_regret": 0.02, "ranks": 2, "budget": 60.0}
    with db.transaction(engine) as session:
        db.enqueue_job(session, "probe", spec, "<i>ada</i>")
    claim = db.claim_job(engine, "test", ["probe"])
    assert claim
    with db.transaction(engine) as session:
        for seconds, upper in ((10.0, 0.2), (20.0, 0.08), (30.0, 0.05)):
            bound = {**BOUND["bound"], "seconds": seconds, "upper": upper}
            db.append_job_log(session, claim, "<u>bound</u>", {"bound": bound})
        times = [
            {**CALL, "algorithm": name, "seconds": 1e-6} for name in ("default", "<s>ring</s>")
        ]
        db.append_job_log(session, claim, "measured", {"measured": times})
        db.append_job_log(session, claim, "next", {"next": [{**CALL, "algorithms": ["default"]}]})
    engine.dispose()
    page.goto(f"{address}/studio/measure")
    page.locator("[data-job=running]").wait_for()
    assert page.locator("svg.plot circle").count() == 6
    assert "with 95% certainty below 5%" in page.locator(".report-legend").inner_text()
    assert saved(page, "SVG").read_text().startswith("<svg ")
    assert saved(page, "PNG").read_bytes().startswith(b"\x89PNG")
    main = page.locator("main").inner_text()
    for text in ("<i>ada</i>", "<u>bound</u>", "<b>bcast</b>", "Measured next"):
        assert text in main
    assert page.locator("main").locator("i, u, b, s").count() == 0
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDE_ENOUGH), width


def test_measurements_without_a_job_are_shown(page: Any, address: str, database: str) -> None:
    """They were sent as a file; those that arrive while nothing is there are shown, too."""
    page.goto(f"{address}/studio/measure")
    page.get_by_text("Nothing was measured yet").wait_for()
    with httpx.Client(base_url=address, trust_env=False) as client:
        number = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
    page.get_by_role("heading", name=f"Measurements {number}").wait_for()
    with httpx.Client(base_url=address, trust_env=False) as client:
        publish_two_versions(client)
    page.goto(f"{address}/studio/measure")
    page.get_by_role("heading", name=f"Measurements {number}").wait_for()
    assert "No measurements are stored" not in page.locator("main").inner_text()
    assert query(page) == {"measurements": [str(number)]}


def test_a_cancelled_job_is_listed_once_with_its_reason(page: Any, database: str) -> None:
    """The list is refreshed at intervals and when a job ends, here at the same time."""
    with served(Settings(database=database, measures=True)) as client:
        good(client.post("/v1/probes", json={"ranks": 2, "budget": 600.0}), 202)
        page.goto(f"{address_of(client)}/studio/measure/1")
        page.locator("[data-job=queued]").wait_for()
        held: list[Any] = []
        is_open = threading.Event()

        def hold(route: Any) -> None:
            if is_open.is_set():
                route.continue_()
            else:
                held.append(route)

        page.route("**/v1/jobs?*", hold)
        with page.expect_request("**/v1/jobs?*"):
            pass
        with page.expect_request("**/v1/jobs?*"):
            good(client.post("/v1/jobs/1/cancel", json={}), 202)
        is_open.set()
        for route in held:
            route.continue_()
            route.request.response().finished()
        page.locator(".entries .state.cancelled").first.wait_for()
        assert page.locator(".entries [data-name='job 1']").count() == 1
        assert "There is no bound: the job was cancelled" in page.locator("main").inner_text()


def test_every_state_fits_on_a_phone(page: Any, address: str, database: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(f"{address}/studio/measure")
    page.wait_for_selector(COMPLETE)
    assert page.evaluate(WIDE_ENOUGH)
    with httpx.Client(base_url=address, trust_env=False) as client:
        long = probe_file().replace("openmpi 5.0.11", "openmpi 5.0.11" + 60 * "x", 1)
        good(client.post("/v1/measurements", content=long), 201)
    page.reload()
    page.get_by_role("heading", name="Measurements 1").wait_for()
    assert page.evaluate(WIDE_ENOUGH)


def test_slow_links_are_on_the_map_of_hosts(page: Any, address: str, database: str) -> None:
    engine = db.open_database(database)
    with db.transaction(engine) as session:
        number = db.store_measurements(session, swept_measurements()).id
    engine.dispose()
    page.goto(f"{address}/studio/measure?measurements={number}")
    page.wait_for_selector(COMPLETE)
    assert "n1 and n2: 6us, 3.00 times the usual" in page.locator(".slow").inner_text()
    cells = page.locator(".host-map")
    side = cells.bounding_box()["width"]
    cells.hover(position={"x": 0.1 * side, "y": 0.9 * side})
    assert "n0 and n3: 2us" in page.locator(".hover").inner_text()
    assert query(page) == {"measurements": [str(number)]}


def test_where_nothing_may_be_measured_the_page_says_who_allows_it(page: Any, address: str) -> None:
    page.goto(f"{address}/studio/measure")
    page.get_by_text("tuner serve --measure").wait_for()
    page.get_by_text("Nothing was measured yet").wait_for()
    with httpx.Client(base_url=address, trust_env=False) as client:
        publish_two_versions(client)
    page.reload()
    page.get_by_text("made from measurements that it does not have").wait_for()
    command = "tuner probe --out measurements.ndjson"
    assert copied(page, f"Copy: {command}") == command
