"""The page "Inside a call", in a real browser on a real service."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.studio.browsing import COMPLETE, WIDE_ENOUGH, opened, press, query, saved

pytestmark = [pytest.mark.extended, pytest.mark.slow]

SMALL = (
    "/studio/call?topology=preset:comet&collective=bcast&algorithm=chain&params=segment%3D16KiB"
    "&size=65536&nodes=2&ppn=2"
)
MARKUP = (
    "name: <b>flat3</b>\nnodes: ['<i>a</i>', b, c]\nswitches: [s]\n"
    "links:\n"
    "  - {between: ['<i>a</i>', s], latency: 1us, bandwidth: 1GB/s}\n"
    "  - {between: [b, s], latency: 1us, bandwidth: 1GB/s}\n"
    "  - {between: [c, s], latency: 1us, bandwidth: 1GB/s}\n"
)
PERFETTO = """<!doctype html><script>
addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else document.title = new TextDecoder().decode(event.data.perfetto.buffer).slice(0, 16);
});
</script>"""


def wait_for_query(page: Any, name: str) -> None:
    page.wait_for_url(re.compile(f"[?&]{name}="))


def test_steps_show_where_the_chunk_is_and_the_url_restores_it(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    headline = page.locator(".headline").inner_text()
    assert "bcast of 64KiB by chain(segment=16KiB) on 4 ranks" in headline
    assert page.locator(".rank.held").count() == 1
    for _ in range(3):
        press(page, "Step")
    moment = page.locator(".moment").inner_text()
    assert re.search(r"[1-9]\d* messages? on the way", moment)
    held = page.locator(".rank.held").count()
    assert held > 1
    assert page.locator("svg.machine .link.critical").count() > 0
    page.reload()
    page.wait_for_selector(COMPLETE)
    assert page.locator(".moment").inner_text() == moment
    assert page.locator(".rank.held").count() == held
    press(page, "Step back")
    assert page.locator(".moment").inner_text() != moment
    press(page, "Back to the beginning")
    assert "at" not in query(page)


def test_it_plays_to_the_end(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_label("whole call in").select_option("10 s")
    press(page, "Play")
    press(page, "Pause")
    wait_for_query(page, "at")
    page.get_by_label("Time", exact=True).press("End")
    assert "the call is over" in page.locator(".moment").inner_text()
    assert page.locator(".rank.held").count() == 4


def test_the_timeline_zooms_and_moves_by_buttons_keys_wheel_and_pointer(
    page: Any, address: str
) -> None:
    opened(page, address + SMALL)

    def shown() -> tuple[float, float]:
        first, last = map(float, query(page).get("view", ["0-1e12"])[0].split("-"))
        return first, last

    def view(before: tuple[float, float]) -> tuple[float, float]:
        """Return what the address says is shown, once that differs from `before`."""
        page.wait_for_url(lambda _: shown() != before)
        return shown()

    whole = (0.0, 1e12)
    press(page, "Zoom in")
    one = view(whole)
    press(page, "Later")
    later = view(one)
    assert later[0] > one[0]
    canvas = page.locator("canvas.timeline")
    canvas.focus()
    page.keyboard.press("+")
    two = view(later)
    assert two[1] - two[0] == pytest.approx((one[1] - one[0]) / 2, rel=1e-6)
    page.keyboard.press("ArrowLeft")
    earlier = view(two)
    assert earlier[0] < two[0]
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.wheel(0, -200)
    three = view(earlier)
    assert three[1] - three[0] < two[1] - two[0]
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    page.mouse.up()
    assert view(three)[0] > three[0]
    page.keyboard.press("Home")
    page.wait_for_url(lambda url: "view=" not in url)


def test_another_call_begins_at_its_beginning(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    press(page, "Play")
    moment = page.get_by_label("Time", exact=True).element_handle()
    page.wait_for_function("element => element.value !== '0'", arg=moment)
    page.get_by_label("Size", exact=True).select_option("4096")
    page.locator(f"{COMPLETE} .headline", has_text="4KiB").wait_for()
    assert page.get_by_label("Time", exact=True).input_value() == "0"
    assert "at" not in query(page)


def test_a_rank_and_a_link_are_found_by_name(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    field = page.get_by_label("Find a rank or link")
    field.fill("2")
    field.press("Enter")
    assert query(page)["find"] == ["rank 2"]
    field.fill("LEAF0 → node1")
    field.press("Enter")
    assert query(page)["find"] == ["leaf0 → node1"]
    assert page.locator(".links li[aria-current]").count() == 1
    field.fill("nothing")
    field.press("Enter")
    page.get_by_text("nothing has that name").wait_for()
    page.go_back()
    page.locator(".links li[aria-current]").wait_for()
    assert field.input_value() == "leaf0 → node1"


def test_a_change_of_the_call_asks_anew(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_label("Collective").select_option("allgather")
    page.locator(".headline", has_text=re.compile("^allgather")).wait_for()
    assert "params" not in query(page)
    page.get_by_label("Algorithm").select_option("ring")
    page.locator(".headline", has_text="by ring on 4 ranks").wait_for()
    page.get_by_label("from rank").fill("2")
    page.get_by_label("from rank").press("Enter")
    assert query(page)["follow"] == ["2-2"]
    page.get_by_label("Follow chunk").uncheck()
    assert page.locator(".rank.held").count() == 0
    assert page.get_by_label("Segment").count() == 0  # a ring has no parameters
    page.get_by_label("Algorithm").select_option("recursive_multiplying")
    radix = page.get_by_label("Radix")
    assert radix.get_attribute("placeholder") == "4 by default"
    radix.fill("red")
    radix.press("Enter")
    assert "segment=32KiB" in page.get_by_role("alert").inner_text()
    radix.fill("2")
    radix.press("Enter")
    page.locator(".headline", has_text="recursive_multiplying(radix=2)").wait_for()


def test_an_unknown_machine_leaves_the_controls(page: Any, address: str) -> None:
    page.goto(f"{address}/studio/call?topology=preset:none&nodes=2")
    page.get_by_role("alert").filter(has_text="unknown preset 'none'").wait_for()
    page.get_by_label("Machine", exact=True).select_option("preset:comet")
    page.wait_for_selector(COMPLETE)
    assert query(page)["topology"] == ["preset:comet"]
    page.go_back()
    page.get_by_role("alert").filter(has_text="unknown preset 'none'").wait_for()


def test_a_call_that_is_too_large_is_refused(page: Any, address: str) -> None:
    page.goto(f"{address}/studio/call?topology=preset:comet&nodes=256&ppn=4&algorithm=ring")
    page.get_by_role("alert").filter(has_text="more than 100000 transfers").wait_for()
    press(page, "Take 1 rank per node")
    page.locator(".headline", has_text="by ring on 256 ranks").or_(
        page.get_by_role("alert").filter(has_text="p=256")
    ).first.wait_for()
    assert query(page)["ppn"] == ["1"]


def test_a_call_that_takes_long_is_given_up(page: Any, address: str) -> None:
    page.route("**/v1/what-if/call", lambda _route: None)  # without an answer
    page.goto(address + SMALL)
    page.locator(".headline", has_text=re.compile("Simulating… [1-9] s")).wait_for()
    press(page, "Give up")
    page.get_by_role("alert").filter(has_text="given up").wait_for()
    page.unroute("**/v1/what-if/call")
    page.get_by_label("Algorithm").select_option("binomial")
    page.locator(".headline", has_text="by binomial").wait_for()


def test_the_rounds_are_a_table_and_the_files_have_every_transfer(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    rows = list(csv.DictReader(saved(page, "CSV of transfers").read_text().splitlines()))
    assert len(rows) == 12  # three ranks get four segments
    assert {row["nbytes"] for row in rows} == {"16384"}
    assert all(float(row["started"]) <= float(row["arrived"]) for row in rows)
    rounds = list(csv.DictReader(saved(page, "CSV of rounds").read_text().splitlines()))
    assert sum(int(row["transfers"]) for row in rounds) == 12
    table = page.get_by_role("region", name="Rounds").get_by_role("row")
    assert table.count() == 1 + len(rounds)
    assert saved(page, "SVG").read_text().startswith("<svg ")
    assert saved(page, "PNG").read_bytes().startswith(b"\x89PNG")
    trace = json.loads(saved(page, "Chrome trace").read_text())
    assert sum(one.get("cat") == "sending" for one in trace["traceEvents"]) == 12
    table.nth(2).get_by_role("button").click()
    wait_for_query(page, "view")


def test_what_is_copied_asks_the_same(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    copied = {}
    for name in ("Copy as command", "Copy as curl"):
        press(page, name)
        page.get_by_text("copied").wait_for()
        copied[name] = page.evaluate("navigator.clipboard.readText()")
    assert "--algorithm chain --param segment=16384" in copied["Copy as command"]
    assert "/v1/what-if/call" in copied["Copy as curl"]


def test_perfetto_gets_the_trace_in_a_tab_of_its_own(page: Any, address: str) -> None:
    """The page itself asks nobody else, which its fixture checks."""
    page.context.route(
        "https://ui.perfetto.dev/**",
        lambda route: route.fulfill(content_type="text/html", body=PERFETTO),
    )
    opened(page, address + SMALL)
    with page.context.expect_page() as opening:
        press(page, "Open in Perfetto")
    opening.value.wait_for_function("document.title.startsWith('{\"traceEvents\"')")
    page.get_by_text("Perfetto has the trace").wait_for()


def test_names_with_markup_are_text_in_the_picture(page: Any, address: str, tmp_path: Path) -> None:
    stored = page.request.post(
        f"{address}/v1/topologies", data=MARKUP, headers={"Content-Type": "text/plain"}
    )
    assert stored.ok, stored.text()
    number = stored.json()["id"]
    opened(page, f"{address}/studio/call?topology={number}&algorithm=ring&size=4096")
    assert page.locator("main b, main i").count() == 0
    assert "<i>a</i>" in page.locator("svg.machine").text_content()


def test_the_inside_of_a_node_is_shown(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_label("Show", exact=True).select_option("inside node1")
    page.get_by_role("img", name="The inside of node1 of comet").wait_for()
    assert page.locator("svg.machine .box.gpu").count() == 4
    assert page.locator("svg.machine .rank").count() == 2


def test_what_if_leads_here(page: Any, address: str) -> None:
    opened(
        page,
        f"{address}/studio/what-if?topology=preset:comet&collective=bcast&nodes=2&ppn=2"
        "&from=1024&to=65536&size=65536",
    )
    page.get_by_role("link", name="Inside this call").click()
    page.wait_for_url("**/studio/call?**")
    page.wait_for_selector(COMPLETE)
    assert "bcast of 64KiB by" in page.locator(".headline").inner_text()
    assert query(page)["nodes"] == ["2"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme_has_all_text_within_the_page(
    page: Any, address: str, theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    for width in (360, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        opened(page, address + SMALL)
        assert page.evaluate(WIDE_ENOUGH), width
