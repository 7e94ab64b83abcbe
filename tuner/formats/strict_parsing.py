"""Numbers and JSON as the runtimes read them, from files of which nothing is certain.

The runtimes are C and know ASCII digits alone; some read a leading zero as the sign of octal, and
none holds more than 64 bits.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tuner.base.errors import InputError, shortened_repr

INTEGER_PATTERN = "(?:0|[1-9][0-9]{0,19})"  # as a part of a regular expression
MAX_UINT64 = 2**64 - 1


def parse_int(text: str, maximum: int = MAX_UINT64) -> int | None:
    """A plain decimal number of at most `most`; None for anything else."""
    value = int(text) if re.fullmatch(INTEGER_PATTERN, text) else None
    return None if value is None or value > maximum else value


def encoded_length(line: str) -> int:
    """Bytes of a line, also of one that no file could hold."""
    return len(line.encode("utf-8", "surrogatepass"))


def parse_json(text: str, what: str) -> Any:
    """What a JSON file holds; raises InputError, which begins with `what`, for a damaged one and
    where a name is listed twice, as only one of the two would count."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InputError(f"{what}: a name is listed twice among {shortened_repr(list(found))}")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as reason:
        raise InputError(
            f"{what}: truncated or not JSON, line {reason.lineno}: give the whole file"
        ) from None
    except ValueError:  # of Python, for numbers of thousands of digits
        raise InputError(f"{what}: a number in it is longer than any library reads") from None
    except RecursionError:
        raise InputError(f"{what}: nested deeper than any library reads") from None
