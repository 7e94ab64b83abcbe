"""Argument types that several verbs share."""

from __future__ import annotations

from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import parse_size
from tuner.core.collective import Collective

MAX_FRACTION = 10.0  # times the whole; who writes 20 means 20 %


def positive_int(text: str) -> int:
    """How many of something; raises InputError for less than one."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"{shortened_repr(text)} is no whole number from 1 on")
    return int(text)


def non_negative_int(text: str) -> int:
    """How many of something, also none; raises InputError."""
    if not text.isascii() or not text.isdigit():
        raise InputError(f"expected a whole number, got {shortened_repr(text)}")
    return int(text)


def size_list(text: str) -> tuple[int, ...]:
    """Bytes of a comma list such as `1KiB,64KiB`; raises InputError."""
    return tuple(parse_size(part) for part in text.split(","))


def fraction(text: str) -> float:
    """`2%` or `0.02`; raises InputError."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if rest or not 0 < value <= MAX_FRACTION:
        raise InputError(f"{text!r} is no percentage: write it like 2% or 0.02")
    return value


def require_image_suffix(path: Path, option: str, allow_both: bool = False) -> None:
    """Raises InputError for a name that no picture has; `both`: kinds, of one
    without a suffix.
    """
    if path.suffix in (".svg", ".png") or (allow_both and not path.suffix):
        return
    without = ", or has no suffix for both" if allow_both else ""
    raise InputError(f"{option} {path}: the name of a picture ends in .svg or .png{without}")


def name_list(text: str) -> tuple[str, ...]:
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
