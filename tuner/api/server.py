"""The processes of the service: one or several on one port, and background threads for jobs."""

from __future__ import annotations

import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from types import FrameType

import uvicorn

from tuner import db
from tuner.api.access_log import access_logger
from tuner.api.metrics import MULTIPROCESS_DIR_VARIABLE
from tuner.api.protocol import BoundedProtocol
from tuner.api.settings import Settings, is_loopback
from tuner.api.workers import exit_with_parent
from tuner.base.errors import InputError
from tuner.base.own_modules import ignore_working_directory
from tuner.jobs.pruning import Pruner
from tuner.jobs.runner import Runner

log = logging.getLogger(__name__)
BACKLOG = 2048  # connections that may wait to be accepted
GRACEFUL_SHUTDOWN_S = 5  # seconds for requests to finish when the service stops
KEEP_ALIVE_S = 75  # seconds that an idle connection stays open
POLL_INTERVAL_S = 1.0  # seconds between two checks for signals and dead processes
# Seconds until a thread that answers can interrupt one that computes.
THREAD_SWITCH_INTERVAL_S = 0.0005


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Answer requests until SIGINT or SIGTERM.

    announce    called with the address

    Raises InputError where the port is in use, the address does not exist, the database cannot be
    used, or the service needs tokens and there are none.
    """
    ignore_working_directory()  # while this is the only thread
    _check_database(settings)
    with _open_listener(settings) as listener, _shutdown_on_signal() as stopping:
        announce(_service_url(settings.host, listener.getsockname()[1]))
        with _background_threads(settings):
            if settings.processes == 1:
                _serve_requests(settings, listener, stopping)
            else:
                _supervise(settings, listener, stopping)


def run_jobs(settings: Settings, announce: Callable[[], None]) -> None:
    """Run jobs, without answering requests, until SIGINT or SIGTERM.

    announce    called once the database is open and the signals are handled
    """
    engine = db.open_database(settings.database)
    _warn_if_exposed(engine)
    engine.dispose()
    with _shutdown_on_signal() as stopping, _background_threads(settings):
        announce()
        while not stopping.wait(POLL_INTERVAL_S):
            pass


def _check_database(settings: Settings) -> None:
    """Migrate the database before several processes open it, and check the log and the tokens."""
    if settings.access_log is not None:
        access_logger(settings.access_log)  # reports an unusable file at once, and only once
    engine = db.open_database(settings.database)
    _warn_if_exposed(engine)
    with db.read_session(engine) as session:
        if not settings.is_open and not db.has_tokens(session):
            raise InputError(_missing_token_message(settings))
    engine.dispose()


def _missing_token_message(settings: Settings) -> str:
    """Return why the service needs a token, and what to do."""
    if not is_loopback(settings.host):
        why = f"whoever can reach {settings.host} could change tables"
        other = "serve on 127.0.0.1"
    elif settings.trusted_proxies:
        why = "whoever can reach the proxy of --proxy-headers could change tables"
        other = "leave --proxy-headers out if there is no proxy"
    else:
        why, other = "--require-tokens refuses everyone while there is no token", "leave it out"
    make = (
        "make a token first with `tuner token create programs --scope read`, and with the --db of"
        " the service if it has one"
    )
    return f"{why}: {make}, or {other}"


def _warn_if_exposed(engine: db.Engine) -> None:
    """Warn where other users of this computer can read the database."""
    exposed = db.exposed_modes(engine)
    if exposed:
        modes = ", ".join(f"{mode:o}" for mode in sorted(set(exposed.values())))
        log.warning(
            "other users of this computer can read the file of the database, or its -wal or -shm"
            " (mode %s): chmod 600 them",
            modes,
        )


@contextmanager
def _open_listener(settings: Settings) -> Iterator[socket.socket]:
    where = f"{settings.host} port {settings.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as reason:
        if reason.errno == errno.EADDRINUSE:
            raise InputError(
                f"{where} is in use: end the program that has it, or choose another --port"
            ) from None
        raise InputError(f"{where} cannot be served on: {reason.strerror}") from None
    with listener:
        yield listener


def _service_url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Shutdown:
    """A flag that SIGINT and SIGTERM set.

    uvicorn handles these signals itself, but only while it runs, and passes them on when it has
    finished. A signal may arrive while this thread starts to wait and holds the lock of the object
    it waits for: an Event would deadlock, while a SimpleQueue is reentrant. A signal that arrives
    just before the thread sleeps is seen after `timeout`.
    """

    def __init__(self) -> None:
        self.server: uvicorn.Server | None = None
        self._signals = SimpleQueue[int]()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.put(number)
        if self.server is not None:
            self.server.should_exit = True

    def is_set(self) -> bool:
        """Return whether a signal arrived that `wait` has not consumed."""
        return not self._signals.empty()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a signal; return whether one arrived."""
        try:
            self._signals.get(timeout=timeout)
        except Empty:
            return False
        return True


@contextmanager
def _shutdown_on_signal() -> Iterator[_Shutdown]:
    stopping = _Shutdown()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stopping.on_signal) for number in signals]
    try:
        yield stopping
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _background_threads(settings: Settings) -> Iterator[None]:
    """Run the job runner and the pruner in threads, where the settings ask for them."""
    running: list[Runner | Pruner] = []
    if settings.runs_jobs:
        running.append(Runner(settings.database, settings.job_kinds))
    if not settings.retention.keeps_all:
        running.append(Pruner(settings.database, settings.retention))
    threads = [threading.Thread(target=each.run, name=type(each).__name__) for each in running]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in running:
            each.stop()
        for thread in threads:
            thread.join()


def _serve_requests(settings: Settings, listener: socket.socket, stopping: _Shutdown) -> None:
    gc.disable()  # enabled again once the application runs: importing makes no garbage to collect
    from tuner.api.app import create_app  # not needed by processes that only supervise or run jobs

    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    stopping.server = server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, must_exist=True),  # a deleted one is not begun anew
            loop="uvloop",
            http=BoundedProtocol,
            ws="none",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        )
    )
    if not stopping.is_set():
        server.run(sockets=[listener])


def _supervise(settings: Settings, listener: socket.socket, stopping: _Shutdown) -> None:
    """Keep `settings.processes` processes running, which take turns in accepting connections."""
    with tempfile.TemporaryDirectory(prefix="tuner-metrics-") as shared:
        os.environ[MULTIPROCESS_DIR_VARIABLE] = shared
        processes = [_start_process(settings, listener) for _ in range(settings.processes)]
        while not stopping.wait(POLL_INTERVAL_S):
            for number, process in enumerate(processes):
                if not process.is_alive():
                    log.warning("process %s ended with %s", process.pid, process.exitcode)
                    processes[number] = _start_process(settings, listener)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _start_process(settings: Settings, listener: socket.socket) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(
        target=_serve_as_child, args=(settings, listener)
    )
    process.start()
    return process


def _serve_as_child(settings: Settings, listener: socket.socket) -> None:
    """Serve requests in a child process, which ends when its parent does."""
    exit_with_parent()
    with _shutdown_on_signal() as stopping:
        _serve_requests(settings, listener, stopping)
