"""What fabrics say of themselves: `ibnetdiscover`, Slurm's topology.conf and its lists of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fabrics import DOWN, NAMES, TREE, UP, fabric
from tuner.base.errors import InputError
from tuner.base.hostlist import expand_hostlist
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.topology import Link, Topology
from tuner.topology.readers.slurm import ASSUMED_RATES

# ---- ibnetdiscover


WHOLE = fabric(NAMES, UP + DOWN)


def infiniband(text: str) -> Topology:
    found, topology = parse_topology(text)
    assert found == "ibnetdiscover"
    return topology


def links(topology: Topology) -> dict[tuple[str, str], Link]:
    return {(link.source, link.target): link for link in topology.links}


def test_adapters_of_a_host_are_its_nics() -> None:
    topology = infiniband(WHOLE)
    assert [node.name for node in topology.nodes] == ["n2", "n10", "single", "H-40"]
    assert topology.nodes[1].ports == ("n10.nic0", "n10.nic1")
    assert topology.nodes[0].node_topology is topology.nodes[1].node_topology
    found = links(topology)
    assert found["n10.nic0", "leaf1"].capacity == 25e9  # mlx5_0, although second in the file
    assert found["n10.nic1", "leaf2"] == Link("n10.nic1", "leaf2", 25e9, 0.0)
    assert ("single", "leaf1") in found
    assert ("H-40", "leaf1") in found


def test_cables_side_by_side_are_one_link() -> None:
    topology = infiniband(WHOLE)
    assert topology.switches == ("leaf1", "leaf2", "S-b1", "S-b2")  # two call themselves the same
    found = links(topology)
    assert (found["leaf1", "S-b1"].capacity, found["leaf1", "S-b1"].count) == (50e9, 2)
    assert (found["S-b2", "leaf2"].capacity, found["S-b2", "leaf2"].count) == (25e9, 1)


@pytest.mark.parametrize(
    ("rate", "gigabits"),
    [
        ("4xSDR", 8),
        ("4xDDR", 16),
        ("4xQDR", 32),
        ("4xFDR10", 40),
        ("4xFDR", 54.5454),
        ("4xEDR", 100),
        ("2xHDR", 100),
        ("4xHDR", 200),
        ("1xNDR", 100),
        ("4xNDR", 400),
        ("8xNDR", 800),
        ("4xXDR", 800),
        ("4xEDR s=4 w=2 v=4", 100),
    ],
)
def test_widths_and_speeds(rate: str, gigabits: float) -> None:
    found = links(infiniband(fabric(NAMES, UP + DOWN, rate)))
    assert found["single", "leaf1"].capacity == pytest.approx(gigabits / 8 * 1e9, rel=1e-5)


def test_one_end_may_tell_the_speed() -> None:
    first, _, rest = WHOLE.rpartition(" 4xHDR")
    assert links(infiniband(first + rest)) == links(infiniband(WHOLE))


def test_adapters_that_say_the_same_are_hosts_of_their_own() -> None:
    names = NAMES | {"H10": "localhost mlx5_0", "H20": "localhost mlx5_0"}
    nodes = [node.name for node in infiniband(fabric(names, UP + DOWN)).nodes]
    assert nodes == ["n2", "n10", "single", "H-10", "H-20", "H-40"]


def test_aggregation_nodes_say_that_switches_reduce() -> None:
    names = NAMES | {
        "He1": "Mellanox Technologies Aggregation Node",
        "He2": "Mellanox Technologies Aggregation Node",
    }
    one, two = ("He1", 1, "Sa1", 40), ("He2", 1, "Sa2", 40)
    assert infiniband(WHOLE).capabilities == {"multicast"}
    assert infiniband(fabric(names, [*UP, *DOWN, one])).capabilities == {"multicast"}
    both = infiniband(fabric(names, [*UP, *DOWN, one, two]))
    assert both.capabilities == {"multicast", "switch_reduction"}
    assert len(both.nodes) == 4


def test_what_is_down_is_left_out() -> None:
    names = NAMES | {"H50": "off mlx5_0", "Sc1": "dark"}
    topology = infiniband(fabric(names, UP + DOWN))
    assert "off" not in {node.name for node in topology.nodes}
    assert "dark" not in topology.switches


def test_what_is_up_but_not_joined_is_named() -> None:
    apart = NAMES | {"H50": "z mlx5_0", "Sc1": "island"}
    with pytest.raises(InputError, match="node z cannot be reached from n2"):
        parse_topology(fabric(apart, [*UP, *DOWN, ("H50", 1, "Sc1", 1)]))


def line_of(text: str, piece: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if piece in line)


@pytest.mark.parametrize(
    ("change", "where", "sentence"),
    [
        (('[3](1)\t"H-30"[1]', ""), '"S-a1"[3]', "port 3 of S-a1 does not say that it leads here"),
        (("4xHDR", ""), '[31](1)\t"S-b1"[1]', "neither end of this cable says a width and speed"),
        (("4xHDR", "4xKDR"), "4xKDR", "4xKDR is not an InfiniBand link; known: 1 to 12 times SDR"),
        (("4xHDR", "99xHDR"), "99xHDR", "99xHDR is not an InfiniBand link"),
        (
            ('Ca\t40 "H-30"', 'Ca\t40 "H-20"'),
            'Ca\t40 "H-20"\t\t# "single"',
            "H-20 is already on line",
        ),
        (('[32](1)\t"S-b1"', '[31](1)\t"S-b1"'), "x", "port 31 is already on line"),
        (("devid", "device"), "device=", "neither a Switch or Ca nor one of its ports: 'device="),
    ],
)
def test_bad_fabrics_are_named(change: tuple[str, str], where: str, sentence: str) -> None:
    text = WHOLE.replace(*change)
    if not change[1].strip("[]") and change[0].startswith("["):
        text = "\n".join(line for line in WHOLE.splitlines() if change[0] not in line)
    with pytest.raises(InputError) as caught:
        parse_topology(text)
    said = str(caught.value)
    assert sentence in said
    assert "\n" not in said
    assert where == "x" or said.startswith(f"line {line_of(text, where)}: ")


def test_a_file_cut_short_is_named() -> None:
    cut = WHOLE[: WHOLE.index('# "single" base')]
    with pytest.raises(
        InputError, match="port 1 of H-30 does not say that it leads here; the file"
    ):
        parse_topology(cut)
    with pytest.raises(InputError, match="there is no paragraph for H-40; the file is not whole"):
        parse_topology(WHOLE[: WHOLE.index("\nvendid", WHOLE.index('# "single" base'))])


def test_the_fabric_of_a_cluster(shared: Path) -> None:
    topology = load_topology(shared / "data/samples/ibnetdiscover/example.out")
    assert (len(topology.nodes), len(topology.switches)) == (191, 40)
    assert len(topology.ports) == 542
    assert sum(link.count for link in topology.links) == 2228 - 80  # without aggregation nodes
    assert {link.capacity / link.count for link in topology.links} == {50e9}
    assert topology.capabilities == {"multicast", "switch_reduction"}


def test_an_adapter_alone_is_no_fabric(shared: Path) -> None:
    with pytest.raises(InputError, match=r"example-bad\.out: line 10: so far no adapter"):
        load_topology(shared / "data/samples/ibnetdiscover/example-bad.out")


# ---- Slurm


def slurm(text: str) -> Topology:
    found, topology = parse_topology(text)
    assert found == "slurm"
    return topology


def test_a_tree() -> None:
    topology = slurm(TREE)
    assert [node.name for node in topology.nodes] == [
        "n01",
        "n02",
        "n03",
        "n04",
        "n05",
        "n06",
        "login",
    ]
    assert topology.switches == ("leaf1", "leaf2", "top")
    found = links(topology)
    assert found["n01", "leaf1"] == Link("n01", "leaf1", 12.5e9, 0.0)
    assert found["leaf1", "top"] == Link("leaf1", "top", 50e9, 0.0, count=4)
    assert found["top", "leaf2"].count == 3


def test_several_switches_above_share_the_cables() -> None:
    spines = "SwitchName=s1 Switches=leaf[1-2]\nSwitchName=s2 Switches=leaf[1-2]\n"
    found = links(slurm(TREE.rpartition("SwitchName=top")[0] + spines))
    assert (found["leaf1", "s1"].count, found["leaf1", "s2"].count) == (2, 2)
    assert found["s2", "leaf2"].count == 2  # three nodes, rounded up


def test_what_slurm_prints_itself() -> None:
    """`scontrol show topology` sums up the nodes below an upper switch."""
    text = (
        "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=t Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=a\n"
    )
    assert len(slurm(text).nodes) == 2


def test_leaves_of_the_other_plugin() -> None:
    topology = slurm("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n")
    assert topology.switches == ("b1", "b2", "all")
    assert links(topology)["b1", "all"].count == 2


@pytest.mark.parametrize("spare", ["BlockName=b3\n", "BlockName=b3 Nodes=\n"])
def test_blocks_without_nodes_are_left_out(spare: str) -> None:
    topology = slurm(f"{spare}BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2\n")
    assert topology.switches == ("b1", "b2", "all")
    assert len(topology.nodes) == 3


def test_blocks_as_slurm_prints_them() -> None:
    """Sizes, numbers and the blocks that it joins say nothing about the network."""
    topology = slurm(
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes= BlockSize=2\n"
        "BlockName=b3 BlockIndex=2 Nodes=n[3-4] BlockSize=2\n"
        "AggregatedBlock=b[1-3] BlockIndex=3 Nodes=n[1-4] BlockSize=4\n"
    )
    assert topology.switches == ("b1", "b3", "all")


def test_keys_may_be_in_any_order() -> None:
    topology = slurm("Nodes=n[1-2] SwitchName=a\nLinkSpeed=1 Switches=a SwitchName=t\n")
    assert topology.switches == ("a", "t")


LONG = ",".join(f"ip-10-0-0-{number}" for number in range(200))
YAML_TREE = f"""# by a generator
---
- topology: racks
  block: {{block_sizes: [2, 4], blocks: [{{block: b1, nodes: "n[1-2]"}}, {{block: b2}}]}}
- topology: main
  cluster_default: True
  tree:
    switches:
      - switch: top
        children: 01,leaf2
      - switch: 01
        nodes: {LONG}
      - switch: leaf2
        nodes: 007
"""


def test_the_default_of_several_topologies_in_yaml_is_read() -> None:
    topology = slurm(YAML_TREE)
    assert topology.name == "main"
    assert topology.switches == ("top", "01", "leaf2")
    assert len(topology.nodes) == 201
    assert topology.nodes[-1].name == "007"
    assert links(topology)["01", "top"].count == 200
    assert "to read another one (racks), move cluster_default" in topology.cautions[1]


def test_the_only_topology_in_yaml_is_read() -> None:
    topology = slurm(YAML_TREE.partition("- topology: main")[0])
    assert (topology.name, topology.cautions) == ("racks", (ASSUMED_RATES,))
    assert topology.switches == ("b1", "all")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("cluster_default: True", ""), "'racks', 'main' has cluster_default: true; write it in"),
        (("tree:", "torus:"), "topology 2 has an unknown key 'torus'; known: block"),
        (("tree:", "flat: true\n  tree:"), "'main' names no switches, as tree or block would"),
        (("children", "parents"), "'main': tree: switches: 1 has an unknown key 'parents'"),
        (("children: 01,", "children: nowhere,"), "switches: 1: there is no switch 'nowhere'"),
        (("nodes: 007", "nodes:"), "tree: switches: 3: switch 'leaf2' needs Nodes or"),
        (("switch: leaf2", "switch: top"), "'main': tree: switches: 3: 'top' is already at topol"),
        (("nodes: 007", "nodes: *all"), "aliases"),
    ],
)
def test_bad_yaml_of_slurm_is_named(change: tuple[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse_topology(YAML_TREE.replace(*change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TREE + "SwitchName=x Nodes=n[04-05]", "line 6: 'n04' is already at line 2"),
        (TREE + "SwitchName=top Nodes=x", "line 6: 'top' is already at line 5"),
        (TREE + "SwitchName=x Nodes=y,y", "line 6: 'y' is already at line 6"),
        (TREE + "SwitchName=x Switches=top,nowhere", "line 6: there is no switch 'nowhere'"),
        (TREE + "SwitchName=x Switches=top,top", "line 6: 'top' is there twice"),
        (TREE + "SwitchName=x", "line 6: switch 'x' needs Nodes or Switches"),
        (TREE + "SwitchName=x Nodes=a Colour=red", "line 6: the key 'colour' is unknown"),
        (TREE + "SwitchName=x Nodes=a and b", "line 6: a line is KEY=VALUE, each once"),
        (TREE + "SwitchName=x Nodes=a Nodes=b", "line 6: a line is KEY=VALUE, each once"),
        (TREE + "SwitchName=x[1-2] Nodes=a", "line 6: the SwitchName or the BlockName of one"),
        (TREE + "Nodes=a", "line 6: the SwitchName or the BlockName of one switch"),
        (TREE + "SwitchName=x Nodes=n[1-", r"line 6: 'n\[1-' is not a list of names"),
        (TREE + "SwitchName=x Nodes=lonely", "node lonely cannot be reached from n01"),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n Switches=a",
            r"line \d: switch '[abc]' is below itself",
        ),
        ("SwitchName=a Switches=a", "expected a switch or a block that names nodes"),
        ("BlockSizes=4", "expected a switch or a block that names nodes"),
    ],
)
def test_bad_trees_are_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse_topology(text)
    assert "\n" not in str(caught.value)


def test_the_tree_of_a_cluster(shared: Path) -> None:
    topology = load_topology(shared / "data/samples/slurm/tree_topology.conf")
    assert (len(topology.nodes), len(topology.switches)) == (96, 19)
    assert links(topology)["switch.2.1", "switch.3.1"].count == 16


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b-1", ["a", "b-1"]),
        ("n[08-10,3]", ["n08", "n09", "n10", "n3"]),
        ("r[1-2]n[1,2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("n[099-100],m", ["n099", "n100", "m"]),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert expand_hostlist(text, 100) == names


@pytest.mark.parametrize(
    "text",
    [
        "n[1-101]",
        "n[5-4]",
        "n[1-2",
        "n]1[",
        "n[[1]]",
        "n[a-b]",
        "n[]",
        "a,,b",
        ",",
        "",
        "a b",
        "n[1-9999999999999]",
        "a[1-11]b[1-11]",
        "x" * 300,
        "[1-2]" * 60,
    ],
)
def test_bad_lists_of_hosts(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand_hostlist(text, 100)
    assert len(str(caught.value)) < 200
