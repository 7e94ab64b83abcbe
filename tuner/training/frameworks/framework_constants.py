"""The constants of frameworks, from `constants.yaml`, where each has its source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from tuner.base.units import parse_bandwidth, parse_size, parse_time


@cache
def _record() -> dict[str, dict[str, dict[str, Any]]]:
    text = files("tuner.training.frameworks").joinpath("constants.yaml").read_text("utf-8")
    record: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return record


def constant_bytes(framework: str, name: str) -> int:
    """Return a constant of a framework in bytes."""
    return parse_size(_record()[framework][name]["value"])


def constant_seconds(framework: str, name: str) -> float:
    """Return a constant of a framework in seconds."""
    return parse_time(_record()[framework][name]["value"])


def constant_rate(framework: str, name: str) -> float:
    """Return a constant of a framework in bytes per second."""
    return parse_bandwidth(_record()[framework][name]["value"])


def constant_source(framework: str, name: str) -> str:
    """Return a constant of a framework with its certainty and source, for people."""
    entry = _record()[framework][name]
    return f"{entry['value']} ({entry['certainty']}: {entry['source']})"
