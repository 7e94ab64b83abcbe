"""Every format in which a topology can come, told apart by what is in the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.errors import InputError, quoted
from tuner.topologies import safe_xml, safe_yaml
from tuner.topologies.hwloc import parse_hwloc
from tuner.topologies.short import parse_short
from tuner.topology import Topology

FORMATS: dict[str, Callable[[str], Topology]] = {"yaml": parse_short, "hwloc": parse_hwloc}
MOST_CHARACTERS = max(safe_yaml.MOST_CHARACTERS, safe_xml.MOST_CHARACTERS)


def parse_topology(text: str, known_as: str | None = None) -> tuple[str, Topology]:
    """The name of the format, found out from the text unless it is known, and the topology.

    Raises InputError for an unknown format and for whatever that format refuses, naming line or
    element.
    """
    name = _recognised(text) if known_as is None else known_as
    if name not in FORMATS:
        raise InputError(f"there is no topology format {quoted(name)}; known: {', '.join(FORMATS)}")
    return name, FORMATS[name](text)


def load_topology(path: Path) -> Topology:
    """A topology from a file. Raises InputError that names file, place and remedy."""
    try:
        with path.open(encoding="utf-8") as file:
            return parse_topology(file.read(MOST_CHARACTERS + 1))[1]
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8; see `tuner simulate --help`") from None


def _recognised(text: str) -> str:
    """XML begins with a tag, and YAML cannot."""
    return "hwloc" if text.lstrip("\ufeff \t\r\n").startswith("<") else "yaml"
