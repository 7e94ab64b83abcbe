"""Sizes, times and rates as people write and read them."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.base.errors import InputError
from tuner.base.units import (
    format_exact_size,
    format_range,
    format_size,
    format_time,
    humanize,
    parse_bandwidth,
    parse_duration,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65536),
        ("1.5MiB", 1572864),
        ("1 kB", 1000),
        ("2GiB", 2**31),
        ("22.6KiB", 23144),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "0.3KiB", "64k", "1e400", "NaN", "64 KiB s", None, []]
)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(InputError, match="write it like 64KiB"):
        parse_size(text)


def test_times_and_rates() -> None:
    assert parse_time("2us") == pytest.approx(2e-6)
    assert parse_time("10min") == parse_duration("10min") == 600.0
    with pytest.raises(InputError, match="write it like 90s, 10min, 2h or 30d"):
        parse_duration("10m")
    assert parse_bandwidth("12.5GB/s") == 12.5e9
    assert parse_bandwidth("100Gb/s") == 12.5e9
    for parse, text in ((parse_time, "2"), (parse_bandwidth, "12.5"), (parse_bandwidth, "0GB/s")):
        with pytest.raises(InputError, match="write it like"):
            parse(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0B"),
        (404, "404B"),
        (1023, "1023B"),
        (65536, "64KiB"),
        (23168, "22.6KiB"),
        (1536, "1.50KiB"),
        (1572864, "1.50MiB"),
        (1000 * 1024, "1000KiB"),
        (10236, "10.0KiB"),
        (2**20 - 1, "1.00MiB"),
        (2**40, "1TiB"),
        (2965820, "2.83MiB"),
        (2**50, "1024TiB"),
    ],
)
def test_sizes_for_people_have_three_significant_figures(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@given(st.integers(0, 2**50))
def test_sizes_that_people_read_can_be_typed(nbytes: int) -> None:
    read = parse_size(format_size(nbytes))
    assert abs(read - nbytes) <= 0.005 * nbytes + 2  # three figures, then a multiple of 4
    assert read == nbytes or read % 4 == 0  # as probes want it
    assert len(re.sub(r"^0\.|\D", "", format_size(nbytes))) <= 4


@given(st.integers(0, 2**50))
def test_exact_sizes_survive_being_written(nbytes: int) -> None:
    assert parse_size(format_exact_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("lo", "hi", "text"),
    [
        (0, math.inf, "all"),
        (0, 4096, "below 4KiB"),
        (23168, math.inf, "from 22.6KiB"),
        (4096, 1 << 20, "4KiB to 1MiB"),
    ],
)
def test_ranges_of_sizes(lo: float, hi: float, text: str) -> None:
    assert format_range(lo, hi) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("collective bcast p=3 65536 B", "collective bcast p=3 64KiB"),
        ("binomial(segment=8192)", "binomial (segment=8KiB)"),
        (
            "chain(chains=4, segment=131072) via schedule",
            "chain (chains=4, segment=128KiB) via schedule",
        ),
        ("ring", "ring"),
        ("20 Bcasts of (3) at 12 B/s", "20 Bcasts of (3) at 12 B/s"),
        ("up to 1024 B messages queue", "up to 1KiB messages queue"),
    ],
)
def test_technical_names_become_readable(text: str, shown: str) -> None:
    assert humanize(text) == shown


def test_times_are_readable() -> None:
    assert [format_time(t) for t in (1.5, 2.5e-3, 12.34e-6, 5e-9)] == [
        "1.5s",
        "2.5ms",
        "12.3us",
        "5ns",
    ]
    assert format_size(math.inf) == "inf"
