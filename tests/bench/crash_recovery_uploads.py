"""The service killed while files are uploaded to it.

    python -m tests.bench.crash_recovery_uploads [KILLS]

Fifty times by default, on SQLite and, where its programs are installed, on PostgreSQL. In each
round several clients send files, small ones and such as the service hands to a process of its own,
and one that was acknowledged before; the service is killed (SIGKILL) at a random moment. After
every kill the database must open and hold everything that was acknowledged, and nothing twice. In
the end every file is sent again, and must come out as it went in.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from tests.service.serving import good, serving
from tests.support.databases import kinds
from tests.support.kills import Kills, files, look, note, require_all
from tests.support.waiting import until

KILLS, SECONDS = 50, 3.0  # each after up to so many
SMALL, LARGE = 2_000, 40_000  # series of a file, of which each round sends two and two
SENDERS = 4


def sent(client: httpx.Client, path: Path) -> int | None:
    """The id of a file, once the service has acknowledged it; None when it did not."""
    with suppress(httpx.TransportError):
        answer = client.post("/v1/measurements", content=path.read_bytes())
        if answer.status_code in (200, 201):
            return int(answer.json()["id"])
    return None


def all_sent(
    client: httpx.Client, paths: Sequence[Path], places: Iterable[int]
) -> list[tuple[int, int]]:
    """(place, id) of those that were acknowledged, several at the same time."""
    chosen = list(places)
    with ThreadPoolExecutor(SENDERS) as senders:
        numbers = senders.map(lambda place: sent(client, paths[place]), chosen)
        answers = zip(chosen, numbers, strict=True)
        return [(place, number) for place, number in answers if number is not None]


def rounds(url: str, paths: Sequence[Path], kills: int) -> Kills:
    """One kill each, with files of its own."""
    found, draw = Kills(), random.Random(kills)
    for kill in range(kills):
        known = list(found.acknowledged)
        places = [4 * kill + i for i in draw.sample(range(4), 4)]
        places += [draw.choice(known)] if known else []
        with serving(url, "--no-jobs") as program, ThreadPoolExecutor(1) as beside:
            answered = beside.submit(all_sent, program.client, paths, places)
            time.sleep(draw.uniform(0, SECONDS))
            program.kill()
            note(found, answered.result())
        found.kills += 1
        look(url, paths, found)
    return found


def main(kills: int, directory: Path) -> None:
    """Both kinds of database."""
    paths = [
        path
        for kill in range(kills)
        for size, series in enumerate((SMALL, LARGE))
        for path in files(directory / "files", 2, series, 4 * kill + 2 * size)
    ]
    for kind, fresh in kinds(directory):
        with fresh() as url:
            found = rounds(url, paths, kills)
            early = len(found.acknowledged)
            with serving(url, "--no-jobs") as program:
                missing = set(range(len(paths))) - {*found.acknowledged}
                until(lambda: good(program.client.get("/v1/ready")))
                while missing:  # whoever died with a file in hand keeps it for some seconds
                    note(found, all_sent(program.client, paths, missing))
                    missing -= {*found.acknowledged}
            require_all(url, paths, found)
        print(
            f"{kind}: {found.kills} kills, {found.amid} of them with a file partly stored;"
            f" {early} of {len(paths)} files were acknowledged before: nothing lost, nothing"
            " twice",
            flush=True,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tuner-kills-") as scratch:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS, Path(scratch))
