"""Run a command whose ranks get variables: `... tests.support.prepared NAME=VALUE -- COMMAND`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tuner.preload.command import rank_command

SUPPORT = Path(__file__).parent
SHOWS = SUPPORT / "show_variables.py"
NAMES = ("LD_PRELOAD", "TUNER_FLAT_TABLE", "OMPI_MCA_coll_tuned_use_dynamic_rules")
AWKWARD = "/with a space/comma,semicolon;equals=.flat"


def compile_words(library: Path, record: Path) -> list[str]:
    """Return the command that compiles the library whose loading leaves files in `record`."""
    source = str(SUPPORT / "record_loading.c")
    return ["cc", "-shared", "-fPIC", f'-DRECORD="{record}"', "-o", str(library), source]


if __name__ == "__main__":
    dashes = sys.argv.index("--")
    given = dict(word.split("=", 1) for word in sys.argv[1:dashes])
    made = rank_command(sys.argv[dashes + 1 :], given)
    os.execvpe(made.words[0], made.words, made.environment)
