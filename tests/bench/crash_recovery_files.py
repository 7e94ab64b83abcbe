"""SIGKILL while files are being stored.

    python -m tests.bench.crash_recovery_files [KILLS] [DIRECTORY]

Fifty times by default, on SQLite and, where its programs are installed, on PostgreSQL. After every
kill the database must open, hold everything that was acknowledged, and nothing twice; in the end
every file must come out as it went in. Prints what was seen; fails with a traceback.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.databases import Fresh, kinds
from tests.support.kills import files, kill_and_look

KILLS, FILES, SERIES, CHUNK, SECONDS = 50, 8, 10_000, 1000, 1.0


def fifty(kind: str, kills: int, paths: list[Path], fresh: Fresh) -> None:
    """One database after the other, until there were enough kills."""
    killed = amid = databases = 0
    while killed < kills:
        with fresh() as url:
            found = kill_and_look(url, paths, kills - killed, CHUNK, SECONDS, databases)
        killed, amid, databases = killed + found.kills, amid + found.amid, databases + 1
    print(
        f"{kind}: {killed} kills, {amid} of them with a file partly stored, {databases} databases"
        f" of {FILES} x {SERIES} series: nothing lost, nothing twice",
        flush=True,
    )


def main(kills: int, directory: Path) -> None:
    """Both kinds of database."""
    paths = files(directory / "files", FILES, SERIES)
    for kind, fresh in kinds(directory):
        fifty(kind, kills, paths, fresh)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tuner-kills-") as scratch:
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else KILLS,
            Path(sys.argv[2] if len(sys.argv) > 2 else scratch),
        )
