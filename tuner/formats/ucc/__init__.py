"""UCC: its `ucc.conf`, and the TUNE strings in it."""

from tuner.formats.ucc.emitter import check, emit
from tuner.formats.ucc.file import Conf, Section, Team, decide, parse
from tuner.formats.ucc.tune import Token, parse_tune

__all__ = ["Conf", "Section", "Team", "Token", "check", "decide", "emit", "parse", "parse_tune"]
