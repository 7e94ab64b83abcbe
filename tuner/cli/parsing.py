"""Argument types that several verbs share."""

from __future__ import annotations

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.units import parse_size


def sizes(text: str) -> tuple[int, ...]:
    """Bytes of a comma list such as `1KiB,64KiB`; raises InputError."""
    return tuple(parse_size(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """A comma list of words."""
    return tuple(part.strip() for part in text.split(","))


def collective(text: str) -> Collective:
    """Raises InputError naming the known collectives."""
    try:
        return Collective(text)
    except ValueError:
        known = ", ".join(Collective)
        raise InputError(f"there is no collective {text!r}; known: {known}") from None


def parameter(text: str) -> tuple[str, int]:
    """`segment=64KiB` or `radix=4`; raises InputError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} is not a parameter: write it like segment=64KiB or radix=4")
    return name, parse_size(value)
