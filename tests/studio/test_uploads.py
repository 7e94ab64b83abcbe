"""Topologies in every format that the readers know, uploaded in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.service.serving import probe_file
from tests.studio.browsing import COMPLETE, opened, query
from tests.support.fabrics import DOWN, NAMES, TREE, UP, fabric
from tests.support.nodes import SWITCHED, adapter, card, computer, eight, nccl

pytestmark = [pytest.mark.extended, pytest.mark.slow]

PAGE = "/studio/what-if?topology=preset:comet&collective=bcast&nodes=2&ppn=2&from=1024&to=4096"
FILES = {
    "yaml": "name: two\nnodes: 2\nlatency: 2us\nbandwidth: 12.5GB/s\n",
    "hwloc": computer(SWITCHED, ""),
    "nvidia-smi": eight(6, "PXB"),
    "nccl": nccl(card("10", 0) + adapter("11", "mlx5_0", 0), card("20", 1)),
    "ibnetdiscover": fabric(NAMES, UP + DOWN),
    "slurm": TREE,
}
FOREIGN = (
    "hwloc/nvidiaDGX2.v2.xml",
    "hwloc/power8gpudistances.xml",
    "ibnetdiscover/example.out",
    "nccl_topo/aws_topology_p4d-24xl-topo.xml",
    "nccl_topo/azure_ndv5-topo.xml",
    "nvidia_smi/dgx1_v100.topo.txt",
    "slurm/tree_topology.conf",
)


def upload(page: Any, address: str, file: Path) -> str:
    """Upload a file to the page "What if", and return the number of the stored topology."""
    opened(page, address + PAGE)
    page.locator("#upload").set_input_files(str(file))
    page.wait_for_selector("#machine option:checked:not([value^=preset])", state="attached")
    page.wait_for_selector(COMPLETE)
    assert not page.get_by_role("alert").is_visible()
    (number,) = query(page)["topology"]
    assert page.locator("#machine").input_value() == number
    return number


def test_an_upload_says_that_it_is_read_and_what_it_is_instead_of_a_topology(
    page: Any, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "measured.ndjson"
    file.write_text(probe_file())
    opened(page, address + PAGE)
    held: list[Any] = []
    page.route("**/v1/topologies", lambda route: held.append(route))
    with page.expect_request("**/v1/topologies"):
        page.locator("#upload").set_input_files(str(file))
    page.get_by_text("Reading measured.ndjson").wait_for()
    held[0].continue_()
    page.get_by_role("alert").get_by_text("This file has measurements and no topology").wait_for()
    page.get_by_text("Upload a topology").wait_for()
    assert page.get_by_text("Reading measured.ndjson").count() == 0


@pytest.mark.parametrize("known_as", FILES)
def test_every_format_is_uploaded_and_answered(
    page: Any, address: str, tmp_path: Path, known_as: str
) -> None:
    file = tmp_path / f"topology.{known_as}"
    file.write_text(FILES[known_as])
    number = upload(page, address, file)
    stored = page.request.get(f"{address}/v1/topologies/{number}").json()
    assert stored["format"] == known_as
    assert page.locator(".headline").inner_text().startswith("bcast of ")


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_uploaded_and_answered(
    page: Any, address: str, shared: Path, name: str
) -> None:
    upload(page, address, shared / "data" / "samples" / name)
    assert page.locator(".headline").inner_text().startswith("bcast of ")


def test_a_fabric_with_a_node_inside_is_combined(page: Any, address: str, tmp_path: Path) -> None:
    fabric_file, node, both = (tmp_path / name for name in ("fabric", "node", "both"))
    fabric_file.write_text(FILES["slurm"])
    node.write_text(FILES["nvidia-smi"])
    numbers = [upload(page, address, file) for file in (fabric_file, node)]
    both.write_text("name: whole\ncombine: {{fabric: {}, node: {}, rails: 8}}\n".format(*numbers))
    upload(page, address, both)
    assert "whole" in page.locator("#machine").inner_text()


def test_nodes_like_one_that_was_uploaded_are_joined(
    page: Any, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "node"
    file.write_text(FILES["nvidia-smi"])
    upload(page, address, file)
    page.get_by_role("button", name="Join several such nodes").click()
    page.locator("main[data-shown='16'][data-state=complete]").wait_for()
    assert "nodes like computer (yaml" in page.locator("#machine option:checked").inner_text()
    page.get_by_label("Nodes, exactly").fill("32")
    page.keyboard.press("Enter")
    page.locator("main[data-shown='32'][data-state=complete]").wait_for()
    assert page.get_by_label("NIC rate", exact=True).is_visible()
