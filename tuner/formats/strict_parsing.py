"""Strict parsing of numbers and JSON in files for the libraries, whose content is not trusted.

The libraries are C programs that know ASCII digits alone; some read a leading zero as the sign of
octal, and none holds more than 64 bits.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from typing import Any

from tuner.base.errors import InputError, shortened_repr

INTEGER_PATTERN = "(?:0|[1-9][0-9]{0,19})"  # part of a regular expression
MAX_UINT64 = 2**64 - 1


def parse_int(text: str, maximum: int = MAX_UINT64) -> int | None:
    """Return a plain decimal number of at most `maximum`; None for anything else."""
    value = int(text) if re.fullmatch(INTEGER_PATTERN, text) else None
    return None if value is None or value > maximum else value


def encoded_length(line: str) -> int:
    """Return the length of a line in UTF-8 bytes, even if it holds unpaired surrogates."""
    return len(line.encode("utf-8", "surrogatepass"))


class LinedObject(dict[str, Any]):
    """An object of a JSON file, with the line on which it begins."""

    line = 0


def _with_lines(text: str) -> str:
    """Return JSON whose objects have their line as a first member, without a name."""
    breaks = [found.start() for found in re.finditer("\n", text)]

    def numbered(found: re.Match[str]) -> str:
        if found[0][0] == '"':
            return found[0]
        comma = "" if found[0].endswith("}") else ","
        return f'{{"":{bisect(breaks, found.start()) + 1}{comma}{found[0][1:]}'

    return re.sub(r'"(?:[^"\\]|\\.)*"|\{\s*\}?', numbered, text)


def parse_strict_json(text: str, what: str) -> Any:
    """Return the content of a JSON file, its objects as `LinedObject`.

    what    begins the message of every InputError

    Raises InputError for a damaged file and for a name that is listed twice in one object, as only
    one of the two would count.
    """

    def unique(pairs: list[tuple[str, Any]]) -> LinedObject:
        found = LinedObject(pairs[1:])
        found.line = pairs[0][1]
        if len(found) != len(pairs) - 1:
            raise InputError(f"{what}: a name is listed twice among {shortened_repr(list(found))}")
        return found

    try:
        return json.loads(_with_lines(text), object_pairs_hook=unique)
    except json.JSONDecodeError as reason:
        raise InputError(
            f"{what}: truncated or not JSON, line {reason.lineno}: give the whole file"
        ) from None
    except ValueError:  # Python's limit: numbers of thousands of digits
        raise InputError(f"{what}: a number in it is longer than any library reads") from None
    except RecursionError:
        raise InputError(f"{what}: nested deeper than any library reads") from None
