"""Open MPI's classic rules file for 4.1 and 5.x, and its JSON rules from 6.0 on."""

from tuner.formats.openmpi import han, read_rules
from tuner.formats.openmpi.emitter import check, check_json, emit, emit_json
from tuner.formats.openmpi.rules import ClassicRules, decide
from tuner.formats.openmpi.rules_parser import parse

__all__ = [
    "ClassicRules",
    "check",
    "check_json",
    "decide",
    "emit",
    "emit_json",
    "han",
    "parse",
    "read_rules",
]
