"""UCC: its `ucc.conf`, and the TUNE strings in it."""

from tuner.export.ucc.emitter import check, emit
from tuner.export.ucc.file import Conf, Section, Team, decide, parse
from tuner.export.ucc.tune import Token, parse_tune

__all__ = [
    "Conf",
    "Section",
    "Team",
    "Token",
    "check",
    "decide",
    "emit",
    "parse",
    "parse_tune",
]
