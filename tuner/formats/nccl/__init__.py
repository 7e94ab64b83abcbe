"""The CSV that tuner plugins of NCCL 2.21 and later and RCCL read, and our own plugin."""

from tuner.formats.nccl.csv_rules import COLLECTIVES, CsvRule, PluginCall, decide, parse, read
from tuner.formats.nccl.emitter import check, emit, emit_sparse, fallback_of, fallback_rule_count
from tuner.formats.nccl.plugin import Installed, install

__all__ = [
    "COLLECTIVES",
    "CsvRule",
    "Installed",
    "PluginCall",
    "check",
    "decide",
    "emit",
    "emit_sparse",
    "fallback_of",
    "fallback_rule_count",
    "install",
    "parse",
    "read",
]
