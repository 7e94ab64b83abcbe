"""Quantities of SimGrid's platforms, such as `1.25Gbps`, `125MBps` and `50us`.

Source: src/xbt/xbt_parse_units.cpp of SimGrid 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from tuner.base.errors import InputError, shortened_repr
from tuner.topology.readers.safe_xml import XmlElement

MAX_CORES = 1 << 16  # of a host
MAX_BANDWIDTH = 10**18  # bytes per second; no link comes near it
MAX_SECONDS = 3600  # of a latency
PREFIXES = {letter: Fraction(1000) ** n for n, letter in enumerate(("", *"kMGTPEZY"))}
PREFIXES |= {f"{letter}i": Fraction(1024) ** n for n, letter in enumerate("KMGTPEZY", 1)}
BANDWIDTHS = {f"{prefix}Bps": factor for prefix, factor in PREFIXES.items()}
BANDWIDTHS |= {f"{prefix}bps": factor / 8 for prefix, factor in PREFIXES.items()}
TIMES = {f"{letter}s": 1 / Fraction(1000) ** n for n, letter in enumerate(("", *"munp"))}
TIMES |= {"m": Fraction(60), "h": Fraction(3600), "d": Fraction(86400), "w": Fraction(604800)}
QUANTITY = re.compile(
    r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})((?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]*)"
)


def bandwidth(element: XmlElement, key: str, count: int = 1) -> float:
    """Return the bytes per second of so many links; without a unit they are bytes per second.

    Raises InputError naming the element, also for a bandwidth of zero.
    """
    value = count * _quantity(element, key, BANDWIDTHS, ("Bps", "125MBps or 1Gbps", MAX_BANDWIDTH))
    if not value:
        raise InputError(f"{element}: {key}: a bandwidth of zero moves nothing")
    return float(value)


def seconds(element: XmlElement, key: str) -> float:
    """Return the seconds of a time, 0 where it is not given; without a unit they are seconds.

    Raises InputError naming the element.
    """
    if not element.attributes.get(key):
        return 0.0
    return float(_quantity(element, key, TIMES, ("s", "50us", MAX_SECONDS)))


def cores(element: XmlElement) -> int:
    """Return the number of cores of a host, 1 where it is not given.

    Raises InputError naming the element.
    """
    number = element.int_attribute("core", 1, MAX_CORES)
    if not number:
        raise InputError(f"{element}: core must be 1 to {MAX_CORES}, not 0")
    return number


def _quantity(
    element: XmlElement, key: str, units: Mapping[str, Fraction], form: tuple[str, str, int]
) -> Fraction:
    """Return a quantity; the form is the unit where none is written, an example, and the limit."""
    default, example, most = form
    text = element.attributes.get(key, "")
    found = QUANTITY.fullmatch(text.strip())
    unit = units.get(found[3] or default) if found else None
    if found is None or unit is None:
        raise InputError(f"{element}: {key} is written like {example}, not {shortened_repr(text)}")
    value = Fraction(found[1] + found[2]) * unit
    if value > most:
        raise InputError(
            f"{element}: {key} is at most {most:g}{default}, not {shortened_repr(text)}"
        )
    return value
