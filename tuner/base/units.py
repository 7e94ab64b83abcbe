"""Parsing and formatting of sizes, times and rates.

Inside the program a quantity is a plain number of bytes, seconds or bytes per second.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from tuner.base.errors import InputError, shortened_repr

SIZE_UNITS = {
    "": 1,
    "B": 1,
    "KiB": 2**10,
    "KB": 2**10,  # as benchmarks of MPI and NCCL mean it
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
TIME_UNITS = {"min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
DURATION_UNITS = TIME_UNITS | {"h": 3600.0, "d": 86400.0}
BIT_RATE_UNITS = {"Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8}
BANDWIDTH_UNITS = {
    f"{unit}/s": factor for unit, factor in SIZE_UNITS.items() if unit not in ("", "KB")
} | BIT_RATE_UNITS
FLOAT_BYTES = 4  # parsed rounded sizes are multiples of this
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")
_PARAMETERS = re.compile(r"(?<=\w)\((?=\w+=)")
_EXACT = re.compile(r"(?<![\w.+-])(segment=)?([0-9]+)(?(1)(?!\w)| ?B(?![\w/]))")


def _parse(text: object, units: dict[str, float], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) else None
    if match is None or match[2] not in units:
        raise InputError(f"{shortened_repr(text)} is not a {what}: write it like {example}")
    value = float(match[1]) * units[match[2]]
    if not math.isfinite(value):
        raise InputError(
            f"{shortened_repr(text)} is too large for a {what}: write it like {example}"
        )
    return value


def parse_size(text: object) -> int:
    """Return the bytes of `64KiB`, `1.5MiB` or `4096`; raise InputError for anything else.

    A size that `format_size` rounded, such as `22.6KiB`, is rounded to a multiple of `FLOAT_BYTES`.
    """
    value = _parse(text, SIZE_UNITS, "size", "64KiB")
    if value == int(value):
        return int(value)
    if value < SIZE_UNITS["KiB"]:
        raise InputError(
            f"{shortened_repr(text)} is not a whole number of bytes: write it like 64KiB"
        )
    return FLOAT_BYTES * round(value / FLOAT_BYTES)


def parse_time(text: object) -> float:
    """Return the seconds of `2us`; the unit is mandatory. Raises InputError for anything else."""
    return _parse(text, TIME_UNITS, "time", "2us")


def parse_duration(text: object) -> float:
    """Return the seconds of `90s`, `10min`, `2h` or `30d`; the unit is mandatory.

    Raises InputError for anything else.
    """
    return _parse(text, DURATION_UNITS, "time", "90s, 10min, 2h or 30d")


def parse_bandwidth(text: object) -> float:
    """Return the bytes per second of `12.5GB/s` or `100Gb/s`.

    Raises InputError for anything else and for zero.
    """
    rate = _parse(text, BANDWIDTH_UNITS, "bandwidth", "12.5GB/s or, in bits, 100Gb/s")
    if rate == 0:
        raise InputError("a bandwidth of zero moves nothing: write it like 12.5GB/s or 100Gb/s")
    return rate


def is_line_rate(text: object) -> bool:
    """Return whether a bandwidth is written in bits per second, as the line rates of ports are."""
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    return match is not None and match[2] in BIT_RATE_UNITS


def format_size(nbytes: float) -> str:
    """Return a size to three significant figures, as `404B` or `22.6KiB`; `64KiB` if exact."""
    if math.isinf(nbytes):
        return "inf"
    size = int(nbytes)
    if size < SIZE_UNITS["KiB"]:
        return f"{size}B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value = size / SIZE_UNITS[unit]
        if value < SIZE_UNITS["KiB"] and value.is_integer():
            return f"{value:.0f}{unit}"
        if float(f"{value:.3g}") < 1000:
            return f"{value:#.3g}".rstrip(".") + unit
    return f"{value:.0f}{unit}"


def format_exact_size(nbytes: float) -> str:
    """Return a size to the byte: `64KiB`, `23168B`, `inf`."""
    if math.isinf(nbytes):
        return "inf"
    for unit in ("GiB", "MiB", "KiB"):
        if nbytes >= SIZE_UNITS[unit] and nbytes % SIZE_UNITS[unit] == 0:
            return f"{int(nbytes // SIZE_UNITS[unit])}{unit}"
    return f"{int(nbytes)}B"


def format_range(lo: float, hi: float) -> str:
    """Return the sizes from `lo` to below `hi` as `64KiB to 1MiB`, `below 4KiB` or `from 1MiB`."""
    first, end = format_size(lo), format_size(hi)
    if math.isinf(hi):
        return f"from {first}" if lo else "all"
    return f"{first} to {end}" if lo else f"below {end}"


def humanize(text: str) -> str:
    """Return a text with sizes for people.

    `p=4 23168 B` becomes `p=4 22.6KiB`, and `ring(segment=65536)` becomes `ring (segment=64KiB)`.
    """
    sized = _EXACT.sub(lambda found: f"{found[1] or ''}{format_size(int(found[2]))}", text)
    return _PARAMETERS.sub(" (", sized)


def format_time(seconds: float) -> str:
    """Return a time to three significant digits, as `12.3us`."""
    for unit in ("s", "ms", "us"):
        if abs(seconds) >= TIME_UNITS[unit]:
            return f"{seconds / TIME_UNITS[unit]:.3g}{unit}"
    return f"{seconds / TIME_UNITS['ns']:.3g}ns"


def format_timestamp(moment: datetime, timespec: str = "seconds") -> str:
    """Return a moment as `2027-01-31T12:00:00Z`, UTC in RFC 3339.

    timespec    as in `datetime.isoformat`
    """
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def format_sizes(sizes: Sequence[int]) -> str:
    """Return sizes as `4B, 1KiB`, or three and more as `15 sizes, 4B .. 4MiB`."""
    if len(sizes) < 3:
        return ", ".join(map(format_size, sizes))
    return f"{len(sizes)} sizes, {format_size(sizes[0])} .. {format_size(sizes[-1])}"


def plural(number: int, noun: str) -> str:
    """Return a count with its noun, as `1 host` or `2 hosts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
