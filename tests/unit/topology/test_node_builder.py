"""What computers say of their inside: hwloc XML, `nvidia-smi topo -m`, NCCL's XML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.nodes import (
    GPUS_OF_AMD,
    SWITCHED,
    adapter,
    bridge,
    card,
    computer,
    eight,
    function,
    gpu,
    host_bridge,
    nccl,
    nic,
    pci,
    table,
)
from tuner.base.errors import InputError
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.topology import Link, NodeTopology, Topology
from tuner.topology.readers.gpu_products import UNNAMED_GPUS
from tuner.topology.readers.nvidia_smi import parse_nvidia_smi


def inside(topology: Topology) -> NodeTopology:
    """What is in the one node."""
    (node,) = topology.nodes
    assert node.node_topology is not None
    return node.node_topology


def read(text: str, known_as: str) -> NodeTopology:
    """The inside of a computer whose description is recognised as what it is."""
    found, topology = parse_topology(text)
    assert found == known_as
    return inside(topology)


def number(interior: NodeTopology) -> dict[str, int]:
    return dict(Counter(device.kind for device in interior.devices))


def link(interior: NodeTopology, a: str, b: str) -> Link:
    """The one way; the other must be its equal."""
    links = {(each.source, each.target): each for each in interior.links}
    there, back = links[a, b], links[b, a]
    assert (there.capacity, there.kind, there.count) == (back.capacity, back.kind, back.count)
    return there


def joined(interior: NodeTopology, *names: str) -> dict[tuple[str, str], tuple[str, int]]:
    """Kind and count of the links between these devices."""
    return {
        (each.source, each.target): (each.kind, each.count)
        for each in interior.links
        if {each.source, each.target} <= set(names) and each.source < each.target
    }


def route(interior: NodeTopology, a: str, b: str) -> list[str]:
    """The kinds of the links crossed."""
    index = {device.name: i for i, device in enumerate(interior.devices)}
    crossed = interior.routes[index[a], index[b]]
    return [interior.links[i].kind for i in crossed if i >= 0]


# ---- hwloc


def matrix(objects: str, values: str, name: str = "NVLinkBandwidth") -> str:
    n = len(objects.split())
    return (
        f'<distances2hetero nbobjs="{n}" kind="25" name="{name}"><indexes>{objects}</indexes>'
        f"<u64values>{values[:7]}</u64values><u64values>{values[7:]}</u64values></distances2hetero>"
    )


def test_a_bridge_over_several_devices_is_a_switch_and_chains_are_one_link() -> None:
    interior = read(computer(SWITCHED, host_bridge(bridge(33, nic("mlx5_0", 43)))), "hwloc")
    assert number(interior) == {"cpu": 2, "gpu": 2, "nic": 2, "switch": 1}
    assert link(interior, "cpu0", "switch0").capacity == pytest.approx(15.75e9)
    assert link(interior, "switch0", "gpu1").capacity == pytest.approx(7.9e9)  # nvml1, the slower
    assert link(interior, "switch0", "gpu0").capacity == pytest.approx(15.75e9)
    assert link(interior, "cpu1", "nic1").kind == "pcie"
    assert link(interior, "cpu0", "cpu1").kind == "socket"
    products = {device.name: device.product for device in interior.devices}
    assert (products["gpu0"], products["nic0"], products["nic1"]) == ("Own GPU", "mlx5_3", "mlx5_0")
    assert [device.cores for device in interior.devices if device.kind == "cpu"] == [2, 2]


def test_ethernet_counts_only_where_no_adapter_speaks_verbs() -> None:
    slow = nic("eth0", 50, "2", "0200")
    assert number(read(computer(host_bridge(slow + nic("mlx5_0", 51)), ""), "hwloc"))["nic"] == 1
    assert number(read(computer(host_bridge(slow), ""), "hwloc"))["nic"] == 1
    newest = computer(
        host_bridge(nic("eth0", 50, "16", "0200") + nic("mlx5_0", 51, "32")), "", version="3.0"
    )
    assert [d.product for d in read(newest, "hwloc").devices if d.kind == "nic"] == ["mlx5_0"]


def test_displays_of_boards_are_no_gpus() -> None:
    board = pci("PCIDev", "0300 [1a03:2000] [1a03:2000]", 60)
    other = pci("PCIDev", "0302 [10de:1db8] [10de:131d]", 61)  # no driver saw it
    assert number(read(computer(host_bridge(board + gpu("cuda0", 40)), ""), "hwloc"))["gpu"] == 1
    assert number(read(computer(host_bridge(board + other), ""), "hwloc"))["gpu"] == 1


def console(driver: str) -> str:
    """A display adapter of AMD with a device of this name."""
    osdev = f'<object type="OSDev" gp_index="561" name="{driver}" osdev_type="1"/>'
    return pci("PCIDev", "0300 [1002:515e] [1028:023c]", 61, osdev)


@pytest.mark.parametrize(
    ("driver", "gpus"), [("card0", 0), (":0.0", 0), ("opencl0d0", 1), ("rsmi0", 1), ("cuda0", 1)]
)
def test_a_display_adapter_is_a_gpu_only_with_a_driver_for_computing(
    driver: str, gpus: int
) -> None:
    interior = read(computer(host_bridge(console(driver)), ""), "hwloc")
    assert number(interior).get("gpu", 0) == gpus


@pytest.mark.parametrize("kind", ["0302", "0380", "1200"])
def test_accelerators_need_no_driver(kind: str) -> None:
    text = computer(host_bridge(pci("PCIDev", f"{kind} [1002:740c] [1002:0b0c]", 61)), "")
    assert number(read(text, "hwloc"))["gpu"] == 1


@pytest.mark.parametrize(("kind", "osdev"), [("0200", "2"), ("0207", "3")])
def test_functions_without_a_name_are_no_nics_beside_others_with_one(kind: str, osdev: str) -> None:
    virtual = "".join(pci("PCIDev", f"{kind} [15b3:1018] [15b3:0000]", n) for n in (70, 71))
    named = nic("port0", 50, osdev, kind)
    interior = read(computer(host_bridge(virtual + named), ""), "hwloc")
    assert [d.product for d in interior.devices if d.kind == "nic"] == ["port0"]
    assert number(read(computer(host_bridge(virtual), ""), "hwloc"))["nic"] == 2


def test_links_of_a_matrix_beat_pcie() -> None:
    pair = host_bridge(bridge(30, gpu("nvml0", 40)) + bridge(31, gpu("nvml1", 41)))
    values = "1000000 40000 40000 40000 1000000 0 40000 0 1000000"
    after = matrix("OSDev:540 OSDev:541 Package:10", values)
    interior = read(computer(pair, "", after), "hwloc")
    assert (link(interior, "gpu0", "gpu1").capacity, link(interior, "gpu0", "gpu1").count) == (
        40e9,
        2,
    )
    assert link(interior, "gpu0", "cpu0").kind == "nvlink"
    assert link(interior, "gpu1", "cpu0").kind == "pcie"


def test_unknown_link_speeds_are_assumed() -> None:
    text = computer(host_bridge(gpu("nvml0", 40)), "").replace(' pci_link_speed="15.75"', "")
    assert link(read(text, "hwloc"), "cpu0", "gpu0").capacity == 12e9


def test_nvswitches_of_a_board_are_one_and_boards_are_joined() -> None:
    """Two boards of two GPUs, two switches each: a GPU has one link to each switch of its board."""
    first = host_bridge(gpu("nvml0", 40) + gpu("nvml1", 41))
    second = host_bridge(gpu("nvml2", 42) + gpu("nvml3", 43))
    names = [f"OSDev:{540 + i}" for i in range(4)] + [f"PCIDev:{70 + i}" for i in range(4)]
    on = {(g, 4 + 2 * (g // 2) + s) for g in range(4) for s in range(2)}
    values = " ".join(
        "25000" if (a, b) in on or (b, a) in on else "0" for a in range(8) for b in range(8)
    )
    interior = read(computer(first, second, matrix(" ".join(names), values)), "hwloc")
    assert number(interior) == {"cpu": 2, "gpu": 4, "switch": 2}
    assert joined(interior, "gpu0", "gpu3", "switch0", "switch1") == {
        ("gpu0", "switch0"): ("nvlink", 2),
        ("gpu3", "switch1"): ("nvlink", 2),
        ("switch0", "switch1"): ("nvlink", 4),
    }
    assert route(interior, "gpu0", "gpu1") == ["nvlink"] * 2
    assert route(interior, "gpu0", "gpu3") == ["nvlink"] * 3
    assert link(interior, "switch0", "switch1").capacity == 100e9


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            computer("", "", matrix("OSDev:1 OSDev:2", "0 1 2")),
            "line 7, element <distances2hetero>: 2 objects need 4 whole numbers, not 3",
        ),
        (computer("", "", matrix("OSDev:1 OSDev:2", "0 x 0 0")), "4 whole numbers"),
        (
            computer("", "", matrix("OSDev:1 OSDev:2", "0 25000 50000 0")),
            "OSDev:1 and OSDev:2 do not say the same",
        ),
        (
            computer(host_bridge(gpu("nvml0", 40)), "").replace("15.75", "fast"),
            "line 4, element <object>: pci_link_speed must be in GB/s, not 'fast'",
        ),
    ],
)
def test_bad_hwloc_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_topology(text)


@pytest.mark.parametrize("version", ["", ".v2"])
def test_a_dgx_2(shared: Path, version: str) -> None:
    interior = inside(load_topology(shared / f"data/samples/hwloc/nvidiaDGX2{version}.xml"))
    assert number(interior) == {"cpu": 2, "gpu": 16, "switch": 14}
    assert [device.product for device in interior.devices].count("NVSwitch") == 2
    assert route(interior, "gpu0", "gpu7") == ["nvlink"] * 2
    assert route(interior, "gpu0", "gpu15") == ["nvlink"] * 3
    boards = [each for each in interior.links if each.count == 48]
    assert [each.capacity for each in boards] == [1200e9, 1200e9]  # 8 GPUs x 6 links x 25 GB/s
    assert {each.capacity for each in interior.links if each.source == "gpu3"} == {
        150e9,
        15.753846e9,
    }


@pytest.mark.parametrize("version", ["", ".v2"])
def test_a_power8_with_linked_gpus(shared: Path, version: str) -> None:
    interior = inside(load_topology(shared / f"data/samples/hwloc/power8gpudistances{version}.xml"))
    assert number(interior) == {"cpu": 2, "gpu": 4}
    assert [device.cores for device in interior.devices if device.kind == "cpu"] == [4, 4]
    assert joined(interior, "cpu0", "cpu1", "gpu0", "gpu1", "gpu2") == {
        ("cpu0", "cpu1"): ("socket", 1),
        ("cpu0", "gpu0"): ("nvlink", 2),
        ("cpu0", "gpu1"): ("nvlink", 2),
        ("cpu1", "gpu2"): ("nvlink", 2),
        ("gpu0", "gpu1"): ("nvlink", 2),
    }
    assert {each.capacity for each in interior.links} == {40e9, 64e9}


# ---- nvidia-smi topo -m


PAIRS = "GPU0 GPU1 GPU2 GPU3 mlx5_0 mlx5_1"
AC922 = [
    "X NV3 SYS SYS NODE SYS",
    "NV3 X SYS SYS NODE SYS",
    "SYS SYS X NV3 SYS NODE",
    "SYS SYS NV3 X SYS NODE",
    "NODE NODE SYS SYS X SYS",
    "SYS SYS NODE NODE SYS X",
]
THREADS = ["0-63", "0-63", "64-127", "64-127", "", ""]


def test_pairs_with_nvlink() -> None:
    interior = read(table(PAIRS, AC922, THREADS), "nvidia-smi")
    assert number(interior) == {"cpu": 2, "gpu": 4, "nic": 2}
    assert [device.cores for device in interior.devices if device.kind == "cpu"] == [64, 64]
    assert joined(interior, "gpu0", "gpu1", "gpu2") == {("gpu0", "gpu1"): ("nvlink", 3)}
    assert route(interior, "gpu1", "nic0") == ["pcie"] * 2
    assert route(interior, "gpu1", "nic1") == ["pcie", "socket", "pcie"]
    assert link(interior, "gpu0", "gpu1").capacity == 60e9


def test_rates_may_be_told() -> None:
    interior = inside(
        parse_nvidia_smi(table(PAIRS, AC922, THREADS), nvlink_bandwidth=25e9, pcie_bandwidth=32e9)
    )
    assert link(interior, "gpu0", "gpu1").capacity == 75e9
    assert link(interior, "gpu0", "cpu0").capacity == 32e9


@pytest.mark.parametrize("between", ["\t", "    ", " \t "])
@pytest.mark.parametrize("escapes", [False, True])
@pytest.mark.parametrize("before", ["", "$ nvidia-smi topo -m\n\n"])
def test_tabs_blanks_underlines_and_prompts(between: str, escapes: bool, before: str) -> None:
    text = table(PAIRS, AC922, THREADS, between)
    if escapes:
        header, _, rest = text.partition("\n")
        text = f"\x1b[4m{header}\x1b[0m\n{rest}"
    assert read(before + text, "nvidia-smi") == read(table(PAIRS, AC922, THREADS), "nvidia-smi")


def test_pasting_loses_tabs_between_cells() -> None:
    text = table(PAIRS, AC922, THREADS).replace("SYS\tNODE", "SYSNODE").replace("X\tNV3", "XNV3")
    assert read(text, "nvidia-smi") == read(table(PAIRS, AC922, THREADS), "nvidia-smi")


def test_equal_numbers_of_links_that_no_gpu_has_are_a_switch() -> None:
    interior = read(eight(12, "PXB"), "nvidia-smi")
    assert [d.product for d in interior.devices if d.kind == "switch"].count("NVSwitch") == 1
    assert number(interior) == {"cpu": 2, "gpu": 8, "nic": 8, "switch": 9}
    assert route(interior, "gpu0", "gpu7") == ["nvlink"] * 2
    assert route(interior, "gpu0", "gpu1") == ["nvlink"] * 2  # as far over PCIe, but wider
    assert route(interior, "gpu0", "nic1") == ["pcie"] * 3
    assert {each.count for each in interior.links if each.kind == "nvlink"} == {12}
    assert [d.product for d in interior.devices if d.kind == "nic"][:2] == ["mlx5_2", "mlx5_3"]


@pytest.mark.parametrize(("links", "offered"), [(12, set()), (18, {"nvswitch_reduction"})])
def test_switches_of_so_many_links_reduce(links: int, offered: set[str]) -> None:
    assert parse_topology(eight(links, "PIX"))[1].capabilities == offered


def test_a_few_links_to_each_other_gpu_are_a_mesh() -> None:
    rows = [" ".join("X" if a == b else "NV4" for b in range(4)) for a in range(4)]
    interior = read(table("GPU0 GPU1 GPU2 GPU3", rows), "nvidia-smi")
    assert number(interior) == {"cpu": 4, "gpu": 4}  # nothing says which are next to one CPU
    assert route(interior, "gpu0", "gpu3") == ["nvlink"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("GPU2\tSYS\tSYS", "GPU2\tSYS\tNV3"),
            (
                "line 4, row GPU2, column GPU1: NV3, but row GPU1, column GPU2 says SYS; the"
                " matrix must"
            ),
        ),
        (
            ("GPU2\tSYS\tSYS", "GPU2\tSYS\tFAR"),
            "line 4, row GPU2, column GPU1: one of X, NV#, PIX, PXB, PHB, NODE, SYS belongs here,"
            " not 'FAR'",
        ),
        (("GPU1\tNV3\tX", "GPU1\tNV3\tSYS"), "row GPU1, column GPU1: X stands on the diagonal"),
        (("\nGPU3\t", "\nGPU9\t"), "the matrix has a column GPU3, but no such row"),
        (("\tGPU1", "\tGPU0"), "line 1: nvidia-smi's matrix begins with a line that names"),
        (("NODE\tSYS\t0-63", "NODE\tSYS\tSYS\t0-63"), "line 2, row GPU0: more cells than the 6"),
    ],
)
def test_bad_matrices_are_named(change: tuple[str, str], sentence: str) -> None:
    text = table(PAIRS, AC922, THREADS)
    assert change[0] in text
    with pytest.raises(InputError, match=sentence) as caught:
        parse_topology(text.replace(*change, 1), "nvidia-smi")
    assert "\n" not in str(caught.value)


def test_cpu_affinity_decides_about_devices_that_are_far_apart_by_their_cells() -> None:
    rows = ["X SYS SYS SYS PHB", "SYS X SYS SYS SYS", "SYS SYS X SYS SYS", "SYS SYS SYS X SYS"]
    names = "GPU0 GPU1 GPU2 GPU3 NIC0"
    affinity = ["0-15", "0-15", "16-31", "16-31", ""]
    _, topology = parse_topology(table(names, [*rows, "PHB SYS SYS SYS X"], affinity))
    interior = inside(topology)
    assert [device.cores for device in interior.devices if device.kind == "cpu"] == [16, 16]
    assert route(interior, "gpu0", "gpu1") == ["pcie"] * 2
    assert route(interior, "gpu1", "nic0") == ["pcie"] * 2
    assert route(interior, "gpu1", "gpu2") == ["pcie", "socket", "pcie"]
    (caution,) = topology.cautions
    assert caution.startswith(
        "the matrix says SYS of GPU0-GPU1, GPU1-NIC0, GPU2-GPU3, but by their"
    )


def test_many_distant_neighbours_are_counted() -> None:
    rows = [" ".join("X" if a == b else "SYS" for b in range(4)) for a in range(4)]
    _, topology = parse_topology(table("GPU0 GPU1 GPU2 GPU3", rows, ["0-7"] * 4))
    assert "GPU0-GPU3, GPU1-GPU2 and 2 more, but" in topology.cautions[0]


def test_a_matrix_with_nvlinks_says_that_their_rate_depends_on_the_gpu() -> None:
    assert parse_topology(eight(12, "PXB"))[1].cautions == (UNNAMED_GPUS,)


def test_cells_that_contradict_each_other() -> None:
    rows = ["X PIX SYS", "PIX X PIX", "SYS PIX X"]
    with pytest.raises(
        InputError, match="row GPU0, column GPU2: SYS, but other cells join the two"
    ):
        parse_topology(table("GPU0 GPU1 GPU2", rows))
    many = [
        " ".join("X" if a == b else "NV6" if a + b == 3 else "NV12" for b in range(4))
        for a in range(4)
    ]
    with pytest.raises(InputError, match="row GPU0, column GPU3: NV6, but NV12 elsewhere"):
        parse_topology(table("GPU0 GPU1 GPU2 GPU3", many))


def test_a_dgx_1(shared: Path) -> None:
    interior = inside(load_topology(shared / "data/samples/nvidia_smi/dgx1_v100.topo.txt"))
    assert number(interior) == {"cpu": 2, "gpu": 8, "nic": 4, "switch": 4}
    links = Counter(
        each.source for each in interior.links if each.kind == "nvlink" for _ in range(each.count)
    )
    assert set(links.values()) == {6}
    assert route(interior, "gpu0", "nic0") == ["pcie"] * 2
    assert [device.cores for device in interior.devices if device.kind == "cpu"] == [40, 40]


# ---- rocm-smi --showtopo


def test_gpus_of_amd() -> None:
    found, topology = parse_topology(GPUS_OF_AMD)
    interior = inside(topology)
    assert found == "rocm-smi"
    assert number(interior) == {"cpu": 2, "gpu": 3}
    assert joined(interior, "gpu0", "gpu1", "gpu2") == {("gpu0", "gpu1"): ("xgmi", 1)}
    assert link(interior, "gpu0", "gpu1").capacity == 24e9
    assert route(interior, "gpu1", "gpu2") == ["pcie", "socket", "pcie"]
    assert topology.cautions == (UNNAMED_GPUS,)


def test_the_matrix_of_types_is_enough() -> None:
    _, title, rest = GPUS_OF_AMD.partition("================ Link Type")
    interior = read(title + rest.partition("\n\n")[0], "rocm-smi")
    assert number(interior) == {"cpu": 1, "gpu": 3}
    assert len(joined(interior, "gpu0", "gpu1", "gpu2")) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("Link Type", "Kind"), "matrix 'Link Type between two GPUs' is missing: take `rocm-smi"),
        (("XGMI         XGMI\n", "XGMI\n"), "line 17: a row of 'Link Type between two GPUs' has a"),
        (("GPU2   XGMI", "GPU3   XGMI"), "line 16: the columns and rows of 'Link Type between"),
        (("XGMI         PCIE", "XGMI         OWN"), "row GPU1, column GPU2: XGMI or PCIE belongs"),
        (("GPU1   XGMI", "GPU1   PCIE"), "opposite cell, not 'XGMI' and 'PCIE'"),
    ],
)
def test_bad_matrices_of_amd_are_named(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in GPUS_OF_AMD
    with pytest.raises(InputError, match=sentence):
        parse_topology(GPUS_OF_AMD.replace(*change))


# ---- NCCL


def to(bus: str, count: int = 2, kind: str = "0x030200", name: str = "nvlink") -> str:
    return f'<{name} target="0000:{bus}:00.0" count="{count}" tclass="{kind}"/>'


def test_gpus_nics_and_links_of_a_dump() -> None:
    first = function("01", "0x060400", card("02", 1, to("12")) + adapter("03", "mlx5_1", 1))
    text = nccl(first, card("12", 0, to("02")) + adapter("13", "mlx5_0", 0))
    interior = read(text, "nccl")
    assert number(interior) == {"cpu": 2, "gpu": 2, "nic": 2, "switch": 1}
    assert [d.product for d in interior.devices if d.kind == "nic"] == ["mlx5_0", "mlx5_1"]
    assert [d.product for d in interior.devices if d.kind == "gpu"] == ["sm80", "sm80"]
    assert [d.cores for d in interior.devices if d.kind == "cpu"] == [20, 24]
    assert link(interior, "gpu0", "gpu1").capacity == 40e9
    assert link(interior, "gpu1", "switch0").capacity == 24e9
    assert link(interior, "gpu0", "cpu1").kind == "pcie"


def test_nvswitches_of_a_dump_are_one() -> None:
    links = "".join(to(f"c{i}", 3, "0x068000") for i in range(6))
    cards = "".join(card(f"0{i}", i, links, 'sm="90"') for i in range(4))
    found, topology = parse_topology(nccl(cards))
    interior = inside(topology)
    assert found == "nccl"
    assert topology.capabilities == {"nvswitch_reduction"}
    assert number(interior) == {"cpu": 1, "gpu": 4, "switch": 1}
    assert link(interior, "gpu3", "switch0").count == 18
    assert link(interior, "gpu3", "switch0").capacity == pytest.approx(18 * 20.6e9)
    assert route(interior, "gpu0", "gpu3") == ["nvlink"] * 2


def test_links_of_gpus_to_cpus() -> None:
    power = card("02", 0, to("99", 3, "0x068001"), 'sm="70"')
    assert link(read(nccl(power), "nccl"), "gpu0", "cpu0").capacity == 60e9
    grace = card("02", 0, '<c2c bw="44712" count="10"/>', 'sm="90"')
    assert link(read(nccl(grace), "nccl"), "gpu0", "cpu0").capacity == pytest.approx(447.12e9)


def xgmi_pair(gcn: str) -> Topology:
    """Two GPUs of an architecture, as RCCL writes it, joined by one link."""
    cards = (card(bus, dev, to(peer, 1, "0x038000", "xgmi"), gcn) for bus, dev, peer in PEERS)
    return parse_topology(nccl("".join(cards), version="2"))[1]


PEERS = [("c1", 0, "c6"), ("c6", 1, "c1")]


@pytest.mark.parametrize(
    ("gcn", "product", "rate"),
    [
        ("910", "gfx90a", 36e9),
        ("gfx90a", "gfx90a", 36e9),
        ("gfx90a:sramecc+:xnack-", "gfx90a", 36e9),
        ("908", "gfx908", 24e9),
        ("940", "gfx940", 48e9),
        ("gfx942", "gfx942", 48e9),
    ],
)
def test_architectures_as_rccl_wrote_them(gcn: str, product: str, rate: float) -> None:
    topology = xgmi_pair(f'sm="90" gcn="{gcn}"')
    interior = inside(topology)
    assert [d.product for d in interior.devices if d.kind == "gpu"] == [product] * 2
    assert link(interior, "gpu0", "gpu1").capacity == rate
    assert topology.cautions == ()


def test_a_rate_that_is_assumed_for_an_unknown_architecture_is_said() -> None:
    topology = xgmi_pair('gcn="gfx1201"')
    assert link(inside(topology), "gpu0", "gpu1").capacity == 24e9
    assert topology.cautions == (
        "the rate of xGMI links between GPUs of architecture gfx1201 is not known: 24 GB/s are"
        " assumed, as in RCCL",
    )
    assert xgmi_pair("").cautions == (UNNAMED_GPUS,)
    assert parse_topology(nccl(card("02", 0, sm="")))[1].cautions == ()


def test_a_file_without_gpu_elements_goes_by_class() -> None:
    text = nccl(
        function("02", "0x030200") + function("03", "0x020700") + function("04", "0x010802")
    )
    assert number(read(text, "nccl")) == {"cpu": 1, "gpu": 1, "nic": 1}


def test_links_to_gpus_outside_the_file_do_not_count() -> None:
    interior = read(nccl(card("02", 0, to("77"))), "nccl")
    assert {each.kind for each in interior.links} == {"pcie"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (nccl(version="3"), "line 1, element <system>: version '3' of NCCL's XML is not read"),
        (nccl(), "element <system>: NCCL's XML has a <cpu> for every NUMA node"),
        (
            nccl(card("02", 0, to("03", 2)) + card("03", 1, to("02", 1))),
            "line 3, element <nvlink>: gpu0 has 2 links to gpu1, which has 1 back",
        ),
        (nccl(card("02", 0, to("03", 999))), "count must be 0 to 64, not '999'"),
        (nccl(function("02", "0x030200", speed="9.0 GT/s PCIe")), "does not run at 9 GT/s"),
        (nccl(function("02", "0x030200")).replace('"16"', '"many"'), "link_width must be 0 to 32"),
        (
            nccl(function("02", "0x030200")).replace(' busid="0000:02:00.0"', ""),
            "line 3, element <pci>: the attribute busid is missing",
        ),
        (nccl("").replace("0000ffff", "zero"), "affinity is written like"),
        (nccl("", "").replace("<cpu ", '<cpu host_hash="0x1" ', 1), "the CPUs of 2 hosts"),
    ],
)
def test_bad_dumps_are_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse_topology(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "devices", "linked"),
    [
        ("azure_ndv2-topo", {"cpu": 2, "gpu": 8, "nic": 1}, 0),
        ("azure_ndv4-topo", {"cpu": 4, "gpu": 8, "nic": 8, "switch": 4}, 0),
        ("azure_ndv5-topo", {"cpu": 2, "gpu": 8, "nic": 8, "switch": 8}, 0),
        ("aws_topology_p4d-24xl-topo", {"cpu": 2, "gpu": 8, "nic": 4, "switch": 4}, 0),
        ("rccl_topo_8p6l", {"cpu": 2, "gpu": 8, "nic": 1}, 8 * 6),
        ("rccl_topo_8p_940", {"cpu": 2, "gpu": 8, "nic": 8, "switch": 8}, 8 * 7),
    ],
)
def test_files_of_clouds(shared: Path, name: str, devices: dict[str, int], linked: int) -> None:
    interior = inside(load_topology(shared / f"data/samples/nccl_topo/{name}.xml"))
    assert number(interior) == devices
    kinds = Counter(each.kind for each in interior.links)
    assert (kinds["nvlink"], kinds["xgmi"]) == (0, linked)
