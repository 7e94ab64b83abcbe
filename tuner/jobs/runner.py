"""The runner, which claims jobs from the database one at a time and supervises each of them.

Several runners may share a database: a job belongs to the runner that claimed it for as long as
its heartbeats arrive, and any write of a runner that lost its claim is refused.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
from contextlib import suppress

from tuner import db
from tuner.base.errors import InputError
from tuner.base.own_modules import own_module_command, own_module_environment
from tuner.base.repeats import RepeatFilter
from tuner.jobs.kinds import JOB_KINDS
from tuner.jobs.worker import encode_job, parse_progress

log = logging.getLogger(__name__)
log.addFilter(RepeatFilter())
POLL_INTERVAL_S = 0.25  # seconds between two attempts to claim a job
HEARTBEAT_INTERVAL_S = 0.5  # seconds between two heartbeats
TERMINATION_GRACE_S = 10.0  # seconds between SIGTERM and SIGKILL


class Runner:
    """A loop that runs the jobs of a database until `stop` is called."""

    def __init__(self, database: str, kinds: tuple[str, ...] = JOB_KINDS) -> None:
        self.database = database
        self.kinds = kinds
        self.name = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Put the current job back into the queue and make `run` return soon."""
        self._stopping.set()

    def run(self) -> None:
        """Run jobs until `stop` is called.

        While the database is unavailable or no process can be started, it waits and tries again.
        """
        while not self._stopping.is_set():
            try:
                engine = db.open_database(self.database, must_exist=True)
                try:
                    self._run_jobs(engine)
                finally:
                    engine.dispose()
            except (InputError, OSError) as reason:
                log.warning("jobs wait: %s", reason)
                self._stopping.wait(POLL_INTERVAL_S)

    def _run_jobs(self, engine: db.Engine) -> None:
        while not self._stopping.is_set():
            claim = db.claim_job(engine, self.name, self.kinds)
            if claim is None:
                self._stopping.wait(POLL_INTERVAL_S)
            else:
                _Execution(engine, self.database, claim).supervise(self._stopping)


class _Execution:
    """A claimed job and the process that runs it."""

    def __init__(self, engine: db.Engine, database: str, claim: db.Claim) -> None:
        self.engine = engine
        self.claim = claim
        self.progress: tuple[float, str] = (0.0, "started")
        self.child = _start_worker(encode_job(database, claim))
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def supervise(self, stopping: threading.Event) -> None:
        """Wait until the job ended, was cancelled or lost, or the runner is stopping."""
        try:
            while not self._wait_for_child():
                cancelled = self._send_heartbeat()
                if cancelled or stopping.is_set():
                    self._end()
                    self._release(cancelled)
                    return
            self._retry_if_crashed()
        except db.LostLeaseError as reason:
            log.info("job %d: %s", self.claim.id, reason)
        finally:
            self._end()

    def _wait_for_child(self) -> bool:
        try:
            self.child.wait(HEARTBEAT_INTERVAL_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _send_heartbeat(self) -> bool:
        """Return whether the job is to be cancelled; False while the database is unavailable."""
        try:
            with db.transaction(self.engine) as session:
                return db.heartbeat(session, self.claim, *self.progress)
        except db.UnavailableError as reason:
            log.warning("job %d: %s", self.claim.id, reason)
            return False

    def _release(self, cancelled: bool) -> None:
        with db.transaction(self.engine) as session:
            (db.mark_job_cancelled if cancelled else db.requeue_job)(session, self.claim)

    def _retry_if_crashed(self) -> None:
        """Try the job once more if its process died without ending it."""
        if self.child.returncode != 0:
            how = _exit_cause(self.child.returncode)
            with db.transaction(self.engine) as session:
                db.retry_job(session, self.claim, f"the process of the job ended: {how}")

    def _listen(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.progress = parse_progress(line)

    def _end(self) -> None:
        """End the process: a probe also ends the ranks that it has started."""
        self.child.terminate()
        try:
            self.child.wait(TERMINATION_GRACE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.listener.join()
        for stream in (self.child.stdin, self.child.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def _start_worker(first_line: str) -> subprocess.Popen[str]:
    """Start a job process in its own session.

    Ctrl-C therefore reaches only the runner, which then ends the process.
    """
    child = subprocess.Popen(
        own_module_command("tuner.jobs"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=own_module_environment(),
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it died at once; its exit status says why
        child.stdin.write(first_line)
        child.stdin.flush()
    return child


def _exit_cause(status: int) -> str:
    if status >= 0:
        return f"exit status {status}; the log of the service says why"
    return f"{signal.Signals(-status).name}, often for want of memory"
