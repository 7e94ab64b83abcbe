"""A process from which others are forked, each in milliseconds, as it has imported what they need.

    python -m tests.support.forks SOCKET

It is single-threaded and opens no database.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
MAX_REQUEST = 1 << 20  # bytes
_WARM: set[str] = set()  # modules of targets


class Forks:
    """The side of the process that asks for children."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(other.fileno())],
                cwd=ROOT,
                pass_fds=[other.fileno()],
            )

    def start(self, target: Callable[..., None], arguments: tuple[Any, ...], mouth: int) -> int:
        """Call `target` with the connection of this descriptor in a new process; return its id."""
        socket.send_fds(self._socket, [pickle.dumps((target, arguments))], [mouth])
        return int(self._answer())

    def wait(self, pid: int) -> int:
        """Wait for a process to end and return its exit status, which is negative for a signal."""
        self._socket.send(pickle.dumps(pid))
        return int(self._answer())

    def processor_s(self) -> float:
        """Return the processor time of this process and of its children that have ended, in s."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def _answer(self) -> Any:
        return pickle.loads(self._socket.recv(MAX_REQUEST))


@cache
def forks() -> Forks:
    """Return the process of this process, which ends with it."""
    return Forks()


def _serve(asked: socket.socket) -> None:
    """Fork what is asked for until the other side ends."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(asked, MAX_REQUEST, 1)
        if not request:
            return
        content = pickle.loads(request)  # imports the module of the target
        _warm_up(content)
        if isinstance(content, int):
            _, status = os.waitpid(content, 0)
            asked.send(pickle.dumps(os.waitstatus_to_exitcode(status)))
            continue
        gc.freeze()  # collections in children would copy all memory
        pid = os.fork()
        if pid == 0:
            asked.close()
            _run(content[0], Connection(descriptors[0]), content[1])
        os.close(descriptors[0])
        asked.send(pickle.dumps(pid))


def _warm_up(content: Any) -> None:
    """Call `warm_up` of the module of a target, if it has one, before its first child."""
    if isinstance(content, tuple):
        module = content[0].__module__
        if module not in _WARM:
            _WARM.add(module)
            getattr(sys.modules[module], "warm_up", lambda: None)()


def _run(target: Callable[..., None], mouth: Connection, arguments: tuple[Any, ...]) -> NoReturn:
    """Call the target and end, without the interpreter's own end, which takes longer than most."""
    status = 1
    try:
        target(mouth, *arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - the exit status says so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
