"""The page "What if", in a real browser on a real service."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from tests.service.serving import served, token
from tests.studio.browsing import (
    COMPLETE,
    PHONE,
    WIDE_ENOUGH,
    WIDTHS,
    copied,
    is_in_sight,
    opened,
    query,
    saved,
)
from tuner.api.settings import Settings
from tuner.mpi_libraries.nccl import CURRENT_VERSION
from tuner.topology.readers.safe_yaml import parse_yaml
from tuner.whatif.study_spec import FileResolver, study_from_record

pytestmark = [pytest.mark.extended, pytest.mark.slow]

SMALL = "/studio/what-if?topology=preset:comet&collective=bcast&nodes=2&ppn=2&from=1024&to=65536"
FLAT = "name: <b>flat4</b>\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"


def test_a_slider_changes_the_answer_and_the_url_restores_it(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    before = page.locator(".headline").inner_text()
    assert "4 ranks" in before
    nodes = page.get_by_label("Nodes", exact=True)
    nodes.focus()
    page.keyboard.press("ArrowRight")
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    assert query(page)["nodes"] == ["4"]
    after = page.locator(".headline").inner_text()
    assert "8 ranks" in after
    page.reload()
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    assert page.locator(".headline").inner_text() == after
    page.go_back()
    page.locator("main[data-shown='2'][data-state=complete]").wait_for()
    assert page.locator(".headline").inner_text() == before


def test_every_axis_and_choice_asks_anew(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_text("More axes").click()
    keys = {"NIC rate": "Left", "Latency between nodes": "Left", "NICs per node": "Right"}
    for name, key in keys.items():
        page.get_by_label(name, exact=True).focus()
        page.keyboard.press(f"Arrow{key}")
        page.get_by_role("button", name=f"{name}: reset to").wait_for()
    page.wait_for_selector(COMPLETE)
    assert {"bandwidth", "latency", "nics"} <= query(page).keys()
    page.get_by_role("button", name="NIC rate: reset to").click()
    page.get_by_label("Buffers in").select_option("host")
    page.get_by_label("Collective").select_option("allreduce")
    page.locator(".headline", has_text=re.compile("^allreduce")).wait_for()
    page.wait_for_selector(COMPLETE)
    assert "bandwidth" not in query(page)
    page.get_by_label("Compare with").select_option("ring")
    page.get_by_text("Time relative to ring").wait_for()
    page.get_by_label("Nodes, exactly").fill("3")
    page.keyboard.press("Enter")
    page.locator("main[data-shown='3'][data-state=complete]").wait_for()
    assert query(page)["incumbent"] == ["ring"]


def test_a_version_of_nccl_is_chosen_and_copied(page: Any, address: str) -> None:
    opened(page, address + SMALL.replace("comet", "dgx-a100").replace("bcast", "allreduce"))
    page.get_by_text("More axes").click()
    page.get_by_label("NCCL version").select_option("2.26.2")
    page.get_by_text("Times of NCCL before 2.27.3 were not compared.").wait_for()
    page.wait_for_selector(COMPLETE)
    assert query(page)["nccl_version"] == ["2.26.2"]
    study = study_from_record(parse_yaml(copied(page, "Copy as YAML")), FileResolver(Path()))
    assert study.axes["nccl_version"] == ("2.26.2",)
    page.get_by_label("NCCL version").select_option(CURRENT_VERSION)
    page.get_by_text("Times of NCCL before 2.27.3 were not compared.").wait_for(state="hidden")
    page.wait_for_selector(COMPLETE)
    assert "nccl_version" not in query(page)


def test_an_uploaded_topology_is_shown_as_text(page: Any, address: str, tmp_path: Path) -> None:
    file = tmp_path / "flat4.yaml"
    file.write_text(FLAT)
    opened(page, address + SMALL)
    page.locator("#upload").set_input_files(str(file))
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    assert query(page)["topology"] == ["1"]
    assert "<b>flat4</b>" in page.locator("#machine").inner_text()
    assert page.locator("main b").count() == 0
    file.write_text("SwitchName=s0 Nodes=")
    page.locator("#upload").set_input_files(str(file))
    assert page.get_by_role("alert").inner_text()


def test_what_is_copied_and_saved_asks_the_same(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    assert copied(page, "Copy link") == page.url
    study = study_from_record(parse_yaml(copied(page, "Copy as YAML")), FileResolver(Path()))
    assert (study.axes["nodes"], study.axes["ppn"]) == ((2,), (2,))
    assert study.sizes == tuple(1024 << power for power in range(7))
    assert study.without == ("multicast",)
    assert "without: [configured]" in copied(page, "Copy as command")
    assert "/v1/what-if" in copied(page, "Copy as curl")
    rows = list(csv.DictReader(saved(page, "CSV").read_text().splitlines()))
    assert {int(row["nbytes"]) for row in rows} == set(study.sizes)
    assert all(float(row["seconds"]) > 0.0 for row in rows)
    assert saved(page, "SVG").read_text().startswith("<svg ")
    assert saved(page, "PNG").read_bytes().startswith(b"\x89PNG")


def test_what_is_to_be_configured_is_left_out_unless_the_box_is_checked(
    page: Any, address: str
) -> None:
    opened(page, address + SMALL)
    assert page.get_by_label("multicast", exact=True).count() == 0
    page.get_by_label("The switches' multicast is configured").check()
    page.get_by_label("multicast", exact=True).wait_for(state="attached")
    page.wait_for_selector(COMPLETE)
    assert query(page)["configured"] == ["1"]
    command = copied(page, "Copy as command")
    assert command.startswith("tuner simulate --topology preset:comet:2 --ppn 2 --collective bcast")


def test_an_algorithm_that_is_left_out_is_not_named_as_the_fastest(page: Any, address: str) -> None:
    opened(page, f"{address}{SMALL}&size=65536")
    headline = page.locator(".headline")
    assert "bcast of 64KiB on 4 ranks" in headline.inner_text()
    (fastest,) = re.findall(r"the fastest is (\w+)", headline.inner_text())
    page.locator(".legend").get_by_label(fastest, exact=True).first.uncheck()
    page.wait_for_function(
        "name => !document.querySelector('.headline').textContent.includes(name)", arg=fastest
    )
    assert query(page)["hide"] == [fastest]
    assert f"without: [configured, {fastest}]" in copied(page, "Copy as YAML")


def test_the_choice_of_the_mpi_library_is_compared(page: Any, address: str) -> None:
    opened(page, f"{address}{SMALL}&size=65536&incumbent=openmpi")
    text = page.locator(".headline").inner_text()
    assert "Open MPI's own choice" in text
    assert "not known" not in text
    assert "table: default:openmpi" in copied(page, "Copy as YAML")


def test_the_page_is_found_as_it_was_left(page: Any, address: str) -> None:
    opened(page, f"{address}{SMALL}&size=65536")
    page.get_by_role("link", name="Measure").click()
    page.get_by_role("link", name="What if").click()
    page.wait_for_selector(COMPLETE)
    assert query(page)["size"] == ["65536"]
    page.get_by_role("link", name="Start anew").first.click()
    page.wait_for_selector(COMPLETE)
    assert "size" not in query(page)


def test_two_viewers_get_the_answers_to_their_own_questions(
    page: Any, browser: Any, address: str
) -> None:
    other = browser.new_context().new_page()
    page.goto(address + SMALL)
    other.goto(address + SMALL.replace("bcast", "allreduce").replace("nodes=2", "nodes=4"))
    for viewer, collective, ranks in ((page, "bcast", 4), (other, "allreduce", 8)):
        viewer.wait_for_selector(COMPLETE)
        said = viewer.locator(".headline").inner_text()
        assert (said.split()[0], f"{ranks} ranks" in said) == (collective, True)
    other.context.close()


def test_a_size_is_chosen_in_the_table(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_role("button", name="64KiB", exact=True).click()
    page.get_by_text("What would help at 64KiB").wait_for()
    assert query(page)["size"] == ["65536"]


def test_pinned_machines_are_compared_and_the_url_restores_them(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_role("button", name="Pin this machine").click()
    page.get_by_label("Nodes, exactly").fill("4")
    page.keyboard.press("Enter")
    page.locator("main[data-shown='4'][data-state=complete][data-others=complete]").wait_for()
    rows = page.locator(".pins tbody tr")
    assert rows.count() == 2
    assert "1: Nodes: 2" in rows.nth(1).inner_text()
    assert re.search("0\\.\\d+\u00d7", rows.nth(1).inner_text())  # fewer nodes take less time
    page.reload()
    page.locator("main[data-shown='4'][data-others=complete]").wait_for()
    assert rows.count() == 2
    page.get_by_role("button", name="Show 1:").click()
    page.locator("main[data-shown='2'][data-state=complete]").wait_for()
    page.get_by_role("button", name="Unpin 1:").click()
    page.locator(".pins").wait_for(state="hidden")
    assert "pin" not in query(page)


def test_a_pin_is_compared_once_both_answers_are_complete(page: Any, address: str) -> None:
    """The fastest so far may be far from the fastest, so that its ratio says nothing."""
    whole: list[str] = []

    def cut_the_pin(route: Any) -> None:
        """Answer for the pinned machine with the first half of its lines."""
        if route.request.post_data_json["axes"]["ppn"] == 1:
            lines = route.fetch().text().splitlines(keepends=True)
            whole.extend(lines)
            route.fulfill(body="".join(lines[: len(lines) // 2]))
        else:
            route.continue_()

    page.route("**/v1/what-if", cut_the_pin)
    page.goto(f"{address}{SMALL}&pin=topology%3Dpreset%3Acomet%26nodes%3D2%26ppn%3D1")
    page.locator("main[data-shown='2'][data-state=complete]").wait_for()
    pinned = page.locator(".pins tbody tr").nth(1)
    pinned.get_by_text("…").first.wait_for()
    with page.expect_response("**/v1/what-if"):
        page.get_by_label("Nodes, exactly").fill("4")
        page.keyboard.press("Enter")
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    assert any('"times"' in line for line in whole[: len(whole) // 2])
    assert "\u00d7" not in pinned.inner_text()


def test_a_number_that_is_typed_while_a_machine_loads_counts_for_it(
    page: Any, address: str
) -> None:
    opened(page, address + SMALL)
    held: list[Any] = []
    page.route("**/v1/what-if/machine?*", lambda route: held.append(route))
    with page.expect_request("**/v1/what-if/machine?*"):
        page.locator("#machine").select_option("preset:kesch")
    page.get_by_label("Nodes, exactly").fill("3")
    held[0].continue_()
    page.locator("main[data-shown='3'][data-state=complete]").wait_for()
    assert query(page)["nodes"] == ["3"]
    assert query(page)["topology"] == ["preset:kesch"]


def test_on_a_phone_the_answer_stays_in_sight_while_a_slider_moves(page: Any, address: str) -> None:
    page.set_viewport_size(PHONE)
    opened(page, address + SMALL)
    page.get_by_label("Nodes", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    page.locator("#axis-nodes").scroll_into_view_if_needed()
    assert is_in_sight(page, "#axis-nodes")
    assert is_in_sight(page, ".headline")


def test_the_next_values_of_the_sliders_are_asked_ahead(page: Any, address: str) -> None:
    """They need no work of the service when a slider moves there."""
    asked: list[dict[str, Any]] = []

    def is_last(request: Any) -> bool:
        sent = request.post_data_json if request.url.endswith("/v1/what-if") else {"ahead": False}
        return bool(sent["ahead"]) and sent["axes"] == {"nodes": 2, "ppn": 1}

    def keep(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.continue_()

    page.route("**/v1/what-if", keep)
    with page.expect_event("requestfinished", is_last):
        opened(page, address + SMALL)
    axes = [(one["axes"]["nodes"], one["axes"]["ppn"]) for one in asked]
    assert axes == [(2, 2), (4, 2), (1, 2), (2, 4), (2, 1)]
    page.get_by_label("Nodes", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.locator("main[data-shown='4'][data-state=complete]").wait_for()
    assert [one["ahead"] for one in asked].count(False) == 1  # the first one


def test_a_pin_whose_question_was_given_up_is_asked_again(page: Any, address: str) -> None:
    held: list[Any] = []

    def hold_the_pin(route: Any) -> None:
        """Leave the first question of the pinned machine without an answer."""
        if route.request.post_data_json["axes"]["ppn"] == 1 and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/what-if", hold_the_pin)
    with page.expect_request(
        lambda asked: asked.url.endswith("/v1/what-if") and asked.post_data_json["axes"]["ppn"] == 1
    ):
        page.goto(f"{address}{SMALL}&pin=topology%3Dpreset%3Acomet%26nodes%3D2%26ppn%3D1")
    page.locator("main[data-shown='2'][data-others=partial][data-state=complete]").wait_for()
    page.get_by_label("Nodes, exactly").fill("4")
    page.keyboard.press("Enter")
    page.locator("main[data-shown='4'][data-others=complete]").wait_for()
    assert "does not answer" not in page.locator(".pins").inner_text()


def test_the_strip_is_as_wide_as_the_answer(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    width = "element => element.getBoundingClientRect().width"
    strip = page.locator(".strip .bar").first.evaluate(width)
    assert strip == page.locator("main .answer").first.evaluate(width)


def test_an_unknown_machine_leaves_nothing_to_copy(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.goto(f"{address}/studio/what-if?topology=preset:nowhere")
    page.get_by_role("alert").get_by_text("nowhere").wait_for()
    assert page.locator("#machine").input_value() == "preset:nowhere"
    assert page.locator(".actions").get_attribute("inert") is not None
    page.get_by_label("Collective").select_option("bcast")
    page.get_by_label("Machine", exact=True).select_option("preset:comet")
    page.wait_for_selector(COMPLETE)
    assert page.locator(".actions").get_attribute("inert") is None


def test_a_fifth_machine_is_not_pinned(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    for _ in range(5):
        page.get_by_role("button", name="Pin this machine").click()
    page.get_by_text("4 machines are pinned already").wait_for()
    assert len(query(page)["pin"]) == 4


def test_the_map_shows_the_fastest_by_nodes_and_size(page: Any, address: str) -> None:
    opened(page, address + SMALL.replace("nodes=2", "nodes=3"))
    page.get_by_text("Fastest algorithm by nodes and size").click()
    page.wait_for_selector("main[data-others=complete]")
    assert query(page)["map"] == ["1"]
    titles = page.locator(".crossover .bar-title").all_inner_texts()
    assert titles == [f"{nodes} nodes" for nodes in (2, 3, 4, 8, 16, 32, 64)]
    page.locator(".crossover .bar", has_text="8 nodes").locator("button").first.click()
    page.locator("main[data-shown='8'][data-state=complete]").wait_for()
    assert (query(page)["nodes"], query(page)["size"]) == (["8"], ["1024"])


def test_the_picture_lights_the_links_of_the_critical_path(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_text("On the machine: links of the critical path").click()
    page.locator("path.link.critical").nth(1).wait_for(state="attached")  # one is in the legend
    assert query(page)["picture"] == ["1"]
    page.get_by_role("button", name="64KiB", exact=True).click()
    page.get_by_text("at 64KiB, with the average load").wait_for()
    page.reload()
    page.get_by_text("at 64KiB, with the average load").wait_for()


def test_a_call_with_too_many_transfers_is_drawn_on_fewer_nodes(page: Any, address: str) -> None:
    sizes = "from=67108864&to=67108864&size=67108864"
    opened(
        page,
        f"{address}/studio/what-if?topology=preset:dgx-h100&collective=allreduce&nodes=64&{sizes}"
        "&hide=nvls_tree&picture=1",
    )
    page.get_by_text("Drawn on 32 nodes, as the call has too many transfers on 64.").wait_for()
    assert page.locator(".picture-place svg").count()


def test_the_page_says_that_the_simulation_is_compiled(page: Any, address: str) -> None:
    lines = '{"kind":"begun"}\n{"kind":"compiling"}\n'
    page.route("**/v1/what-if", lambda route: route.fulfill(body=lines))
    page.goto(address + SMALL)
    page.get_by_text("Compiling the simulation").wait_for()
    page.unroute("**/v1/what-if")
    lines += '{"kind":"problem","status":422,"detail":"there is <b>no</b> such machine"}\n'
    page.route("**/v1/what-if", lambda route: route.fulfill(body=lines))
    page.reload()
    page.get_by_text("There is <b>no</b> such machine.").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme_has_all_text_within_the_page(
    page: Any, address: str, theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        opened(page, address + SMALL)
        assert page.evaluate(WIDE_ENOUGH), width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 23)"
    assert dark == (theme == "dark")
    page.get_by_role("button", name=re.compile("Dark|Light")).click()
    assert dark != (
        page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 23)"
    )


def test_the_reference_has_every_operation(page: Any, address: str) -> None:
    page.goto(f"{address}/docs")
    page.locator("#post-v1-what-if-").or_(page.locator("#post--v1-what-if")).first.wait_for()
    document = page.request.get(f"{address}/openapi.json").json()
    expected = sum(map(len, document["paths"].values()))
    assert page.locator(".operation").count() == expected
    page.get_by_label("Show what contains").fill("/v1/what-if")
    assert 0 < page.locator(".operation:visible").count() < expected


def test_where_tokens_are_needed_one_logs_in_and_out(page: Any, database: str) -> None:
    made = token(database, "reader", "read")["Authorization"].split()[1]
    with served(Settings(database=database, require_tokens=True)) as client:
        url = str(client.base_url).rstrip("/") + SMALL
        page.goto(f"{url}#place")
        page.get_by_label("Token").fill("wrong")
        assert query(page)["next"][0].endswith(f"{SMALL}#place")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("unknown or revoked").wait_for()
        page.get_by_label("Token").fill(made)
        page.keyboard.press("Enter")
        page.wait_for_selector(COMPLETE)
        assert query(page)["topology"] == ["preset:comet"]
        assert page.evaluate("document.cookie") == ""
        assert 'curl -sN -H "Authorization: Bearer $TUNER_TOKEN" ' in copied(page, "Copy as curl")
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token").wait_for()
        page.goto(url)
        page.get_by_label("Token").wait_for()
