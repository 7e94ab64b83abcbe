"""Storing many measurements: python -m tests.bench.measurement_storage [SERIES] [SAMPLES] [URL]

Writes a measurements file (1,000,000 series of 10 samples unless told otherwise), stores it in a
new SQLite file or in the database of the URL, and times what people then ask: the list of
measurements, a filtered page of series, and which algorithm the published table has for a call.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tests.support.stored import CLUSTER, LIBRARY, table
from tuner import db
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, end_line, header_line, series_line
from tuner.core.table import RuleKey

SERIES = 1_000_000
SAMPLES = 10
REPETITIONS = 200
COLLECTIVES = ("allgather", "allreduce", "bcast", "gather", "reduce", "scatter")
ALGORITHMS = ("default", "linear", "binomial", "chain", "pipeline", "ring", "rabenseifner")
RANKS, SIZES = range(2, 66), [4 << exponent for exponent in range(21)]


def series(samples: int) -> Iterator[Measurement]:
    """As a probe writes them: launch by launch, point by point, algorithm by algorithm."""
    rng = random.Random(1)
    points = product(range(10**6), COLLECTIVES, RANKS, SIZES, ALGORITHMS)
    for launch, collective, p, nbytes, algorithm in points:
        times = tuple(rng.random() * 1e-5 for _ in range(samples))
        yield Measurement(
            "collective",
            collective,
            1,
            p,
            p,
            nbytes,
            times,
            algorithm,
            {"segment": 4096},
            launch=launch,
        )


def write(path: Path, number: int, samples: int) -> None:
    """A complete file of so many series."""
    with path.open("w", encoding="utf-8") as file:
        file.write(header_line(CLUSTER, LIBRARY, {"made": "up"}) + "\n")
        file.writelines(series_line(each) + "\n" for each in islice(series(samples), number))
        file.write(end_line(number) + "\n")


def timed(engine: Engine, name: str, ask: Callable[[Session, random.Random], object]) -> None:
    """Median, 99th percentile and maximum of one question, each time with other words."""
    rng, times = random.Random(2), []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        with db.read_session(engine) as session:
            ask(session, rng)
        times.append(time.perf_counter() - begun)
    middle, late, latest = np.quantile(times, [0.5, 0.99, 1.0]) * 1e3
    print(f"{name:48} median {middle:7.2f} ms   p99 {late:7.2f} ms   max {latest:7.2f} ms")


def ask_all(engine: Engine, number: int, count: int) -> None:
    """Every question, each in a transaction of its own, as a request has it; `number`: the id."""

    def measurements(session: Session, _: random.Random) -> object:
        return db.list_measurements(session)

    def point(session: Session, rng: random.Random) -> object:
        return db.list_series(
            session,
            number,
            collective=rng.choice(COLLECTIVES),
            p=rng.choice(RANKS),
            nbytes=rng.choice(SIZES),
            algorithm=rng.choice(ALGORITHMS),
        )

    def size(session: Session, rng: random.Random) -> object:
        return db.list_series(session, number, nbytes=rng.choice(SIZES))

    def algorithm(session: Session, rng: random.Random) -> object:
        return db.list_series(
            session, number, algorithm=rng.choice(ALGORITHMS), p=rng.choice(RANKS)
        )

    def deep(session: Session, rng: random.Random) -> object:
        return db.list_series(session, number, after=rng.randrange(1, count))

    def nothing(session: Session, _: random.Random) -> object:
        return db.list_series(session, number, algorithm="no such")

    def published(session: Session, _: random.Random) -> object:
        current = db.current_publication(session, CLUSTER.name, LIBRARY)
        assert current is not None
        rules = db.load_table(session, current.version)
        return rules.lookup(RuleKey(Collective.BCAST, 1, 4), 1 << 20)

    timed(engine, "list of measurements", measurements)
    timed(engine, "series of one point", point)
    timed(engine, "series of one size", size)
    timed(engine, "series of one algorithm and rank count", algorithm)
    timed(engine, "a page in the middle", deep)
    timed(engine, "series that are not there", nothing)
    timed(engine, "publication, its table, the rule for a call", published)


def main(number: int, samples: int, url: str, path: Path) -> None:
    """Write, store, ask."""
    write(path, number, samples)
    print(f"{number} series of {samples} samples, {path.stat().st_size / 1e6:.0f} MB", flush=True)
    engine = db.open_database(url)
    begun = time.perf_counter()
    stored = db.ingest(engine, path)
    taken = time.perf_counter() - begun
    print(f"stored in {taken:.1f} s, {number / taken:,.0f} series/s", flush=True)
    with db.transaction(engine) as session:
        db.publish(session, db.store_table(session, table()).id)
    ask_all(engine, stored.id, number)
    engine.dispose()


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tuner-ingest-") as scratch:
        main(
            int(given[0]) if given else SERIES,
            int(given[1]) if len(given) > 1 else SAMPLES,
            given[2] if len(given) > 2 else f"sqlite:///{scratch}/tuner.sqlite",
            Path(scratch, "measurements.ndjson"),
        )
