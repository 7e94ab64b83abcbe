"""Open MPI: its classic rules file for 4.1 and 5.x, its JSON rules from 6.0 on."""

from tuner.export.openmpi import han
from tuner.export.openmpi.emitter import check, check_json, emit, emit_json
from tuner.export.openmpi.parser import parse
from tuner.export.openmpi.rules import Rules, decide

__all__ = [
    "Rules",
    "check",
    "check_json",
    "decide",
    "emit",
    "emit_json",
    "han",
    "parse",
]
