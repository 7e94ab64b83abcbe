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
PREFIXES = {letter: Fraction(10) ** (3 * n) for n, letter in enumerate("kMGTPEZY", 1)}
PREFIXES |= {f"{letter}i": Fraction(2) ** (10 * n) for n, letter in enumerate("KMGTPEZY", 1)}
PREFIXES[""] = Fraction(1)
BANDWIDTHS = {f"{prefix}Bps": factor for prefix, factor in PREFIXES.items()}
BANDWIDTHS |= {f"{prefix}bps": factor / 8 for prefix, factor in PREFIXES.items()}
TIMES = {
    "w": Fraction(7 * 24 * 3600),
    "d": Fraction(24 * 3600),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "ps": Fraction(1, 10**12),
}
QUANTITY = re.compile(
    r"([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})((?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]*)"
)


def bandwidth(element: XmlElement, key: str, count: int = 1) -> float:
    """Return the bytes per second of so many links; without a unit they are bytes per second.

    Raises InputError naming the element, also for a bandwidth of zero.
    """
    value = count * _quantity(element, key, BANDWIDTHS, "Bps", "125MBps or 1Gbps")
    if not value:
        raise InputError(f"{element}: {key}: a bandwidth of zero moves nothing")
    return float(value)


def seconds(element: XmlElement, key: str) -> float:
    """Return the seconds of a time, 0 where it is not given; without a unit they are seconds.

    Raises InputError naming the element.
    """
    if not element.attributes.get(key):
        return 0.0
    return float(_quantity(element, key, TIMES, "s", "50us"))


def _quantity(
    element: XmlElement, key: str, units: Mapping[str, Fraction], default: str, example: str
) -> Fraction:
    text = element.attributes.get(key, "")
    found = QUANTITY.fullmatch(text.strip())
    unit = units.get(found[3] or default) if found else None
    if found is None or unit is None:
        raise InputError(f"{element}: {key} is written like {example}, not {shortened_repr(text)}")
    return Fraction(found[1] + found[2]) * unit
