"""Killing a process that stores files, again and again, and looking at what is left."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Engine, text

from tests.support.children import PAUSED, Child, ingest_files
from tests.support.stored import measurements_file, probe
from tests.support.waiting import be_slow
from tuner import db

PIECES = 10  # after at most so many of one or two files a child pauses


@dataclass
class Kills:
    """What became of it."""

    kills: int = 0
    amid: int = 0  # killed while a file was partly stored
    acknowledged: dict[int, int] = field(default_factory=dict)  # place of a file -> its id


def files(directory: Path, number: int, series: int, first: int = 0) -> list[Path]:
    """Measurements files that differ, numbered from `first` on."""
    directory.mkdir(exist_ok=True)
    content = probe(series)
    return [
        measurements_file(directory / f"{i}.ndjson", replace(content, provenance={"file": i}))
        for i in range(first, first + number)
    ]


def kill_and_look(
    url: str, paths: Sequence[Path], kills: int, chunk: int, seconds: float, seed: int
) -> Kills:
    """Kill `kills` times, or until everything is stored; then let it finish.

    Every other kill hits a child that has stored a part of a file and pauses in the transaction of
    the next piece. The others come after up to `seconds`, whatever the child does then; such a
    child stores at most two more files, so that much is left for the next one. After each kill the
    database must open, hold all that was acknowledged, and nothing twice.
    """
    rng, found, pauses = random.Random(seed), Kills(), True
    while found.kills < kills and len(found.acknowledged) < len(paths):
        if pauses:
            _kill_paused(url, paths, chunk, rng, found)
        else:
            few = paths[: len(found.acknowledged) + 2]
            _kill_later(url, few, chunk, rng.uniform(0, seconds), found)
        look(url, paths, found)
        pauses = not pauses
    child = Child(ingest_files, url, paths, chunk)
    note(found, child.everything()[1:])
    assert child.end() == 0
    require_all(url, paths, found)
    return found


def _kill_paused(
    url: str, paths: Sequence[Path], chunk: int, rng: random.Random, found: Kills
) -> None:
    child = Child(ingest_files, url, paths, chunk, rng.randint(1, PIECES))
    assert child.next_word() == "begun"
    words = list(itertools.takewhile(lambda word: word != PAUSED, iter(child.next_word, None)))
    note(found, words)
    child.kill()
    found.kills += child.end() != 0  # unless it has stored everything


def _kill_later(url: str, paths: Sequence[Path], chunk: int, seconds: float, found: Kills) -> None:
    child = Child(ingest_files, url, paths, chunk)
    assert child.next_word() == "begun"
    be_slow(seconds)  # killed at any moment, whatever it does then
    child.kill()
    note(found, child.everything())
    found.kills += child.end() != 0


def note(found: Kills, words: Iterable[tuple[int, int]]) -> None:
    """These files are acknowledged under these ids: a file that was so before has the same one."""
    for place, number in words:
        assert found.acknowledged.setdefault(place, number) == number


def look(url: str, paths: Sequence[Path], found: Kills) -> None:
    """The database opens, holds all that was acknowledged, and nothing twice."""
    engine = db.open_database(url)
    with db.read_session(engine) as session:
        if engine.dialect.name == "sqlite":
            assert session.scalar(text("pragma integrity_check")) == "ok"
        seen = db.list_measurements(session, limit=len(paths) + 1).items
        partly = session.scalar(
            text("select count(*) from probes where series_count > 0 and author is not null")
        )
        twice = text(
            "select count(*) from (select 1 from series group by probe_id, ordinal"
            " having count(*) > 1) as repeated"
        )
        assert session.scalar(twice) == 0
        for each in seen:
            stored = text("select count(*) from series where probe_id = :id")
            assert session.scalar(stored, {"id": each.id}) == each.series
    engine.dispose()
    files_seen = [each.provenance["file"] for each in seen]
    assert len(set(files_seen)) == len(files_seen)
    assert {each.id for each in seen} >= set(found.acknowledged.values())
    found.amid += bool(partly)


def require_all(url: str, paths: Sequence[Path], found: Kills) -> None:
    """Every file comes out as it went in, and there is nothing else."""
    assert sorted(found.acknowledged) == list(range(len(paths)))
    look(url, paths, found)
    engine = db.open_database(url)
    for place, number in found.acknowledged.items():
        assert "".join(db.measurement_lines(engine, number)) == paths[place].read_text()
    _nothing_else(engine, len(paths))
    engine.dispose()


def _nothing_else(engine: Engine, probes: int) -> None:
    with db.read_session(engine) as session:
        assert session.scalar(text("select count(*) from probes")) == probes
        assert session.scalar(text("select count(*) from probes where author is not null")) == 0
