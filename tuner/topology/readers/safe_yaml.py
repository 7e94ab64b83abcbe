"""YAML parser for untrusted text, with bounded time and memory.

It refuses documents longer than `MAX_BYTES` before it parses them. While it parses, and before it
builds anything large, it refuses more than `MAX_VALUES` values (seconds to read), nesting deeper
than `MAX_DEPTH`, aliases (which could expand a page of text to gigabytes), tags (such as
`!!int x`), and values longer than `MAX_VALUE_CHARACTERS` (a number of a million digits takes
minutes).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from tuner.base.errors import InputError

MAX_BYTES = 1 << 20  # of a document in UTF-8
MAX_VALUES = 100_000  # including keys and lists: about 10,000 links of a topology
MAX_DEPTH = 20
MAX_VALUE_CHARACTERS = 1000


class _Loader(yaml.SafeLoader):
    """A loader of plain values, lists and mappings without aliases, tags or repeated keys."""

    max_value_characters = MAX_VALUE_CHARACTERS
    depth = 0
    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        reason = self.refusal_reason(event)
        if reason:
            raise ComposerError(None, None, reason, event.start_mark)
        self.depth += 1
        self.values += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def refusal_reason(self, event: yaml.Event) -> str:
        """Return why the value that begins with this event is refused, "" if it is accepted."""
        if isinstance(event, yaml.AliasEvent):
            return "aliases (*name) are not read: write the value out"
        if getattr(event, "tag", None) is not None:
            return "tags (!name) are not read"
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > self.max_value_characters:
            return f"a value is longer than {self.max_value_characters} characters"
        if self.depth == MAX_DEPTH:
            return f"lists and mappings are nested more than {MAX_DEPTH} deep"
        return f"there are more than {MAX_VALUES} values" if self.values == MAX_VALUES else ""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConstructorError(
                        None, None, f"{key.value!r} is written twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _TextLoader(_Loader):
    """A loader that leaves every value as text, however long: a host list, a switch called 08."""

    max_value_characters = MAX_BYTES


_TextLoader.yaml_implicit_resolvers = {}  # which make numbers, flags and dates of text


def require_yaml_length(nbytes: int) -> None:
    """Raise InputError for a document of more bytes than are parsed."""
    if nbytes > MAX_BYTES:
        raise InputError(f"{nbytes} bytes of YAML are too many: at most {MAX_BYTES}")


def read_yaml(path: Path) -> Any:
    """Return the plain values, lists and mappings of a file of YAML or JSON.

    Raises InputError as `parse_yaml` does, OSError for a file that cannot be read, and
    UnicodeDecodeError for one that is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
        require_yaml_length(max(len(data), os.fstat(file.fileno()).st_size))
    return parse_yaml(data.decode("utf-8"))


def parse_yaml(text: str, *, as_text: bool = False) -> Any:
    """Return the plain values, lists and mappings of YAML (or JSON) text.

    as_text     leave all values as text, also numbers, flags and nothing

    Raises InputError naming the line of what is malformed or refused.
    """
    require_yaml_length(len(text.encode("utf-8", "surrogatepass")))
    try:
        return yaml.load(text, Loader=_TextLoader if as_text else _Loader)
    except yaml.MarkedYAMLError as reason:
        where = f"line {reason.problem_mark.line + 1}: " if reason.problem_mark else ""
        raise InputError(f"{where}not YAML that can be read: {reason.problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as reason:  # 2024-13-45; 1:1: ... 1:1.0
        raise InputError(f"not YAML that can be read: {' '.join(str(reason).split())}") from None
