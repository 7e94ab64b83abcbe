"""NCCL 2.21 and later, and RCCL: the CSV that tuner plugins read, and a plugin of our own."""

from tuner.formats.nccl.csv_rules import Call, Row, decide, parse
from tuner.formats.nccl.emitter import check, emit, emit_sparse, otherwise_of, replaced
from tuner.formats.nccl.plugin import Installed, install

__all__ = [
    "Call",
    "Installed",
    "Row",
    "check",
    "decide",
    "emit",
    "emit_sparse",
    "install",
    "otherwise_of",
    "parse",
    "replaced",
]
