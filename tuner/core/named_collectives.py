"""Lists of collectives in files."""

from __future__ import annotations

from typing import Any

from tuner.base.errors import InputError
from tuner.base.file_settings import Kind, parse_distinct_names
from tuner.base.spelling import unknown_name
from tuner.core.collective import Collective


def parse_collectives(what: str, entry: Any) -> tuple[Collective, ...]:
    """Return the collectives of a list of names, without duplicates, in the order written."""
    names = parse_distinct_names(what, entry)
    unknown = [name for name in names if name not in list(Collective)]
    if unknown:
        raise InputError(unknown_name("collective", unknown[0], Collective))
    return tuple(Collective(name) for name in names)


COLLECTIVES = Kind("names", parse_collectives)
