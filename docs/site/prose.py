"""Plain text of docstrings and help as Markdown and as reStructuredText.

The text knows paragraphs, lists of names with explanations beside them, and everything else that is
aligned in columns or indented, such as commands, which is shown as it stands.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

NAMED = re.compile(r"^(\S+(?:, \S+)*) {2,}(\S.*)$")
ITEM = re.compile(r"^(?:-|\d+\.) ")


def markdown(text: str) -> str:
    """Return the text as Markdown."""
    return "\n\n".join(_markdown_block(block) for block in _blocks(text))


def restructured(text: str) -> str:
    """Return the text as reStructuredText."""
    return "\n\n".join(_restructured_block(block) for block in _blocks(text))


def _blocks(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.strip():
            yield block


def _is_paragraph(block: str) -> bool:
    return not re.search(r"^ |\S {2,}\S", block, re.MULTILINE)


def _named(block: str) -> list[tuple[str, str]] | None:
    """Return the names of a block with their explanations, or None if it is something else."""
    entries: list[tuple[str, str]] = []
    for line in block.splitlines():
        if found := NAMED.match(line):
            entries.append((found[1], found[2]))
        elif entries and line.startswith("    "):
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
        else:
            return None
    return entries


def _markdown_block(block: str) -> str:
    if _is_list(block):
        return block
    if _is_paragraph(block):
        return _escaped(block)
    return f"```text\n{textwrap.dedent(block)}\n```"


def _is_list(block: str) -> bool:
    lines = block.splitlines()
    return bool(ITEM.match(lines[0])) and all(
        ITEM.match(line) or re.match(r" {2,3}\S", line) for line in lines
    )


def _escaped(text: str) -> str:
    """Return a paragraph whose `<`, `*` and `_` outside of code mean themselves."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<*_\[\]|$])", r"\\\1", part) for part in parts
    )


def _restructured_block(block: str) -> str:
    if _is_paragraph(block) or _is_list(block):
        return _inline(block)
    if entries := _named(block):
        return "\n".join(f"``{name}``\n    {_inline(said)}" for name, said in entries)
    return "::\n\n" + textwrap.indent(textwrap.dedent(block), "    ")


def _inline(text: str) -> str:
    """Return a paragraph with its code in double quotes and without other markup."""
    parts = re.split(r"(`[^`]+`)", text.replace("``", "`"))
    return "".join(
        rf"\ `{part}`\ " if part.startswith("`") and len(part) > 1 else _without_markup(part)
        for part in parts
    )


def _without_markup(text: str) -> str:
    return re.sub(r"([*_|\\`])", r"\\\1", text)
