"""The page "Training", in a real browser on a real service."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.studio.browsing import (
    COMPLETE,
    PHONE,
    WIDE_ENOUGH,
    WIDTHS,
    copied,
    is_in_sight,
    query,
    saved,
)
from tuner.topology.readers.safe_yaml import parse_yaml
from tuner.training.sweep_spec import sweep_from_record
from tuner.training.workload import workload_from_record

pytestmark = [pytest.mark.extended, pytest.mark.slow]

SMALL = "/studio/training?topology=preset:dgx-a100&model=resnet50&framework=horovod&nodes=2"
FLAT = "name: <b>flat4</b>\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"
LAYERS = "name,forward_ms,backward_ms,elements\n<i>a</i>,1,2,4000000\nb,1,2,4000000\n"
NOWHERE = Path("/nonexistent")
ANSWERED = "main:is([data-state=partial], [data-state=complete])"  # but for variants


def opened(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(ANSWERED)


def shown(page: Any, ranks: int) -> None:
    page.locator(f"{ANSWERED}[data-shown='{ranks}']").wait_for()


def headline(page: Any) -> str:
    """The headline without what limits training, which is known later."""
    text: str = page.locator(".headline").inner_text()
    return text.partition(" of ideal")[0]


def test_a_slider_changes_the_prediction_and_the_url_restores_it(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    before = headline(page)
    assert "16 ranks" in before
    page.get_by_label("Nodes", exact=True).focus()
    page.keyboard.press("ArrowRight")
    shown(page, 32)
    assert query(page)["nodes"] == ["4"]
    after = headline(page)
    page.reload()
    shown(page, 32)
    assert headline(page) == after
    page.go_back()
    shown(page, 16)
    assert headline(page) == before


def test_the_headline_names_what_would_help_most(page: Any, address: str) -> None:
    """Communication limits the scaling here, and computation twice as fast helps most."""
    page.goto(address + SMALL)
    page.wait_for_selector(COMPLETE)
    most = page.locator(".help tr").first.inner_text().split()
    assert most[0] == "computation"
    assert (
        f"most is computation twice as fast: {most[-1]}" in page.locator(".headline").inner_text()
    )
    assert "Scaling is limited by communication" in page.locator("main").inner_text()


def test_on_a_phone_the_answer_stays_in_sight_while_a_slider_moves(page: Any, address: str) -> None:
    page.set_viewport_size(PHONE)
    opened(page, address + SMALL)
    page.get_by_label("Nodes", exact=True).focus()
    page.keyboard.press("ArrowRight")
    shown(page, 32)
    page.locator("#axis-nodes").scroll_into_view_if_needed()
    assert is_in_sight(page, "#axis-nodes")
    assert is_in_sight(page, ".headline")
    assert "32 ranks" in page.locator(".headline").inner_text()


def test_a_number_that_is_typed_while_a_machine_loads_counts_for_it(
    page: Any, address: str
) -> None:
    opened(page, address + SMALL)
    held: list[Any] = []
    page.route("**/v1/training/machine?*", lambda route: held.append(route))
    with page.expect_request("**/v1/training/machine?*"):
        page.locator("#machine").select_option("preset:dgx-h100")
    page.get_by_label("Nodes, exactly").fill("3")
    with page.expect_request("**/v1/training") as asked:
        held[0].continue_()
    assert asked.value.post_data_json["detail"] == 24
    page.wait_for_url("**nodes=3**")


def test_every_control_asks_anew(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    for name in ("NIC rate", "Latency between nodes", "Fusion threshold", "Cycle time"):
        page.get_by_label(name, exact=True).focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector(ANSWERED)
    assert {"bandwidth", "latency", "set.fusion_threshold", "set.cycle_time"} <= query(page).keys()
    page.get_by_label("Algorithms", exact=True).select_option("nccl_ring")
    page.get_by_label("Batch of a rank").fill("32")
    page.keyboard.press("Enter")
    page.get_by_text("More settings").click()
    page.get_by_label("Noise of computation").fill("2%")
    page.keyboard.press("Enter")
    page.wait_for_selector(ANSWERED)
    own = query(page)
    assert (own["algorithms"], own["batch"], own["noise"]) == (["nccl_ring"], ["32"], ["2%"])
    page.get_by_label("Hierarchical").check()
    page.get_by_role("alert").filter(has_text="nccl_ring").wait_for()
    page.get_by_label("Algorithms", exact=True).select_option("")
    page.wait_for_selector(ANSWERED)
    assert query(page)["set.hierarchical"] == ["true"]
    page.get_by_label("Framework", exact=True).select_option("ddp")
    page.get_by_label("Bucket", exact=True).wait_for()
    page.get_by_label("Precision").select_option("amp")
    page.get_by_label("Model", exact=True).select_option("bert_large")
    page.locator(".headline", has_text=re.compile("^bert_large .* tokens per second")).wait_for()
    page.wait_for_selector(ANSWERED)


def test_prices_change_the_costs_alone(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v1/" in request.url else None)
    page.get_by_text("40 per hour").wait_for()
    page.get_by_label("Price of a GPU for an hour").fill("5")
    page.keyboard.press("Enter")
    page.get_by_text("80 per hour").wait_for()
    page.get_by_label("Samples of an epoch").fill("1000000")
    page.keyboard.press("Enter")
    assert query(page)["gpu_hour"] == ["5"]
    assert query(page)["epoch"] == ["1000000"]
    assert asked == []


def test_a_published_workload_has_its_points(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_label("Workload", exact=True).select_option("horovod-summit")
    shown(page, 192)
    page.get_by_role("columnheader", name="published").wait_for()
    assert "89.7%" in page.locator("tr[aria-current=true]").inner_text()
    assert "NV-Group" in page.locator(".notes").inner_text()
    page.reload()
    shown(page, 192)
    assert "89.7%" in page.locator("tr[aria-current=true]").inner_text()


def test_uploaded_layers_and_topologies_are_text_and_in_the_url(
    page: Any, address: str, tmp_path: Path
) -> None:
    layers, machine = tmp_path / "own.csv", tmp_path / "flat4.yaml"
    layers.write_text(LAYERS)
    machine.write_text(FLAT)
    opened(page, address + SMALL)
    page.locator("#layers").set_input_files(str(layers))
    page.get_by_role("alert").filter(has_text="rate").or_(
        page.locator(".headline", has_text=re.compile("^own "))
    ).first.wait_for()
    page.locator("#upload").set_input_files(str(machine))
    page.locator(".headline", has_text="flat4").wait_for()
    page.wait_for_selector(ANSWERED)
    assert page.locator("main b").count() == 0
    assert page.locator("main i").count() == 0
    before = headline(page)
    page.reload()
    page.wait_for_selector(ANSWERED)
    assert headline(page) == before
    layers.write_text(LAYERS.replace(",1,2,", ",-1,2,"))
    page.locator("#layers").set_input_files(str(layers))
    page.get_by_role("alert").filter(has_text="forward_ms").wait_for()


def test_to_skip_to_the_content_keeps_the_layers(page: Any, address: str) -> None:
    page.goto(f"{address}/studio/training?set.cycle_time=nonsense#layers")
    page.get_by_role("alert").get_by_text("cycle_time").wait_for()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#layers")


def test_what_is_copied_and_saved_asks_the_same(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.get_by_text("Limited by").wait_for()  # which comes after all numbers of ranks
    assert copied(page, "Copy link") == page.url
    assert copied(page, "Copy as command").endswith("tuner training run training.yaml\n")
    workload = workload_from_record(parse_yaml(copied(page, "Copy as YAML")), NOWHERE)
    assert (workload.model.name, workload.batch) == ("resnet50", 64)
    assert "/v1/training" in copied(page, "Copy as curl")
    rows = list(csv.DictReader(saved(page, "CSV").read_text().splitlines()))
    assert {int(row["ranks"]) for row in rows} == {*workload.ranks}
    assert saved(page, "SVG").read_text().startswith("<svg ")
    assert saved(page, "PNG").read_bytes().startswith(b"\x89PNG")
    events = json.loads(saved(page, "Chrome trace").read_text())["traceEvents"]
    assert any(event["name"] == "allreduce" for event in events)
    opened(page, f"{address}{SMALL}&bandwidth=400Gb/s&set.cycle_time=0.002")
    assert copied(page, "Copy as command").endswith("tuner training sweep training.yaml\n")
    sweep = sweep_from_record(parse_yaml(copied(page, "Copy as YAML")), NOWHERE)
    assert sweep.workload.framework.cycle_time == 0.002  # type: ignore[attr-defined]
    assert len(sweep.axes["bandwidth"]) == 1


def test_the_best_variant_can_be_used(page: Any, address: str) -> None:
    opened(page, f"{address}{SMALL}&set.fusion_threshold=268435456&algorithms=nccl_ring")
    page.get_by_role("button", name="Use it").click()
    page.get_by_text("Nothing that was tried is faster").wait_for()
    assert query(page)["set.fusion_threshold"] != ["268435456"]


def test_the_timeline_is_moved_with_keys(page: Any, address: str) -> None:
    opened(page, address + SMALL)
    page.wait_for_selector(COMPLETE)
    canvas = page.get_by_label(re.compile("^Timeline"))
    whole = canvas.evaluate("canvas => canvas.toDataURL()")
    canvas.focus()
    for _ in range(6):
        page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != whole
    page.keyboard.press("Home")
    assert canvas.evaluate("canvas => canvas.toDataURL()") == whole
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.get_by_text(re.compile(r"\((forward|backward)\)")).wait_for()


def test_a_model_that_does_not_fit_is_one_sentence(page: Any, address: str) -> None:
    page.goto(f"{address}{SMALL}&precision=amp".replace("resnet50", "gpt3_175b"))
    page.get_by_role("alert").filter(has_text="take more ranks").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme_has_all_text_within_the_page(
    page: Any, address: str, theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        opened(page, address + SMALL)
        assert page.evaluate(WIDE_ENOUGH), width
