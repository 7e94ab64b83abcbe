"""The process that runs one job, which only the runner starts.

The first line on standard input describes the job. The runner then keeps the pipe open; its end
means that the runner has died, and this process puts the job back into the queue and exits at
once. Progress goes to standard output, one JSON array [fraction, text] per line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TextIO

from tuner import db
from tuner.base.errors import TunerError
from tuner.jobs.kinds import FractionCallback, JobReport, LogCallback, load_job_function

EXIT_REQUEUED = 1  # exit status: the runner tries the job again or leaves it to another runner
EXIT_ORPHANED = 3  # exit status: the runner has died
ORPHAN_GRACE_S = 10.0  # seconds in which a job ends what it has started
NICENESS = 5  # requests have priority over jobs
PROGRESS_INTERVAL_S = 0.1  # seconds


def main() -> int:
    """Run the job and return the exit status.

    0 means that the job has ended in the database, successfully or not.
    """
    order = json.loads(sys.stdin.readline())
    claim = db.Claim(**order["claim"])
    try:
        _run_job(order["database"], claim)
    except TunerError as reason:  # the database is gone, or another runner has the job
        print(f"job {claim.id} is given back: {reason}", file=sys.stderr)
        return EXIT_REQUEUED
    return 0


def _run_job(database: str, claim: db.Claim) -> None:
    engine = db.open_database(database, must_exist=True)
    threading.Thread(target=_exit_with_runner, args=(engine, claim), daemon=True).start()
    os.nice(NICENESS)
    try:
        with db.read_session(engine) as session:
            spec = db.load_job(session, claim.id).spec
        report = JobReport(_progress_writer(_redirect_stdout()), _log_writer(engine, claim))
        store = load_job_function(claim.kind)(engine, spec, report)
        with db.transaction(engine) as session:
            db.finish_job(session, claim, store(session))
    except (db.UnavailableError, db.LostLeaseError):
        raise
    except TunerError as reason:
        with db.transaction(engine) as session:
            db.fail_job(session, claim, str(reason))


def encode_job(database: str, claim: db.Claim) -> str:
    """Return the line that describes a job to its process."""
    return json.dumps({"database": database, "claim": asdict(claim)}) + "\n"


def parse_progress(line: str) -> tuple[float, str]:
    """Return the fraction done and the text of a line of progress."""
    fraction, text = json.loads(line)
    return fraction, text


def _exit_with_runner(engine: db.Engine, claim: db.Claim) -> None:
    """Wait for the end of the runner, then put the job back and exit.

    A job that handles SIGTERM, as it has started ranks, gets time to end them. The pipe is read
    without `sys.stdin`: a thread inside that would hold its lock at exit.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    with suppress(TunerError), db.transaction(engine) as session:
        db.retry_job(session, claim, "the service died twice while it ran this job")
    if callable(signal.getsignal(signal.SIGTERM)):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_GRACE_S)
    os._exit(EXIT_ORPHANED)


def _redirect_stdout() -> TextIO:
    """Return a stream on standard output for progress; send other output to standard error."""
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


def _log_writer(engine: db.Engine, claim: db.Claim) -> LogCallback:
    """Return a function that adds to the log; no job ends because the log cannot be written."""

    def write(text: str, data: Any) -> None:
        try:
            with db.transaction(engine) as session:
                db.append_job_log(session, claim, text, data)
        except db.UnavailableError as reason:
            print(f"job {claim.id}: not in its log: {text}: {reason}", file=sys.stderr)

    return write
