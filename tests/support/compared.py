"""`tuner compare` with a table of one variable: programs see TUNED=1 where they follow it."""

from __future__ import annotations

import sys

from tuner.cli.commands import compare
from tuner.cli.main import main
from tuner.preload.preparation import Preparation

if __name__ == "__main__":
    compare.__dict__["prepare"] = lambda *_: Preparation({"TUNED": "1"}, "", "a table")
    sys.exit(main(["compare", *sys.argv[1:]]))
