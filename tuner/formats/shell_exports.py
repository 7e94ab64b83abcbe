"""Files of environment variables for a shell.

Each line is `export NAME='VALUE'` or `unset NAME`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from tuner.base.errors import InputError, shortened_repr
from tuner.formats.file_rules import Report

_LINE = re.compile(r"export ([A-Z][A-Z0-9_]*)='([^'\\]*)'|unset ([A-Z][A-Z0-9_]*)")
ShellVariables = Mapping[str, str | None]  # name -> value; None: unset
MAX_VARIABLE_BYTES = 128 * 1024  # limit of Linux for NAME=VALUE and its final NUL


def render(variables: ShellVariables, comment: str) -> str:
    """Return the file; raises InputError for a variable that is too long for any process."""
    for name, value in variables.items():
        if len(name) + len(value or "") + 2 > MAX_VARIABLE_BYTES:
            raise InputError(
                f"{name} would be longer than the {MAX_VARIABLE_BYTES} bytes that Linux passes on"
            )
    lines = [
        f"unset {name}" if value is None else f"export {name}='{value}'"
        for name, value in variables.items()
    ]
    return "".join(f"{line}\n" for line in (f"# {comment}", *lines))


def parse(text: str) -> dict[str, str | None]:
    """Return the variables; raises InputError naming the line for any other syntax."""
    found: dict[str, str | None] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(
                f"line {number}: {shortened_repr(line)} is not an export NAME='VALUE' or unset NAME"
            )
        name = match[1] or match[3]
        if name in found:
            raise InputError(f"line {number}: {name} is set twice, the last one would count")
        found[name] = match[2]
    return found


def assignments(text: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield line, name and value of each variable that any shell's file sets; None: unset.

    Raises InputError naming a line that is nothing of the kind.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            raise InputError(f"line {number}: a quotation mark is missing") from None
        if words[:1] in (["unset"], ["unsetenv"]):
            yield from ((number, name, None) for name in words[1:])
            continue
        if words[:1] == ["setenv"] and len(words) == 3:
            words = [f"{words[1]}={words[2]}"]
        for word in words[words[:1] == ["export"] :]:
            name, sign, value = word.partition("=")
            if not sign or not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise InputError(f"line {number}: {shortened_repr(word)} is not NAME=VALUE")
            yield number, name, value


def last_assignments(text: str, report: Report) -> Iterator[tuple[int, str, str | None]]:
    """Yield the assignments that count, of each name the last one; report all earlier ones.

    Raises InputError as `assignments` does.
    """
    found = list(assignments(text))
    last = {name: place for place, (_, name, _) in enumerate(found)}
    for place, (line, name, value) in enumerate(found):
        if place == last[name]:
            yield line, name, value
        else:
            report(line, f"{name} is set again in line {found[last[name]][0]}, which counts")
