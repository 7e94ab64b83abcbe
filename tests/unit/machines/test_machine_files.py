"""Machines as YAML files: presets, copies of them, the guide's examples, and mistakes in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.calibration import Calibration
from tuner.machines import CERTAINTIES, PRESETS, Machine, known_gpus, preset, preset_spec
from tuner.machines.catalog import DATA_DIR, known_parts, preset_record
from tuner.machines.loader import load_machine
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.machines.yaml_machines import machine_from_yaml
from tuner.topology.readers import topology_to_record
from tuner.whatif.study_spec import FileResolver, study_from_record

ROOT = Path(__file__).parents[3]
CITED = {"source": "a test", "certainty": "assumed"}
CARD = {  # a GPU without what joins it with others
    "pcie_rate": "pcie3-x16",
    "memory_rate": {"value": "900GB/s", **CITED},
    "kernel_launch": "kernel-launch",
}


def preset_path(name: str) -> Path:
    return DATA_DIR / "presets" / f"{name}.yaml"


def changed(**changes: Any) -> Machine:
    """DGX H100 with other values of keys of its file."""
    return machine_from_yaml({**preset_record("dgx-h100"), **changes})


def with_path(cost: Any) -> Calibration:
    """The calibration with one cost of host messages over the network."""
    paths = preset_record("dgx-h100")["paths"]
    return changed(paths={**paths, "host": {**paths["host"], "network": cost}}).calibration


@pytest.mark.parametrize("name", PRESETS)
def test_a_file_is_named_like_its_machine_and_says_what_it_is(name: str) -> None:
    assert preset_spec(name).name == name
    assert preset_path(name).read_text().startswith("# ")


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_in_a_file_has_source_and_certainty(name: str) -> None:
    numbers = preset_spec(name).sourced_values()
    assert len(numbers) > 40
    for number in numbers.values():
        assert number.source
        assert number.certainty in CERTAINTIES


def test_every_number_of_a_gpu_has_source_and_certainty() -> None:
    for gpu in known_gpus().values():
        numbers = [gpu.pcie_rate, gpu.memory_rate, gpu.kernel_launch, gpu.copy_rate]
        assert gpu.memory_size is not None
        numbers.append(gpu.memory_size)
        for number in [*numbers, *gpu.reduction.sourced_values().values(), gpu.link_rate]:
            assert number.source
            assert number.certainty in CERTAINTIES


def test_every_part_is_named_somewhere() -> None:
    files = [*DATA_DIR.glob("presets/*.yaml"), *DATA_DIR.glob("*.yaml")]
    text = "\n".join(path.read_text() for path in files)
    words = re.findall(r"(?<=: )[\w.-]+(?=[,}\n])", text)
    assert set(known_parts()) <= set(words)


@pytest.mark.parametrize("name", PRESETS)
def test_a_copy_of_a_preset_is_the_same_machine(name: str, tmp_path: Path) -> None:
    record = yaml.safe_load(preset_path(name).read_text())
    record["nodes"]["value"] = 3
    copy = tmp_path / "mine.yaml"
    copy.write_text(yaml.safe_dump(record, sort_keys=False))
    known, mine = preset(name, 3), load_machine(copy)
    assert mine.topology == known.topology == load_topology(copy)
    assert mine.calibration == known.calibration
    assert mine.spec is not None
    assert replace(mine.spec, nodes=preset_spec(name).nodes) == known.spec
    assert topology_to_record(parse_topology(copy.read_text())[1]) == topology_to_record(
        known.topology
    )


def test_a_copy_of_a_preset_is_shown_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, name = tmp_path / "mine.yaml", "kesch"
    copy.write_text(preset_path(name).read_text())
    assert main(["topology", "show", str(copy), "--nodes", "2"]) == 0
    shown = capsys.readouterr().out
    assert main(["topology", "show", name, "--nodes", "2"]) == 0
    assert shown == capsys.readouterr().out


def test_a_copy_with_another_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "mine.yaml"
    text = preset_path("dgx-h100").read_text()
    copy.write_text(text.replace("value: 370.8GB/s", "value: 123.4GB/s"))
    assert main(["topology", "show", str(copy)]) == 0
    assert "123.4 GB/s" in capsys.readouterr().out
    words = "--ppn 8 --memory cuda --collective bcast --sizes 64MiB --algorithm binomial --json"
    times = []
    for topology in ("preset:dgx-h100:1", str(copy)):
        copy.write_text(copy.read_text().replace("value: 128\n", "value: 1\n"))
        assert main(["simulate", "--topology", topology, *words.split()]) == 0
        times.append(yaml.safe_load(capsys.readouterr().out)[0]["seconds"])
    assert times[1] > 2 * times[0]


def test_a_study_of_a_file_depends_on_its_costs(tmp_path: Path) -> None:
    study = {"name": "x", "topology": "mine.yaml", "vary": {"nodes": [2], "gpu": ["H100", "H200"]}}
    study |= {"collectives": ["allreduce"], "sizes": ["1MiB"]}
    copy, digests = tmp_path / "mine.yaml", []
    text = preset_path("dgx-h100").read_text()
    for rate in ("370.8GB/s", "360GB/s"):
        copy.write_text(text.replace("370.8GB/s", rate))
        read = study_from_record(study, FileResolver(tmp_path))
        digests.append(read.digest)
    assert digests[0] != digests[1]


def guide_examples() -> dict[str, dict[str, Any]]:
    """The files in the chapter on machines with costs, by name."""
    page = (ROOT / "docs" / "how-to" / "describe-a-machine.md").read_text()
    chapter = page.partition("## A machine of your own, with costs")[2]
    texts = re.findall(r"```yaml\n(.*?)```", chapter, re.S)
    return {
        record["name"]: record
        for record in (yaml.safe_load(text) for text in texts if "\nname: " in f"\n{text}")
    }


@pytest.mark.extended
def test_the_machines_of_the_guide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = guide_examples()
    assert set(examples) == {"mine", "faster-ports", "next-generation"}
    mine, faster, following = (machine_from_yaml(record) for record in examples.values())
    assert len(mine.topology.nodes) == 24
    assert mine.calibration.path_cost("network", "host").seconds(0) == pytest.approx(1.1e-6)
    assert {link.capacity for link in mine.topology.links} == {24.5e9}
    assert {link.capacity for link in faster.topology.links} == {48e9}
    assert following.spec is not None
    assert following.spec.product == "B400"
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(examples["mine"], sort_keys=False))
    words = "--ppn 4 --memory cuda --collective allreduce --sizes 1MiB --algorithm ring --json"
    assert main(["simulate", "--topology", str(path), *words.split()]) == 0
    assert yaml.safe_load(capsys.readouterr().out)[0]["seconds"] > 0


def test_changes_replace_values_of_a_preset() -> None:
    known, host = preset("summit", 4), {"alpha": "1us", "rate": "9GB/s", **CITED}
    machine = machine_from_yaml(
        {"preset": "summit", "name": "mine", "nodes": 4, "paths": {"host": {"node": host}}}
    )
    assert (machine.name, machine.topology.name) == ("mine", "mine")
    assert machine.topology.links == known.topology.links
    assert machine.calibration.paths.keys() == known.calibration.paths.keys()
    differ = [
        key
        for key, cost in machine.calibration.paths.items()
        if cost != known.calibration.paths[key]
    ]
    assert differ == [("node", "host")]


def test_a_machine_without_gpus() -> None:
    record = preset_record("ri2")
    interior = {
        "devices": [{"name": "cpu", "kind": "cpu"}, {"name": "nic", "kind": "nic"}],
        "links": [{"attach": "nic", "to": "cpu", "kind": "pcie", "bandwidth": "pcie3-x16"}],
    }
    paths = {"host": record["paths"]["host"]}
    machine = machine_from_yaml(
        {**record, "interior": interior, "paths": paths, "reductions": {"host": "cpu-core"}}
    )
    assert machine.spec is not None
    assert (machine.spec.product, machine.topology.nodes[0].cores) == ("", 1)


def test_segments_through_measured_times() -> None:
    points = {"0B": "1us", "1KiB": "2us", "1MiB": "50us"}
    cost = with_path({**CITED, "segments": [{"through": points}]}).path_cost("network", "host")
    assert [cost.seconds(size) for size in (0, 1024, 1 << 20)] == pytest.approx([1e-6, 2e-6, 5e-5])
    assert len(cost.segments) == 2


def test_forms_of_links_inside_a_node() -> None:
    """They are also those of topologies without costs."""
    wire = "bandwidth: 1GB/s, latency: 0us"
    _, topology = parse_topology(f"""
name: x
nodes: 1
latency: 1us
bandwidth: 1GB/s
interior:
  devices:
    - {{name: cpu, kind: cpu, count: 2}}
    - {{name: gpu, kind: gpu, count: 4}}
    - {{name: nic, kind: nic, count: 4, rails: 2}}
  links:
    - {{attach: gpu, to: cpu, {wire}, kind: pcie}}
    - {{attach: nic, to: cpu, {wire}, kind: pcie}}
    - {{among: cpu, {wire}, kind: socket}}
    - {{among: gpu, pairs: [[0, 3]], {wire}, kind: nvlink}}
""")
    interior = topology.nodes[0].node_topology
    assert interior is not None
    assert topology.ports == ("node0.nic0", "node0.nic2", "node0.nic1", "node0.nic3")
    ends = [f"{link.source}-{link.target}" for link in interior.links[::2]]
    gpus, nics = ([f"{kind}{i}-cpu{i // 2}" for i in range(4)] for kind in ("gpu", "nic"))
    assert ends == [*gpus, *nics, "cpu0-cpu1", "gpu0-gpu3"]


DEVICES = preset_record("dgx-h100")["interior"]["devices"]
BARE = {"kind": "pcie", "bandwidth": "qpi"}


def link(**entry: Any) -> dict[str, Any]:
    """An interior with one link."""
    return {"interior": {"devices": DEVICES, "links": [{**BARE, **entry}]}}


def fabric(**changes: Any) -> dict[str, Any]:
    return {"fabric": {**preset_record("dgx-h100")["fabric"], **changes}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nodes": 64}, "nodes has no source: write it like {value"),
        ({"nodes": {"value": 1 << 17, **CITED}}, "nodes must be a whole number from 1 to"),
        ({"nodes": {"value": 2, "source": "x"}}, "nodes has no certainty"),
        (
            {"nodes": {"value": 2, "source": "x", "certainty": "sure"}},
            "certainty is one of verified",
        ),
        ({"colour": "red"}, "the machine has an unknown key 'colour'"),
        ({"memory_bandwidth": "1GB/s"}, "memory_bandwidth has no source"),
        ({"memory_bandwidth": "fast"}, "memory_bandwidth: 'fast' is neither a quantity"),
        ({"memory_bandwidth": {"value": "2us", **CITED}}, "memory_bandwidth: '2us' is not a band"),
        ({"memory_bandwidth": {"value": "0GB/s", **CITED}}, "a bandwidth of zero"),
        ({"memory_bandwidth": []}, "memory_bandwidth must be a mapping with value"),
        ({"striping_threshold": "host-copy"}, "striping_threshold has an unknown key 'alpha'"),
        ({"parts": {"ndr-port": "qpi"}}, "fabric: bandwidth: 'ndr-port' is neither a quantity"),
        ({"parts": []}, "parts must be a mapping"),
        ({"gpus": {"X": {"nvlinks": -1}}}, "gpus: X lacks 'kernel_launch'"),
        ({"gpus": {"X": CARD}}, "gpus: X: give either nvlinks .0 on PCIe alone. or xgmi_links"),
        ({"gpus": {"X": {**CARD, "nvlinks": 1, "xgmi_links": 1}}}, "gpus: X: give either nvlinks"),
        ({"gpus": {"X": {**CARD, "xgmi_links": 7}}}, "give xgmi_rate if xgmi_links is not 0"),
        (
            {"gpus": {"X": {**CARD, "xgmi_links": 7, "nvlink_rate": "1GB/s"}}},
            "give xgmi_rate if xgmi_links is not 0, and no other rate of links",
        ),
        ({"paths": {}}, "paths lacks 'host'"),
        ({"paths": {"host": {"road": "host-copy"}}}, "paths: host has an unknown key 'road'"),
        ({"reductions": {"host": {"launch": "1us", **CITED}}}, "reductions: host lacks 'rate'"),
        ({"offers": {"magic": "sharp"}}, "offers has an unknown key 'magic'"),
        ({"offers": {"multicast": {"source": "x"}}}, "offers: multicast lacks 'certainty'"),
        (fabric(kind="ring"), "fabric: kind is one of switch"),
        (fabric(latency="1us", trunk={}), "fabric: trunk must map the names of links"),
        (fabric(bandwidth="5GB/s"), "fabric: bandwidth has no source"),
        (fabric(source=None), "fabric: source must be a name"),
        (fabric(trunk={"a": "edr-port", "b": "qpi"}), "fabric: trunk must name one kind of link"),
        (link(attach="card", to="cpu"), "link 1: attach: there is no device 'card'"),
        (link(attach="gpu"), "link 1 lacks 'to'"),
        (link(among="gpu", pairs=[[0, 8]]), r"two numbers from 0 to 7, not \[0, 8\]"),
        (link(among="gpu", pairs=3), "link 1: pairs must be a list"),
        (link(**{"from": "gpu0", "to": "gpu1"}), "link 1 has an unknown key 'from'"),
        (link(between=["gpu0"]), r"link 1: write `between: \[a, b\]`"),
    ],
)
def test_mistakes_are_reported_by_key(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        changed(**changes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


SMALL = {"from": "0B", "alpha": "1us", "rate": "join"}
LARGE = {"from": "1KiB", "alpha": "2us", "rate": "1GB/s"}


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ({"alpha": "1us"}, "paths: host: network lacks 'rate'"),
        ({"alpha": "1us", "rate": "1GB/s"}, "network: alpha has no source"),
        ({"segments": [], **CITED}, "segments must be a list of 1 to 256"),
        ({"segments": [LARGE] * 257, **CITED}, "segments must be a list of 1 to 256"),
        ({"segments": [LARGE], **CITED}, "must begin at 0B and ascend"),
        ({"segments": [SMALL], **CITED}, "segment 1: `rate: join` is for a segment from 0B before"),
        ({"segments": [{**SMALL, "alpha": "1s"}, LARGE], **CITED}, "begin later and with a longer"),
        ({"segments": [SMALL, {**LARGE, "staged": 1}], **CITED}, "staged must be true or false"),
        ({"segments": [{"through": {"0B": "1us"}}], **CITED}, "through must map 2 to 256 sizes"),
        (
            {"segments": [{"through": {"0B": "2us", "8B": "1us"}}], **CITED},
            "sizes and times must ascend, unlike from 0 B to 8 B",
        ),
        (
            {"segments": [SMALL, {"through": {"8B": "2us", "9B": "9us"}}], **CITED},
            "the line through 8 B and 9 B has a negative alpha",
        ),
        ({"segments": [{"through": {"0B": "1us", "8B": "2us"}}]}, "has no source"),
        ({"alpha": "1us", "rate": "1GB/s", "eager_limit": "1us", **CITED}, "eager_limit: '1us' is"),
    ],
)
def test_mistakes_in_costs_are_reported_by_key(cost: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        with_path(cost)


PLACES = st.lists(st.integers(0, 99), min_size=1, max_size=6)
WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1.5,
        1e308,
        10**400,
        "",
        "x",
        "1us",
        "never",
        "qpi",
        "gpu.reduction",
        [],
        {},
        [[]],
    ]
)


def spoiled(value: Any, places: list[int], wrong: Any) -> Any:
    """The value with `wrong` at a place inside."""
    if not places or not isinstance(value, dict | list) or not value:
        return wrong
    copy: Any = value.copy()
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[places[0] % len(keys)]
    copy[key] = spoiled(value[key], places[1:], wrong)
    return copy


def assert_read_or_reported(record: Any) -> None:
    message = ""
    try:
        machine_from_yaml(record)
    except InputError as reason:
        message = str(reason)
    assert "\n" not in message
    assert len(message) < 400


@settings(max_examples=300)
@given(st.sampled_from(("ri2", "dgx-a100", "piz-daint", "summit")), PLACES, WRONG)
def test_a_wrong_value_is_read_or_reported(name: str, places: list[int], wrong: Any) -> None:
    record = {**preset_record(name), "nodes": {"value": 3, **CITED}}
    assert_read_or_reported(spoiled(record, places, wrong))


@given(PLACES, WRONG)
def test_a_wrong_change_is_made_or_reported(places: list[int], wrong: Any) -> None:
    """Anywhere in the file of a machine that is based on another one."""
    record = yaml.safe_load(preset_path("sierra").read_text())
    assert_read_or_reported(spoiled({**record, "nodes": 3}, places, wrong))


def test_mistakes_in_a_file_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(preset_path("ri2").read_text().replace("edr-port", "edr"))
    for load in (load_machine, load_topology):
        with pytest.raises(InputError, match=r"mine\.yaml: fabric: bandwidth: 'edr' is neither"):
            load(path)
    path.write_text(preset_path("ri2").read_text() + "name: twice\n")
    with pytest.raises(InputError, match=r"mine\.yaml: line \d+: .*'name' is written twice"):
        load_machine(path)
