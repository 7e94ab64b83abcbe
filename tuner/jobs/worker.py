"""The process that carries out one job. Started by the runner alone.

The first line on standard input says which job; after that the runner keeps the pipe open, and
its end means that the runner is gone: then this process puts the job back into the queue and goes
too, whatever it is doing. Progress goes to standard output, one JSON pair a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TextIO

from tuner import db
from tuner.base.errors import TunerError
from tuner.jobs.kinds import FractionCallback, load_job_function

EXIT_REQUEUED = 1  # exit status of a child whose job the runner tries again or leaves to another
EXIT_ORPHANED = 3  # exit status of a child whose runner ended
NICENESS = 5  # requests go before jobs
PROGRESS_INTERVAL_S = 0.1  # seconds


def main() -> int:
    """Return the exit status; 0: the job is ended in the database, well or with a reason."""
    order = json.loads(sys.stdin.readline())
    claim = db.Claim(**order["claim"])
    try:
        _run_job(order["database"], claim)
    except TunerError as reason:  # the database is gone, or another runner has the job
        print(f"job {claim.id} is given back: {reason}", file=sys.stderr)
        return EXIT_REQUEUED
    return 0


def _run_job(database: str, claim: db.Claim) -> None:
    engine = db.open_database(database)
    threading.Thread(target=_exit_with_runner, args=(engine, claim), daemon=True).start()
    os.nice(NICENESS)
    try:
        with db.read_session(engine) as session:
            spec = db.load_job(session, claim.id).spec
        store = load_job_function(claim.kind)(engine, spec, _progress_writer(_redirect_stdout()))
        with db.transaction(engine) as session:
            db.finish_job(session, claim, store(session))
    except (db.UnavailableError, db.LostLeaseError):
        raise
    except TunerError as reason:
        with db.transaction(engine) as session:
            db.fail_job(session, claim, str(reason))


def encode_job(database: str, claim: db.Claim) -> str:
    """The line that tells a child what to do."""
    return json.dumps({"database": database, "claim": asdict(claim)}) + "\n"


def parse_progress(line: str) -> tuple[float, str]:
    """What a line of progress says."""
    fraction, text = json.loads(line)
    return fraction, text


def _exit_with_runner(engine: db.Engine, claim: db.Claim) -> None:
    """Reads the pipe itself: a thread inside `sys.stdin` would hold its lock at exit."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    with suppress(TunerError), db.transaction(engine) as session:
        db.retry_job(session, claim, "the service died twice while it ran this job")
    os._exit(EXIT_ORPHANED)


def _redirect_stdout() -> TextIO:
    """Standard output for progress alone; what libraries print goes to the log."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return stream


def _progress_writer(stream: TextIO) -> FractionCallback:
    last = -PROGRESS_INTERVAL_S

    def tell(fraction: float, text: str) -> None:
        nonlocal last
        if fraction >= 1 or time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last = time.monotonic()
            print(json.dumps([fraction, text]), file=stream, flush=True)

    return tell
