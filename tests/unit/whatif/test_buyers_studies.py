"""Questions of buyers: limit, ratio, break-even and verdict agree with hand arithmetic.

Rates are in GB/s. Four nodes of eight GPUs are 32 ranks; an allreduce of n bytes moves 2 n 31 / 32
through each rank. On H100, NVLSTree has a channel for each NIC, which NCCL caps at 45.5 from three
nodes on (2.30.7, src/tuning), and an NDR NIC of 400 Gb/s reaches 42.6.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.cli.views.study_view import print_study
from tuner.machines import Machine, preset, with_fabric, with_nvlink_domain, with_pcie
from tuner.topology import CPU, GPU, NIC, PCIE
from tuner.whatif.checked_study import study_record
from tuner.whatif.machine_resources import (
    LATENCY,
    NCCL_RATES,
    NICS,
    NVLINKS,
    PCIE_LINKS,
    SWITCH_LINKS,
)
from tuner.whatif.study_result import StudyResult
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import FileResolver, read_study, study_from_record

EXAMPLES = Path(__file__).parents[3] / "docs/examples/studies"
GIB = 1 << 30
LOCAL = {"latency": "100ns", "bandwidth": "10GB/s"}
NVLS_TREE_CAP = 45.5  # per channel of H100 on four nodes
PCIE5 = 51.0  # of PCIe 5.0 x16, as the machine's file has it
NDR = 42.6  # reached of 50


def run(**keys: Any) -> StudyResult:
    """Run a study of an allreduce of 1 GiB, which leaves out what has to be configured."""
    record = {
        "name": "x",
        "topology": "preset:dgx-h100:4",
        "collectives": ["allreduce"],
        "sizes": [GIB],
        "without": ["configured"],
        "algorithms": ["nccl_ring", "nccl_tree", "nvls_tree"],
    }
    return run_study(study_from_record({**record, **keys}, FileResolver(Path())))


def answer(name: str) -> StudyResult:
    """Run the study that the documentation has for a question."""
    return run_study(read_study(EXAMPLES / f"{name}.yaml"))


def require_one_story(result: StudyResult) -> None:
    """Require that steps, limits, rates and verdicts say the same as the times."""
    points = {tuple(point.axis_values.values()): point for point in result.points}
    for step, verdict in zip(result.axis_steps, result.verdicts, strict=True):
        low = {**step.max_at, step.axis: step.lower_value}
        before, after = (
            points[tuple(at[axis] for axis in result.axes)] for at in (low, step.upper_at)
        )
        assert step.max_speedup == before.best.seconds / after.best.seconds
        lowest = min(after.rates.values())
        for name in after.limits:
            assert after.rates[name] == pytest.approx(lowest, rel=0.01)
        assert f"{lowest / 1e9:.4g}GB/s" in verdict
        assert ("gains nothing over" in verdict) == (0.99 < step.max_speedup < 1.01)


def ring_seconds(rate: float, ranks: int) -> float:
    """Return the seconds of an allgather of 1 GiB in a ring of ranks whose NICs move some GB/s.

    Each rank gets all but its own part through eight NICs per node, fills its buffers in 25 us
    (4 MiB at eight times the rate, if that is less), and copies its own part at 730 GB/s.
    """
    of_bytes = GIB * (ranks - 1) / ranks / (8 * rate * 1e9)
    fill = ranks * min(25e-6, (4 << 20) / GIB * of_bytes)
    return of_bytes + min(0.2 * of_bytes, fill) + GIB / ranks / 730e9


def rest_of(result: StudyResult, rates: tuple[float, ...], ranks: int) -> list[float]:
    """Return what is left of the times of a ring besides its bytes: the latencies."""
    return [
        point.best.seconds - ring_seconds(rate, ranks)
        for point, rate in zip(result.points, rates, strict=True)
    ]


def transfer_seconds(rate: float, channels: int = 8, ranks: int = 32) -> float:
    """Return the seconds in which channels of some GB/s move an allreduce of 1 GiB."""
    return 2 * GIB * (ranks - 1) / ranks / (channels * rate * 1e9)


def busy_seconds(rate: float) -> float:
    """Return the same with what NVLSTree takes to fill the buffers of the eight GPUs of a node.

    That is as long as 4 MiB more take for each of them, at most 25 us.
    """
    of_bytes = transfer_seconds(rate)
    return of_bytes + 8 * min(25e-6, (4 << 20) / GIB * of_bytes)


def test_nic_rate() -> None:
    """Twice the NIC of 200 Gb/s gains its factor, twice that one only what NCCL's cap leaves."""
    result = answer("nic-rate")
    bounds = NDR / 2, NDR, NVLS_TREE_CAP
    for point, rate in zip(result.points, bounds, strict=True):
        assert point.best.algorithm == point.nccl_choice == "nvls_tree"
        share = busy_seconds(rate) / point.best.seconds
        assert point.shares[point.limits[0]] == pytest.approx(share, rel=1e-9)
        assert share > 0.95
        assert point.rates[PCIE_LINKS] == pytest.approx(PCIE5 * 1e9)
        assert point.rates[NCCL_RATES] == pytest.approx(
            1e9 * min(NVLS_TREE_CAP, 24.0 if rate == NDR / 2 else NVLS_TREE_CAP)
        )
    assert [point.limits for point in result.points] == [(NICS,), (NICS,), (NCCL_RATES,)]
    first, second = result.axis_steps
    assert first.max_speedup == pytest.approx(2.0, rel=0.05)
    assert first.break_even is None
    latencies = [
        point.best.seconds - busy_seconds(rate)
        for point, rate in zip(result.points, bounds, strict=True)
    ]
    assert latencies == pytest.approx([latencies[0]] * 3, rel=1e-6)
    assert second.max_speedup == pytest.approx(
        (busy_seconds(NDR) + latencies[0]) / (busy_seconds(NVLS_TREE_CAP) + latencies[0]), rel=1e-6
    )
    assert second.nccl_speedups == (second.max_speedup, second.max_speedup)
    assert second.break_even == pytest.approx(NVLS_TREE_CAP * 1e9, rel=2e-4)
    assert result.verdicts == (
        "allreduce: bandwidth 400Gb/s (42.6GB/s) gains 95% over 200Gb/s (21.3GB/s): bounded by NICs"
        " at 42.6GB/s, then by NCCL's channels at 45.5GB/s; what NCCL chooses by itself gains 95%.",
        "allreduce: bandwidth 800Gb/s (85.2GB/s) gains 7% over 400Gb/s (42.6GB/s): bounded by"
        " NCCL's channels at 45.5GB/s, then by PCIe at 51GB/s; above 45.5GB/s nothing is gained;"
        " what NCCL chooses by itself gains 7%.",
    )


def test_the_break_even_is_where_times_stop_to_fall() -> None:
    rates = [f"{rate}GB/s" for rate in (45.4, 45.5, 45.6, 85.2)]
    result = run(vary={"nodes": [4], "bandwidth": rates})
    slower, *same = [point.best.seconds for point in result.points]
    assert same == pytest.approx([same[0]] * 3, rel=1e-12)
    assert slower > same[0] * (1 + 1e-4)
    assert [step.break_even for step in result.axis_steps][-1] == pytest.approx(45.6e9, rel=1e-3)


def test_the_switches_of_the_network_do_not_carry_more_than_the_nics() -> None:
    """Expect that each byte crosses one NIC in each direction: 8 of 200 Gb/s carry 170.4 GB/s."""
    (point,) = run(
        vary={"nodes": [4], "bandwidth": ["200Gb/s"]},
        without=["multicast"],
        algorithms=["collnet_chain"],
    ).points
    assert point.limits == (NICS,)
    assert point.best.seconds > GIB / (8 * NDR / 2 * 1e9)
    assert point.rates[NICS] == pytest.approx(NDR / 2 * 1e9)
    assert point.rates[NCCL_RATES] > point.rates[NICS]


@pytest.mark.parametrize(
    ("algorithms", "sentence"),
    [
        (["nccl_ring"], "Times of nccl_ring, nvls_tree are predicted from"),
        (["ring"], "Times of nvls_tree are predicted from"),
    ],
)
def test_the_note_names_what_is_predicted_and_what_is_simulated(
    algorithms: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_study(run(vary={"nodes": [4]}, algorithms=algorithms, limits=False))
    said = " ".join(capsys.readouterr().out.split())
    assert sentence in said
    assert ("all others are simulated" in said) == (algorithms == ["ring"])


def test_short_calls_are_limited_by_latency() -> None:
    result = run(sizes=[8], vary={"nodes": [4], "bandwidth": ["400Gb/s", "800Gb/s"]})
    assert [point.limits for point in result.points] == [(LATENCY,), (LATENCY,)]
    assert result.verdicts[0].startswith(
        "allreduce: bandwidth 800Gb/s (85.2GB/s) gains nothing over 400Gb/s (42.6GB/s): bounded by"
        " latency (100% of the time)"
    )


def test_nvlink_limits_one_node() -> None:
    (point,) = run(topology="preset:dgx-h100:1", algorithms=["nccl_ring"]).points
    assert point.limits in {(NCCL_RATES,), (NVLINKS,)}
    assert point.rates[NVLINKS] == pytest.approx(18 * 20.6e9)
    assert point.rates[NCCL_RATES] == pytest.approx(360e9)


def test_taper() -> None:
    """Expect one flow per NIC of a ring to leave the 32 ports of a leaf: eight, of four nodes.

    4:1 leaves 8 uplinks for them, one each; 8:1 leaves 4. Where each NIC of a node has a leaf of
    its own all 16 nodes are on it, and nothing leaves.
    """
    result = answer("taper")
    whole, fourth, eighth, rails = result.points
    assert whole.limits == rails.limits == (NICS,)
    assert fourth.limits == (NICS, SWITCH_LINKS)
    assert eighth.limits == (SWITCH_LINKS,)
    assert eighth.rates[SWITCH_LINKS] == pytest.approx(NDR / 2 * 1e9)
    rest = rest_of(result, (NDR, NDR, NDR / 2, NDR), 128)
    assert rest == pytest.approx([rest[0]] * 4, rel=1e-6)
    assert 0.0 < rest[0] < 0.2 * whole.best.seconds
    require_one_story(result)


def test_four_or_eight_nics() -> None:
    """Half of the NICs carry half of the bytes per second, and all latencies stay."""
    result = answer("nics")
    four, eight = result.points
    assert four.limits == eight.limits == (NICS,)
    rest = rest_of(result, (NDR / 2, NDR), 32)
    assert rest == pytest.approx([rest[0]] * 2, rel=1e-6)
    assert [point.rates[NICS] / 1e9 for point in (four, eight)] == pytest.approx([NDR, NDR])
    require_one_story(result)


def test_pcie() -> None:
    """Expect NCCL's channels to take 24 of 26.3 GB/s of PCIe 4.0, the next lower speed it tries.

    PCIe 5.0 has more than the NICs reach, and 6.0 no more to give.
    """
    result = answer("pcie")
    four, five, six = result.points
    assert four.limits == (NCCL_RATES,)
    assert [four.rates[name] / 1e9 for name in (NCCL_RATES, PCIE_LINKS, NICS)] == pytest.approx(
        [24, 26.3, NDR]
    )
    assert five.limits == six.limits == (NICS,)
    rest = rest_of(result, (24.0, NDR, NDR), 32)
    assert rest == pytest.approx([rest[0]] * 3, rel=1e-6)
    assert result.axis_steps[1].max_speedup == 1.0
    require_one_story(result)


def test_dragonfly_or_fat_tree() -> None:
    """A ring keeps to neighbours, to which a torus alone has one route.

    A link of its routers of 4 x 4 x 8, as wide as one NIC, carries all eight flows to the next
    node.
    """
    result = answer("fabric")
    rails, tree, dragonfly, torus = result.points
    assert rails.best.seconds == tree.best.seconds == dragonfly.best.seconds
    assert rails.limits == tree.limits == dragonfly.limits == (NICS,)
    assert torus.limits == (SWITCH_LINKS,)
    assert torus.rates[SWITCH_LINKS] == pytest.approx(NDR / 8 * 1e9)
    require_one_story(result)


def test_nvlink_domains_of_8_or_72() -> None:
    """Expect a ring for each NIC on 18 nodes of 8 GPUs, and 32 rings over NVLink in two racks.

    18 NVLinks of 40.1 GB/s carry 721.8, of which NCCL's channels take 16 of 45.1, 721.6: that is as
    much. A share of each of the 72 NICs of a rack is 10.02. Own parts are copied at 930 GB/s.
    """
    result = answer("nvlink-domain")
    small, large = result.points
    assert small.limits == (NICS,)
    assert large.limits == (NVLINKS,)
    assert large.rates[NVLINKS] == pytest.approx(721.8e9 / 72)
    assert large.rates[NCCL_RATES] == pytest.approx(721.6e9 / 72)
    of_bytes = [16 * GIB * 143 / 144 / (rate * 1e9) for rate in (8 * NDR, 721.6)]
    filled = [144 * min(25e-6, (4 << 20) / 16 / GIB * seconds) for seconds in of_bytes]
    rest = [
        point.best.seconds - seconds - own - 16 * GIB / 144 / 930e9
        for point, seconds, own in zip(result.points, of_bytes, filled, strict=True)
    ]
    assert rest[0] > rest[1] > 0.0  # 18 hops between nodes, or 2
    assert max(rest) < 0.05 * small.best.seconds
    require_one_story(result)


def test_machines_are_compared_on_as_many_ranks() -> None:
    """Ranks of 4 nodes of 8 GPUs are those of 8 nodes with 4 GPUs each."""
    result = run(
        topology=["preset:dgx-h100", "preset:sierra"],
        collectives=["allgather"],
        algorithms=["nccl_ring"],
        vary={"nodes": [4]},
    )
    eight, four = result.points
    assert [point.axis_values["machine"] for point in (eight, four)] == ["dgx-h100", "sierra"]
    alone = run(
        topology="preset:sierra",
        collectives=["allgather"],
        algorithms=["nccl_ring"],
        vary={"nodes": [8]},
    )
    assert four.best.seconds == alone.points[0].best.seconds
    assert result.topology == "dgx-h100, sierra"
    require_one_story(result)


def test_accuracies_are_of_the_nodes_that_each_machine_has() -> None:
    """One rack of 72 GPUs is nine nodes of eight, and times were compared on one node."""
    result = run(
        topology=["preset:gb200-nvl72", "preset:dgx-h100"],
        collectives=["allgather"],
        algorithms=["nccl_ring"],
        sizes=[1 << 20],
        vary={"nodes": [1]},
        limits=False,
    )
    rack, nodes = result.accuracy.split("Accuracy ")[1:]
    assert rack.startswith("on gb200-nvl72: times of NCCL were off by")
    assert "9 nodes" not in rack
    assert nodes.startswith("on dgx-h100: times of NCCL were not compared")
    assert "for 9 nodes" in nodes


def test_accuracies_are_of_what_predicted_each_collective() -> None:
    """RCCL's model has times of allreduces; all-to-alls are simulated there."""
    result = run(
        topology="preset:mi300x:1",
        collectives=["allreduce", "alltoall"],
        algorithms=["nccl_ring", "nccl_pairwise"],
        sizes=[1 << 20],
        limits=False,
    )
    simulated = "Accuracy on mi300x: simulated times were not compared with measurements"
    assert result.accuracy.startswith(f"{simulated}; times of NCCL were off by")
    assert "all-to-all" not in result.accuracy


def test_machines_without_gpus_have_the_ranks_that_are_stated() -> None:
    flat = [
        {"name": name, "nodes": 4, "latency": latency, "bandwidth": "1GB/s", "local": LOCAL}
        for name, latency in (("near", "1us"), ("far", "3us"))
    ]
    result = run(
        topology=flat,
        vary={"nodes": [4], "ppn": [2]},
        sizes=[8],
        algorithms=["ring"],
        without=["linear"],
    )
    near, far = result.points
    assert {point.axis_values["ppn"] for point in (near, far)} == {2}
    assert far.best.seconds > 2 * near.best.seconds
    assert far.limits == (LATENCY,)


@pytest.mark.parametrize("name", ["machines", "nvlink-domain"])
def test_studies_of_several_machines_are_read_back(name: str) -> None:
    study = read_study(EXAMPLES / f"{name}.yaml")
    again = study_from_record(json.loads(json.dumps(study_record(study))), FileResolver(Path()))
    assert again.digest == study.digest
    assert again.grid == study.grid


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"topology": ["preset:dgx-h100"]}, "a list compares two machines or more"),
        ({"topology": 2 * ["preset:dgx-h100"]}, "several machines are called dgx-h100"),
        (
            {"topology": ["preset:dgx-h100", "preset:sierra"], "vary": {"pcie": [4]}},
            "with several machines memory, nccl_version, nodes, placement, ppn can vary",
        ),
        (
            {"topology": ["preset:sierra", "preset:dgx-h100"], "vary": {"nodes": [3]}},
            "12 ranks do not fill nodes of 8 each",
        ),
        ({"vary": {"ppn": [4], "nvlink_domain": [72]}}, "vary: ppn is the number of GPUs where"),
        (
            {"topology": ["preset:sierra", "preset:dgx-h100"], "vary": {"ppn": [4]}},
            "vary: ppn is the number of GPUs where they differ",
        ),
        ({"vary": {"nodes": [4], "nvlink_domain": [12]}}, "do not fill nodes of 12 each"),
        (
            {"vary": {"nodes": [3], "nvlink_domain": [12]}},
            "dgx-h100: its NVLink domain of 8 GPUs cannot be made one of 12",
        ),
        (
            {"topology": "preset:dgx-1v", "vary": {"nodes": [2], "nvlink_domain": [16]}},
            "dgx-1v: its GPUs are joined by no NVSwitch",
        ),
    ],
)
def test_machines_that_cannot_be_compared_are_refused(keys: Any, sentence: str) -> None:
    record = {
        "name": "x",
        "collectives": ["allgather"],
        "sizes": [8],
        "topology": "preset:dgx-h100",
    }
    with pytest.raises(InputError, match=sentence):
        run_study(study_from_record({**record, **keys}, FileResolver(Path())))


@pytest.mark.parametrize(("name", "gpus"), [("dgx-h100", 72), ("gb200-nvl72", 8)])
def test_a_domain_has_the_parts_of_its_gpus(name: str, gpus: int) -> None:
    """A CPU for four H100 or two GB200, a NIC for each, and 18 NVLinks to the NVSwitch."""
    inside = with_nvlink_domain(preset(name, 2), gpus).topology.nodes[0].node_topology
    assert inside is not None
    assert len(inside.device_indices(GPU)) == len(inside.device_indices(NIC)) == gpus
    assert len(inside.device_indices(CPU)) == gpus // (4 if name == "dgx-h100" else 2)
    bricks = [link.count for link in inside.links if link.target == "nvswitch"]
    assert bricks.count(18) == gpus


@pytest.mark.parametrize(
    ("name", "gpus", "nics"),
    [
        ("dgx-h100", 1, 1),
        ("dgx-h100", 2, 2),
        ("gb300-nvl72", 1, 1),
        ("dgx-2", 8, 4),
        ("dgx-2", 1, 1),
    ],
)
def test_a_small_domain_has_the_nics_of_its_gpus(name: str, gpus: int, nics: int) -> None:
    """A NIC for each H100 and B300, one for two V100: those next to them, one at least."""
    inside = with_nvlink_domain(preset(name, 2), gpus).topology.nodes[0].node_topology
    assert inside is not None
    assert [one.name for one in inside.devices if one.kind == NIC] == [
        f"nic{number}" for number in range(nics)
    ]


def capacity_between_switches(machine: Machine) -> float:
    """Return the bytes per second of all links between switches, in both directions."""
    ports = set(machine.topology.ports)
    links = machine.topology.links
    return sum(link.capacity for link in links if not {link.source, link.target} & ports)


@pytest.mark.parametrize("shape", ["fat_tree", "rail_optimised", "torus"])
def test_a_taper_divides_the_rate_between_switches(shape: str) -> None:
    machine = preset("dgx-h100", 64)
    whole, half = (with_fabric(machine, text) for text in (shape, f"{shape}:2"))
    assert capacity_between_switches(half) == pytest.approx(capacity_between_switches(whole) / 2)
    assert len(whole.topology.ports) == len(machine.topology.ports)


@pytest.mark.parametrize(("taper", "share"), [("dragonfly", 1.0), ("dragonfly:4", 0.25)])
def test_out_of_a_group_goes_what_the_taper_leaves(taper: str, share: float) -> None:
    """64 nodes of eight NICs are a group."""
    machine = with_fabric(preset("dgx-h100", 128), taper)
    out = [
        link.capacity
        for link in machine.topology.links
        if link.source.startswith("group0") and link.target.startswith("group1")
    ]
    assert sum(out) == pytest.approx(share * 64 * 8 * NDR * 1e9)


def test_only_trees_reduce_in_switches() -> None:
    machine = preset("dgx-h100", 16)
    assert "switch_reduction" in with_fabric(machine, "fat_tree:2").topology.capabilities
    offers = with_fabric(machine, "dragonfly").topology.capabilities
    assert offers == machine.topology.capabilities - {"switch_reduction", "multicast"}


def test_pcie_of_the_own_generation_changes_nothing() -> None:
    machine = preset("hgx-h200", 2)
    assert with_pcie(machine, 5) == machine
    inside = with_pcie(machine, 6).topology.nodes[0].node_topology
    assert inside is not None
    sixth = 52e9 * 96 / 51  # of 52 GB/s in the file, by the rates of the generations
    (rate,) = {link.capacity for link in inside.links if link.kind == PCIE}
    assert rate == pytest.approx(sixth)


def test_each_pcie_link_changes_from_its_own_generation() -> None:
    """The B300 of GB300 NVL72 have NICs on PCIe 6.0, which reach the CPUs over 5.0.

    Memory of the CPUs is reached over NVLink, which stays as it is.
    """
    own = preset("gb300-nvl72", 2)
    for generation, rate in ((5, 51e9), (6, 96e9), (4, 26.3e9)):
        changed = with_pcie(own, generation)
        inside = changed.topology.nodes[0].node_topology
        assert inside is not None
        rates = [link.capacity for link in inside.links if link.kind == PCIE]
        assert rates == pytest.approx([rate] * len(rates))
        staging = ("staging", "cuda")
        assert changed.calibration.paths[staging] == own.calibration.paths[staging]
    slow = with_pcie(preset("dgx-h100", 2), 4).calibration.path_cost("staging", "cuda")
    usual = preset("dgx-h100", 2).calibration.path_cost("staging", "cuda")
    ratio = slow.segments[0].beta.value / usual.segments[0].beta.value
    assert ratio == pytest.approx(51 / 26.3)


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ({"fabric": ["ring"]}, "vary: fabric: unknown fabric 'ring'"),
        ({"fabric": ["torus:0"]}, "the taper of torus must be a number from 1 to 64"),
        ({"fabric": ["torus:x"]}, "the taper of torus must be a number from 1 to 64"),
        ({"pcie": [7]}, "vary: pcie must be a whole number from 3 to 6"),
    ],
)
def test_wrong_shapes_and_generations_are_refused(vary: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(vary=vary)


def test_a_machine_without_costs_has_no_pcie_to_vary() -> None:
    flat = {"name": "a", "nodes": 2, "latency": "1us", "bandwidth": "1GB/s"}
    record = {"name": "x", "topology": flat, "collectives": ["bcast"], "sizes": [8]}
    with pytest.raises(InputError, match="has no costs of its own: pcie can be varied in"):
        study_from_record({**record, "vary": {"pcie": [4]}}, FileResolver(Path()))


def test_studies_with_these_axes_are_read_back() -> None:
    study = read_study(EXAMPLES / "fabric.yaml")
    again = study_from_record(json.loads(json.dumps(study_record(study))), FileResolver(Path()))
    assert again.digest == study.digest
    assert study.topology.nodes[0].node_topology is not None
    assert len(study.topology.nodes[0].node_topology.device_indices(NIC)) == 8
