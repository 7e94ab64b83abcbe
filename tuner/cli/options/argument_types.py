"""Argument types that several verbs share, and the options that have them."""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, UsageError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.base.units import parse_size
from tuner.core.collective import Collective

MAX_FRACTION = 10.0  # as a share; larger numbers were meant as percent
Options = argparse._ActionsContainer  # a parser, or a group of its options


def file_option(options: Options, name: str, text: str, metavar: str = "FILE", **more: Any) -> None:
    """Declare an option, or an argument, that is a path; `text` is its help."""
    options.add_argument(name, type=Path, metavar=metavar, help=text, **more)


def count_option(options: Options, name: str, text: str, **more: Any) -> None:
    """Declare an option that is an integer of at least 1; `text` is its help."""
    options.add_argument(name, type=positive_int, help=text, **more)


def measured_sizes_option(options: Options, example: str = "") -> None:
    """Declare the option for the sizes that a probe measures."""
    options.add_argument(
        "--sizes", type=size_list, help=f"buffer sizes to measure{example} (default: 4B to 4.69MiB)"
    )


def positive_int(text: str) -> int:
    """Parse an integer of at least 1; raise InputError for anything else."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"{shortened_repr(text)} is not a whole number from 1 on")
    return int(text)


def non_negative_int(text: str) -> int:
    """Parse an integer of at least 0; raise InputError for anything else."""
    if not text.isascii() or not text.isdigit():
        raise InputError(f"expected a whole number, got {shortened_repr(text)}")
    return int(text)


def size_list(text: str) -> tuple[int, ...]:
    """Parse a comma list of sizes such as `1KiB,64KiB` to bytes; raise InputError."""
    return tuple(parse_size(part) for part in text.split(","))


def fraction(text: str) -> float:
    """Parse a positive share such as `2%` or `0.02`; raise InputError for anything else."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if rest or not 0 < value <= MAX_FRACTION:
        raise InputError(f"{text!r} is not a percentage: write it like 2% or 0.02")
    return value


def fraction_list(text: str) -> tuple[float, ...]:
    """Parse an ascending comma list of shares such as `0.5%,5%`; raise InputError for others."""
    found = tuple(map(fraction, text.split(",")))
    if any(low >= high for low, high in pairwise(found)) or found[-1] > 1:
        raise InputError(
            f"{text!r}: shares ascend and are at most 100%: write them like 0.5%,5%,10%"
        )
    return found


def require_image_suffix(path: Path, option: str, allow_both: bool = False) -> None:
    """Raise UsageError for a file name that does not end in .svg or .png.

    allow_both      whether a name without suffix is allowed, too, for both kinds
    """
    if path.suffix in (".svg", ".png") or (allow_both and not path.suffix):
        return
    without = ", or has no suffix for both" if allow_both else ""
    raise UsageError(f"{option} {path}: the name of a picture ends in .svg or .png{without}")


def name_list(text: str) -> tuple[str, ...]:
    """Parse a comma list of names."""
    return tuple(part.strip() for part in text.split(","))


def collective(text: str) -> Collective:
    """Parse the name of a collective; raise InputError with the known ones for another name."""
    try:
        return Collective(text)
    except ValueError:
        raise InputError(unknown_name("collective", text, Collective)) from None


def parameter(text: str) -> tuple[str, int]:
    """Parse a parameter such as `segment=64KiB` or `radix=4`; raise InputError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} is not a parameter: write it like segment=64KiB or radix=4")
    return name, parse_size(value)
