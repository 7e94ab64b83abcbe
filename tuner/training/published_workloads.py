"""The workloads of the literature, whose published results predictions are compared with."""

from __future__ import annotations

from functools import cache
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.resources import data_directory
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.topology.readers.safe_yaml import read_yaml

FOLDER = "docs/examples/training"
PUBLISHED_PREFIX = "published:"  # of names of machines that have no preset


@cache
def published_workloads() -> dict[str, dict[str, Any]]:
    """Return the records of the workloads with published results, by their names.

    The topology of each is `preset:NAME`, or `published:NAME` for `published_machine`.
    """
    files = sorted(data_directory(FOLDER).glob("*.yaml"))
    records = {path.stem: read_yaml(path) for path in files}
    return {name: _named(record) for name, record in records.items() if "published" in record}


def published_machine(reference: str) -> Any:
    """Return the record of the machine `published:NAME`; raise InputError for an unknown one."""
    name = reference.removeprefix(PUBLISHED_PREFIX)
    known = {record["topology"] for record in published_workloads().values()}
    if reference not in known:
        names = sorted(one for one in known if one.startswith(PUBLISHED_PREFIX))
        raise InputError(f"expected one of {', '.join(names)}, got {shortened_repr(reference)}")
    return read_yaml(data_directory(FOLDER) / f"{name}.yaml")


def _named(record: dict[str, Any]) -> dict[str, Any]:
    topology = str(record["topology"])
    if topology.startswith(PRESET_PREFIX):
        return record
    return {**record, "topology": PUBLISHED_PREFIX + topology.removesuffix(".yaml")}
