"""Texts of fabrics, as ibnetdiscover writes them."""

from __future__ import annotations

from collections.abc import Mapping

Cable = tuple[str, int, str, int]


def fabric(names: Mapping[str, str], cables: list[Cable], rate: str = "4xHDR") -> str:
    """Return a fabric of switches `S..` and adapters `H..`, joined by (a, port, b, port)."""
    ports: dict[str, str] = dict.fromkeys(names, "")
    for a, p, b, q in cables + [(b, q, a, p) for a, p, b, q in cables]:
        ports[a] += f'[{p}](1)\t"{b[0]}-{b[1:]}"[{q}]\t\t# "{names[b]}" lid 1 {rate}\n'
    text = ["#\n# Topology file: generated\n#\n"]
    for guid, name in names.items():
        kind, letter = ("Switch", "S") if guid[0] == "S" else ("Ca", "H")
        text += [
            f"\nvendid=0x2c9\ndevid=0x1\nsysimgguid=0x{guid[1:]}\n{kind.lower()}guid=0x1(1)\n",
            f'{kind}\t40 "{letter}-{guid[1:]}"\t\t# "{name}" base port 0 lid 1 lmc 0\n',
            ports[guid],
        ]
    return "".join(text)


NAMES = {
    "Sa1": "leaf1",
    "Sa2": "leaf2",
    "Sb1": "Quantum",
    "Sb2": "Quantum",
    "H10": "n2 mlx5_0",
    "H11": "n2 mlx5_1",
    "H20": "n10 mlx5_1",
    "H21": "n10 mlx5_0",
    "H30": "single",
    "H40": "MT4123 ConnectX6   Mellanox Technologies",
}


UP = [
    ("Sa1", 31, "Sb1", 1),
    ("Sa1", 32, "Sb1", 2),
    ("Sa1", 33, "Sb2", 1),
    ("Sa2", 31, "Sb1", 3),
    ("Sa2", 33, "Sb2", 3),
]


DOWN = [
    ("H10", 1, "Sa1", 1),
    ("H11", 1, "Sa2", 1),
    ("H20", 1, "Sa2", 2),
    ("H21", 1, "Sa1", 2),
    ("H30", 1, "Sa1", 3),
    ("H40", 1, "Sa1", 4),
]


TREE = """# two leaves
SwitchName=leaf1 Nodes=n[01-04] LinkSpeed=100
switchname=leaf2 nodes=n[05-06],login \\
    linkspeed=7
SwitchName=top Switches=leaf[1-2]  # above
"""
