"""The machines, parts and GPU products that come with the package, as YAML files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.machines.gpus import GpuSpec, parse_gpus
from tuner.topology.readers.safe_yaml import read_yaml

DATA_DIR = Path(__file__).parent
PRESETS = tuple(sorted(path.stem for path in (DATA_DIR / "presets").glob("*.yaml")))
OWN_KEYS = ("accuracy",)  # of a machine as it is, not of one with changes
MERGED_KEYS = ("interior", "offers", "reductions", "parts", "gpus")  # key by key


def preset_path(name: str) -> Path:
    """Return the file of a preset."""
    return DATA_DIR / "presets" / f"{name}.yaml"


def _load(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = read_yaml(path)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    return record


@cache
def known_parts() -> dict[str, Any]:
    """Return the parts that machines share, by name."""
    return _load(DATA_DIR / "parts.yaml")


@cache
def assumed_record() -> dict[str, Any]:
    """Return the YAML of the costs that are assumed of machines whose file has none."""
    return _load(DATA_DIR / "assumed.yaml")


@cache
def known_gpus() -> dict[str, GpuSpec]:
    """Return the GPU products by name."""
    return parse_gpus(_load(DATA_DIR / "gpus.yaml"), known_parts())


@cache
def preset_record(name: str) -> dict[str, Any]:
    """Return the YAML of a preset, complete; raise InputError for an unknown name."""
    if name not in PRESETS:
        raise InputError(unknown_name("preset", name, PRESETS))
    record = _load(preset_path(name))
    return apply_changes(record) if "preset" in record else record


def apply_changes(record: dict[str, Any]) -> dict[str, Any]:
    """Return the YAML of the preset that a record names, with the record's other keys.

    The keys of `MERGED_KEYS`, and of each kind of memory in `paths`, replace those of the preset
    one by one; all others are replaced as a whole. Raises InputError for an unknown preset.
    """
    base, changes = preset_record(record["preset"]), dict(record)
    del changes["preset"]
    merged = {key: base[key] for key in base if key not in OWN_KEYS} | changes
    for key in MERGED_KEYS:
        merged = _merge_key(merged, base, changes, key)
    if isinstance(changes.get("paths"), dict):
        merged["paths"] = base["paths"] | changes["paths"]
        for memory in base["paths"]:
            merged["paths"] = _merge_key(merged["paths"], base["paths"], changes["paths"], memory)
    return merged


def _merge_key(
    merged: dict[str, Any], base: dict[str, Any], changes: dict[str, Any], key: str
) -> dict[str, Any]:
    """Return `merged` with the mappings that both have at a key joined."""
    if isinstance(base.get(key), dict) and isinstance(changes.get(key), dict):
        return {**merged, key: base[key] | changes[key]}
    return merged
