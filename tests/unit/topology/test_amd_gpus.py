"""Matrices of amd-smi and rocm-smi become topologies, in all their forms."""

from __future__ import annotations

import json

import pytest

from tests.support.nodes import BUSES, GPU_TABLES, GPUS_OF_AMD, amd_smi
from tuner.base.errors import InputError
from tuner.machines.topology_files import parse_topology
from tuner.topology import Topology
from tuner.topology.readers.amd_gpus import UNKNOWN_CPUS
from tuner.topology.readers.gpu_products import UNNAMED_GPUS, with_gpu

TEXT = amd_smi()
LINKS = {("gpu0", "gpu1"): (100e9, 2), ("gpu0", "gpu2"): (50e9, 1)}
OLD_KEYS = {"link_status": "link_accessibility", "num_hops": "hops", "bandwidth": "numa_bandwidth"}
KEYED = {key: cells for (_, key), cells in GPU_TABLES.items()}


def xgmi(topology: Topology) -> dict[tuple[str, str], tuple[float, int]]:
    """Return capacity and count of the links between GPUs, which are alike both ways."""
    (node,) = topology.nodes
    assert node.node_topology is not None
    links = {
        (link.source, link.target): (link.capacity, link.count)
        for link in node.node_topology.links
        if link.kind == "xgmi"
    }
    assert all(links[b, a] == link for (a, b), link in links.items())
    return {(a, b): link for (a, b), link in links.items() if a < b}


def cpus(topology: Topology) -> int:
    (node,) = topology.nodes
    assert node.node_topology is not None
    return len(node.node_topology.device_indices("cpu"))


def read(text: str) -> Topology:
    found, topology = parse_topology(text)
    assert found == "amd-smi"
    return topology


def new_json() -> str:
    links = [
        [{"gpu": b, "bdf": BUSES[b], **{key: KEYED[key][a][b] for key in KEYED}} for b in range(3)]
        for a in range(3)
    ]
    return json.dumps([{"gpu": a, "bdf": BUSES[a], "links": links[a]} for a in range(3)])


def old_records() -> list[dict[str, object]]:
    return [
        {"gpu": a}
        | {
            OLD_KEYS.get(key, key): {f"gpu_{b}": KEYED[key][a][b] for b in range(3)}
            for key in KEYED
        }
        for a in range(3)
    ]


OLD = list(enumerate(old_records()))


def table() -> str:
    columns = [f"{OLD_KEYS.get(key, key)}_gpu_{b}" for key in KEYED for b in range(3)]
    rows = [
        ",".join([str(a), BUSES[a], *(KEYED[key][a][b] for key in KEYED for b in range(3))])
        for a in range(3)
    ]
    return "\n".join([",".join(["gpu", "bdf", *columns]), *rows, ""])


@pytest.mark.parametrize(
    "text", [TEXT, "\ufeff" + TEXT, new_json(), json.dumps(old_records(), indent=4), table()]
)
def test_all_forms_of_amd_smi_say_the_same(text: str) -> None:
    topology = read(text)
    assert xgmi(topology) == LINKS
    assert cpus(topology) == 1
    assert topology.cautions == (UNKNOWN_CPUS,)


@pytest.mark.parametrize("key", ["num_hops", "weight", "link_status", "bandwidth"])
def test_a_pair_whose_messages_others_forward_has_no_link(key: str) -> None:
    """Each matrix alone says it: several hops, more than one hop's weight, or a rate of 0."""
    far = {"num_hops": "2", "weight": "30", "link_status": "DISABLED", "bandwidth": "0-0"}[key]
    near = {"num_hops": "1", "weight": "15", "link_status": "ENABLED", "bandwidth": "50000-50000"}
    cells = tuple(
        tuple("N/A" if a == b else far if a + b == 3 else near[key] for b in range(3))
        for a in range(3)
    )
    title = next(title for title, known in GPU_TABLES if known == key)
    types = "LINK TYPE TABLE", "link_type"
    topology = read(amd_smi({types: GPU_TABLES[types], (title, key): cells}))
    assert set(xgmi(topology)) == set(LINKS)


def test_rates_and_weights_of_0_everywhere_say_nothing() -> None:
    nothing = {
        (title, key): (("0-0" if key == "bandwidth" else "0",) * 3,) * 3
        for title, key in GPU_TABLES
        if key in ("bandwidth", "weight")
    }
    topology = read(amd_smi({**GPU_TABLES, **nothing}))
    assert set(xgmi(topology).values()) == {(24e9, 1)}
    assert len(xgmi(topology)) == 3
    assert topology.cautions == (UNNAMED_GPUS, UNKNOWN_CPUS)
    assert set(xgmi(with_gpu(topology, "MI300X")).values()) == {(48e9, 1)}


def test_gpus_three_hops_apart_are_on_different_cpus() -> None:
    far = TEXT.replace("XGMI", "PCIE").replace(
        "1            1            0", "3            3            0"
    )
    topology = read(far)
    assert cpus(topology) == 1
    far = far.replace("0            1            1", "0            2            3")
    far = far.replace("1            0            1", "2            0            3")
    topology = read(far)
    assert cpus(topology) == 2
    assert topology.cautions == ()


def test_the_weight_of_two_hops_counts_in_rocm_smi_too() -> None:
    """It says one hop of all pairs that xGMI joins."""
    _, topology = parse_topology(GPUS_OF_AMD.replace("0            1            2", "0  1  1"))
    assert set(xgmi(topology)) == {("gpu0", "gpu1")}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("LINK TYPE", "OTHER"), "table of link types is missing: take `amd-smi topology`"),
        (("XGMI         SELF", "UNKNOWN      SELF"), "link type, row .*: XGMI or PCIE belongs"),
        (("XGMI         XGMI         SELF", "XGMI         SELF"), "line 20: a row of 'LINK TYPE"),
        (("50000-100000", "fast"), "bandwidths, row .*: a range such as 50000-100000"),
        (("50000-100000", "0-50000"), "bandwidths, row .*: a range such as 50000-100000"),
        (("50000-100000", "100000-50000"), "bandwidths, row .*: a range such as 50000-100000"),
        (("50000-100000", "1-999999999"), "of up to 16 links belongs here, not '1-999999999'"),
        (
            ("50000-100000 N/A", "50000-50000  N/A"),
            "has another xGMI link to .*: bandwidths '50000-100000', '50000-50000'",
        ),
        (("ENABLED", "BROKEN "), "accesses, row .*: ENABLED or DISABLED belongs here, not 'BROKEN"),
        (("XGMI         SELF", "XGMI         XGMI"), "SELF or 0 belongs here and .*not 'XGMI'"),
        (("1            1            0", "1            one          0"), "hops, row .*: a number"),
    ],
)
def test_bad_tables_are_named(change: tuple[str, str], sentence: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(InputError, match=sentence):
        parse_topology(TEXT.replace(*change), "amd-smi")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[{", "not JSON that amd-smi writes"),
        ("[" * 100_000, "not JSON that amd-smi writes"),
        ('{"link_type": 1}', "amd-smi's JSON is a list of GPUs and nothing around it, such as"),
        ('[{"gpu": 0, "gpu": 1}]', "the key 'gpu' is there twice in one object of JSON"),
        ('[{"links": []}]', "`gpu` is a number, not None"),
        (
            json.dumps([{"gpu": 0, "links": [{"gpu": 0, "link_type": "SELF"}] * 2}]),
            "row GPU0, column GPU0: told twice",
        ),
        (json.dumps([*old_records(), old_records()[0]]), "row GPU0, column GPU0: told twice"),
        (new_json().replace('[{"gpu": 0', '[{"gpu": -1'), "each link of GPU -1 must"),
        (table() + table().splitlines()[1], "row GPU0, column GPU0: told twice"),
        (table().replace("weight_gpu_1", "weight_gpu_0"), "weight, row GPU0, column GPU0: told"),
        (
            json.dumps([{k: v for k, v in gpu.items() if k != "hops" or a} for a, gpu in OLD]),
            "hops, row GPU0, column GPU0: its GPUs are not those of link type",
        ),
        (
            '[{"gpu": 0, "links": [{"link_type": "XGMI"}]}]',
            "each link of GPU 0 must name another `gpu`",
        ),
        (json.dumps(old_records()[:2]), "link type, row GPU0, column GPU2"),
        ("gpu,link_type_gpu_0,link_type_gpu_1\n0,SELF\n", "GPU '0': not one field per column"),
        ('gpu,link_type_gpu_0\n0,"SEL\n', "not a table that amd-smi writes"),
    ],
)
def test_damaged_records_are_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_topology(text, "amd-smi")


def test_the_output_of_a_second_computer_is_refused() -> None:
    with pytest.raises(InputError, match=r"line \d+: a second 'LINK TYPE TABLE': leave what"):
        read(TEXT + TEXT[TEXT.index("HOPS TABLE") :])
    with pytest.raises(InputError, match="a second 'Link Type between two GPUs'"):
        parse_topology(GPUS_OF_AMD * 2)


def test_a_matrix_of_other_gpus_is_refused() -> None:
    start = TEXT.index("HOPS TABLE")
    other = TEXT[:start] + TEXT[start:].replace(BUSES[0], "0000:77:00.0", 2)
    with pytest.raises(InputError, match=r"hops, row .*: its GPUs are not those of link type"):
        read(other)


def test_more_gpus_than_a_node_holds_are_refused_before_pairs_are_read() -> None:
    names = " ".join(f"GPU{n}" for n in range(257))
    with pytest.raises(InputError, match="257 GPUs in one node: at most 256 are read"):
        read(f"LINK TYPE TABLE:\n{names}\nGPU0 SELF\n")
    records = [{"gpu": n, "link_type": {f"gpu_{n}": "SELF"}} for n in range(257)]
    with pytest.raises(InputError, match="257 GPUs in one node: at most 256 are read"):
        read(json.dumps(records))


@pytest.mark.parametrize("change", [("Node: 1", "Node: -1"), ("GPU 2   ", "GPU 3   ")])
def test_numa_nodes_count_only_where_all_are_told(change: tuple[str, str]) -> None:
    assert cpus(parse_topology(GPUS_OF_AMD)[1]) == 2
    assert change[0] in GPUS_OF_AMD
    _, topology = parse_topology(GPUS_OF_AMD.replace(*change))
    assert cpus(topology) == 1
    assert UNKNOWN_CPUS in topology.cautions


def test_a_gpu_has_one_numa_node() -> None:
    text = GPUS_OF_AMD.replace("GPU 2   ", "GPU 1   ")
    with pytest.raises(InputError, match=r"line \d+: a second NUMA node of GPU1: leave one"):
        parse_topology(text)
