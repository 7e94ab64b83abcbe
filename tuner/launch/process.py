"""The process of a launcher: reading its output while it runs, ending it with its children."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

from tuner.base import processes
from tuner.base.errors import LaunchTimeoutError, ProbeError
from tuner.launch.failures import CompletedRun

LAUNCH_VARIABLE = "TUNER_LAUNCH"  # variable that marks the processes of one launch
POLL_INTERVAL_S = 0.5  # between two checks whether the launcher has been ended
TERMINATION_GRACE_S = 5.0  # between SIGTERM and SIGKILL
_SILENT = (
    "the ranks on {} fell silent and were ended: look whether every host still runs and is reached"
)


class Watchdog:
    """A timer that ends a process group unless it is reset in time.

    seconds     time until then; None: no limit
    """

    def __init__(self, process: subprocess.Popen[str], seconds: float | None) -> None:
        self.has_expired = False
        self._process = process
        self._timer: threading.Timer | None = None
        self.reset(seconds)

    def reset(self, seconds: float | None) -> None:
        """Restart the timer with `seconds`; None: no limit."""
        self.stop()
        if seconds is not None:
            self._timer = threading.Timer(seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.has_expired = True
        terminate_tree(self._process)


def run_streaming(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], float | None] | None,
    timeout: float | None,
    silence_timeout: float | None,
    host_names: str,
) -> CompletedRun:
    """Run a launcher to its end and pass every line of its standard output to `on_line`.

    on_line             takes a line; may return the seconds allowed until the next one
    timeout             seconds for the whole run; None: no limit
    silence_timeout     seconds for the first line; None: no limit
    host_names          the hosts, for messages

    The launcher leads a process group of its own, whose processes are ended with it. Where it
    failed or was late, processes that have left the group, such as its connections to other hosts,
    are ended, too. Raises LaunchTimeoutError when it is late, ProbeError when it cannot be started.
    """
    mark = uuid.uuid4().hex
    process = _start(command, {**environment, LAUNCH_VARIABLE: mark})
    assert process.stdout is not None
    assert process.stderr is not None
    lines, errors = [], list[str]()
    drain = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
    drain.start()
    whole, silence = Watchdog(process, timeout), Watchdog(process, silence_timeout)
    try:
        for line in _read_lines(
            process.stdout.fileno(), lambda: whole.has_expired or silence.has_expired
        ):
            lines.append(line)
            silence_timeout = on_line(line.rstrip("\n")) if on_line else None
            if silence_timeout is not None:
                silence.reset(silence_timeout)
        process.wait()
    finally:
        whole.stop()
        silence.stop()
        terminate_tree(process)
        if process.returncode != 0:
            processes.terminate(lambda: processes.pids_with_variable(LAUNCH_VARIABLE, mark))
    drain.join(TERMINATION_GRACE_S)
    said = "".join(errors)
    if whole.has_expired:
        late = f"the ranks did not end within {timeout:g} s: {shlex.join(command)}"
        raise LaunchTimeoutError(late, said)
    if silence.has_expired:
        raise LaunchTimeoutError(_SILENT.format(host_names), said)
    return CompletedRun(process.returncode, "".join(lines), said)


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as reason:
        raise ProbeError(f"{command[0]} cannot be started: {reason.strerror}") from None


def _read_lines(pipe: int, is_given_up: Callable[[], bool]) -> Iterator[str]:
    """Yield lines as they arrive, until the end or until `is_given_up()`.

    Daemons that have left the process group may hold the pipe open long after their launcher.
    """
    rest = b""
    while not is_given_up():
        if not select.select([pipe], [], [], POLL_INTERVAL_S)[0]:
            continue
        data = os.read(pipe, 65536)
        *complete, rest = (rest + data).split(b"\n")
        for line in complete:
            yield line.decode(errors="replace") + "\n"
        if not data:
            break
    if rest:
        yield rest.decode(errors="replace")


def terminate_tree(process: subprocess.Popen[str]) -> None:
    """Terminate a launcher and its children; kill them after TERMINATION_GRACE_S seconds.

    A child may outlive the launcher (a daemon that has lost it), so the whole group gets the
    signal.
    """
    if process.poll() is None:
        _send_signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATION_GRACE_S)
    _send_signal(process, signal.SIGKILL)
    process.wait()


def _send_signal(process: subprocess.Popen[str], signal_number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, signal_number)
    except ProcessLookupError:
        return
