"""Names of files that `tuner quickstart` writes, by which other commands find them."""

from pathlib import Path

OUT = Path("tuner-out")  # directory, unless --out names another
REPORT = "report.html"
DATABASE = "tuner.sqlite"
