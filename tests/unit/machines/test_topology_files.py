"""Formats of topologies: told apart by content; cores in hwloc XML; errors that name the place."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.machines.loader import load_machine
from tuner.machines.topology_files import TOPOLOGY_FORMATS, load_topology, parse_topology
from tuner.topology import Topology
from tuner.topology.readers import topology_to_record

FLAT = "name: flat4\nnodes: 4\nlatency: 2us\nbandwidth: 12.5GB/s\n"


def hwloc(inside: str, version: str = "2.0") -> str:
    """A document of our own with the given objects inside the machine."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="{version}">
  <object type="Machine" os_index="0" gp_index="1">
    <info name="OSName" value="Linux"/>
    <info name="HostName" value="ares17"/>
{inside}
  </object>
</topology>
"""


def named(topology: Topology) -> tuple[str, int]:
    """The one node, and its cores."""
    (node,) = topology.nodes
    return node.name, node.cores


def package(number: int, cores: int, threads: int = 2) -> str:
    units = '<object type="PU" gp_index="9"/>' * threads
    inner = f'<object type="Core" os_index="0">{units}</object>\n' * cores
    numa = f'<object type="NUMANode" os_index="{number}" local_memory="1024"/>'
    return f'<object type="Package" os_index="{number}">{numa}\n{inner}</object>'


def test_cores_of_all_packages_count_once_each() -> None:
    known_as, topology = parse_topology(hwloc(package(0, 6) + package(1, 6)))
    assert known_as == "hwloc"
    assert named(topology) == ("ares17", 12)
    assert (topology.links, topology.switches) == ((), ())
    assert topology.local_latency is None
    assert topology.local_bandwidth is None
    assert topology.memory_bandwidth == float("inf")


def test_processing_units_stand_in_for_cores_that_nobody_told() -> None:
    """A virtual machine may hide its cores."""
    units = '<object type="PU" os_index="0"/>' * 3
    assert named(parse_topology(hwloc(units))[1]) == ("ares17", 3)


def test_version_3_and_a_machine_without_a_name() -> None:
    text = hwloc(package(0, 2), "3.0").replace("HostName", "Backend")
    assert named(parse_topology(text)[1]) == ("computer", 2)


@pytest.mark.parametrize("text", [FLAT, "\ufeff" + FLAT, f"# <topology>\n{FLAT}"])
def test_yaml_is_recognised(text: str) -> None:
    assert parse_topology(text)[0] == "yaml"


@pytest.mark.parametrize("before", ["", "\n\n", "\ufeff", "<!-- <system> -->\n"])
def test_xml_is_recognised(before: str) -> None:
    text = before + hwloc(package(0, 2)).partition("\n")[2]
    assert parse_topology(text)[0] == "hwloc"


def test_a_known_format_is_believed() -> None:
    assert set(TOPOLOGY_FORMATS) >= {"yaml", "hwloc"}
    assert parse_topology(FLAT, "yaml") == parse_topology(FLAT)
    with pytest.raises(InputError, match="line 1: not XML that can be read: syntax error"):
        parse_topology(FLAT, "hwloc")
    with pytest.raises(
        InputError, match=r"unknown topology format 'ini': choose one of yaml, hwloc, nvidia-smi"
    ):
        parse_topology(FLAT, "ini")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<sys version='1'/>", "line 1, element <sys>: hwloc XML begins with <topology>"),
        ("<topology/>", r"element <topology>: version '1\.x' of hwloc's XML is not read"),
        (hwloc(package(0, 2), "9.1"), r"line 3, element <topology>: version '9\.1'"),
        (hwloc(""), "line 4, element <object>: expected objects of type Core or PU"),
        (hwloc("<object/>"), "line 7, element <object>: an object of hwloc has a type"),
        (hwloc('<object type="Machine"/>'), "one object of type Machine round all others"),
        ("<topology version='2.0'/>", "one object of type Machine round all others"),
        (hwloc("<object>"), "line 9: not XML that can be read: mismatched tag"),
        (hwloc("")[:100], "not XML that can be read"),
        ("<", "line 1: not XML that can be read"),
    ],
)
def test_bad_xml_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse_topology(text)
    assert "\n" not in str(caught.value)


def test_files_of_either_format(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_text(hwloc(package(0, 3)))
    assert named(load_topology(path)) == ("ares17", 3)
    path.write_text(FLAT)
    assert len(load_topology(path).nodes) == 4
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"any\.name: not text in UTF-8"):
        load_topology(path)


@pytest.mark.parametrize(
    ("name", "host", "cores"),
    [
        ("power8gpudistances.v2.xml", "drac-12.grenoble.grid5000.fr", 8),
        ("power8gpudistances.xml", "drac-12.grenoble.grid5000.fr", 8),
        ("nvidiaDGX2.v2.xml", "computer", 4),
        ("nvidiaDGX2.xml", "computer", 4),
    ],
)
def test_real_machines(shared: Path, name: str, host: str, cores: int) -> None:
    path = shared / "data" / "samples" / "hwloc" / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert named(load_topology(path)) == (host, cores)


def test_this_computer_as_lstopo_writes_it(tmp_path: Path) -> None:
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo is None:
        pytest.skip("hwloc's lstopo is not installed")
    path = tmp_path / "here.xml"
    subprocess.run([lstopo, "--of", "xml", str(path)], check=True, capture_output=True)
    counted = subprocess.run(
        [lstopo, "--only", "core"], check=True, capture_output=True, text=True
    ).stdout
    assert load_topology(path).nodes[0].cores == counted.count("Core")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("probe", "measurements"),
        ("table", "a tuning table"),
        ("selector", "a selector"),
        ("evaluation", "data of kind evaluation"),
    ],
)
def test_another_file_of_tuner_is_named(kind: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text(f'{{"kind": "{kind}", "version": 1}}\n{{"kind": "call"}}\n')
    for read in (load_topology, load_machine):
        with pytest.raises(InputError, match=f"this file has {said} and no topology"):
            read(path)


def test_the_record_of_a_topology_is_read(tmp_path: Path) -> None:
    topology = load_machine("preset:dgx-h100:2").topology
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(topology_to_record(topology)))
    assert load_topology(path) == topology
    assert load_machine(str(path)).topology == topology
    assert parse_topology(path.read_text())[0] == "tuner"
    with pytest.raises(InputError, match="not JSON: "):
        parse_topology(path.read_text()[:-1])


@pytest.mark.parametrize("text", ["", "hello\tworld\n", '{"a": 1}', "- 1\n", "[1, 2"])
def test_what_is_no_topology_gets_the_forms_that_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any"
    path.write_text(text)
    for read in (load_topology, load_machine):
        with pytest.raises(InputError, match="any: not recognised as a topology, which is hwloc"):
            read(path)
