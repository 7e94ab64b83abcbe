"""UCC's configuration file `ucc.conf`, and the TUNE strings in it."""

from tuner.formats.ucc.emitter import check, emit
from tuner.formats.ucc.file import Section, Team, UccConfig, decide, parse, read
from tuner.formats.ucc.tune_strings import TuneToken, parse_tune

__all__ = [
    "Section",
    "Team",
    "TuneToken",
    "UccConfig",
    "check",
    "decide",
    "emit",
    "parse",
    "parse_tune",
    "read",
]
