"""Small workloads of training, on a machine that we made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.training.workload import Workload, workload_from_record

FLAT = {
    "name": "flat",
    "nodes": 8,
    "latency": "2us",
    "bandwidth": "3GB/s",
    "cores": 8,
    "local": {"latency": "300ns", "bandwidth": "10GB/s"},
}
RECORD: dict[str, Any] = {
    "name": "AlexNet on eight nodes",
    "model": "alexnet",
    "batch": 16,
    "rate": 500,
    "framework": "ddp",
    "topology": FLAT,
    "ranks": [1, 4, 8],
    "algorithms": ["ring", "recursive_doubling"],
}


def workload(**changed: Any) -> Workload:
    """Return the workload with some keys changed; keys that become None are left out."""
    record = {key: value for key, value in {**RECORD, **changed}.items() if value is not None}
    return workload_from_record(record, Path("/nonexistent"))
