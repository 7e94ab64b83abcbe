"""A workload's file with the settings that a search has found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tuner.base.units import format_exact_size
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.topology.readers.safe_yaml import read_yaml
from tuner.training.policies import FastestKnown
from tuner.training.search import COUNTS, TunedTraining
from tuner.training.workload_settings import BEST, DEFAULT

FILE_KEYS = ("topology", "calibration", "defaults", "algorithms")
NAMES = (BEST, DEFAULT)  # values of `algorithms` that are no files


def tuned_workload_text(path: Path, found: TunedTraining, target: Path) -> str:
    """Return the YAML of a workload with the settings found.

    path        file of the workload as it was given
    target      file that the text is written to, whose directory names of files become relative to
    """
    record: dict[str, Any] = dict(read_yaml(path))
    entry = record["framework"]
    given = {"name": entry} if isinstance(entry, str) else dict(entry)
    changed = {name: _written(name, value) for name, value in found.changed.items()}
    record["framework"] = {**given, **changed}
    if isinstance(found.workload.policy, FastestKnown) and not isinstance(
        record.get("algorithms"), list
    ):
        record["algorithms"] = BEST
    moved = os.path.relpath(path.resolve().parent, target.resolve().parent)
    return yaml.safe_dump(_with_moved_files(record, moved), sort_keys=False, width=100)


def _written(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return f"{value * 1e3:g}ms"
    if isinstance(value, bool) or not isinstance(value, int) or name in COUNTS:
        return value
    return format_exact_size(value)


def _with_moved_files(record: Mapping[str, Any], moved: str) -> dict[str, Any]:
    """Return the record with names of files relative to another directory."""

    def name(text: str) -> str:
        return os.path.normpath(Path(moved) / text)

    changed = dict(record)
    for key in FILE_KEYS:
        text = record.get(key)
        if isinstance(text, str) and text not in NAMES and not text.startswith(PRESET_PREFIX):
            changed[key] = name(text)
    model = record.get("model")
    if isinstance(model, dict) and "file" in model:
        changed["model"] = {**model, "file": name(str(model["file"]))}
    return changed
