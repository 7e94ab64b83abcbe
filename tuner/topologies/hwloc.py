"""One computer as hwloc describes it: `lstopo --of xml`, versions 2.x and 3.0 of the format.

Packages, NUMA nodes, caches, cores and processing units are nested `<object type="...">` elements.
What a `Topology` holds of them is how many cores there are: bandwidths inside the computer are not
in the file, they remain unknown until a calibration says them.
"""

from __future__ import annotations

from tuner.errors import InputError, quoted
from tuner.topologies.safe_xml import Element, parse_xml
from tuner.topology import Node, Topology

VERSIONS = ("2.", "3.")
UNNAMED = "computer"  # hwloc keeps the host's name unless it was told not to


def parse_hwloc(text: str) -> Topology:
    """A topology of one node, named after the host. Raises InputError with line and element."""
    root = parse_xml(text)
    _require_version(root)
    objects = [element for element in root.all() if element.name == "object"]
    for element in objects:
        if "type" not in element.attributes:
            raise InputError(f"{element}: an object of hwloc has a type")
    kinds = [element.attributes["type"] for element in objects]
    if kinds[:1] != ["Machine"] or kinds.count("Machine") > 1:
        raise InputError(f"{root}: hwloc puts one object of type Machine round all others")
    cores = kinds.count("Core") or kinds.count("PU")
    if cores == 0:
        raise InputError(f"{objects[0]}: the machine has no object of type Core or PU")
    name = _host(root)
    return Topology(name, (Node(name, cores),), (), ())


def _require_version(root: Element) -> None:
    if root.name != "topology":
        raise InputError(f"{root}: hwloc XML begins with <topology>")
    version = root.attributes.get("version", "1.x")
    if not version.startswith(VERSIONS):
        raise InputError(
            f"{root}: version {quoted(version)} of hwloc's XML is not read, only 2.x and 3.0;"
            " export again with `lstopo --of xml` of hwloc 2"
        )


def _host(root: Element) -> str:
    told = (e.attributes for e in root.all() if e.name == "info")
    named = (told["value"] for told in told if told.get("name") == "HostName" and "value" in told)
    return next(named, "") or UNNAMED
