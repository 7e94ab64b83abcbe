"""MPI for processes that torchrun, or another program that knows no MPI, has started.

MPI libraries find the other ranks through their launcher, by variables of the environment. Rank 0
therefore starts the launcher of the library with a small placeholder for each rank, which sends its
environment; every process takes that of its rank before MPI starts. This works for Open MPI and
MPICH, and for several hosts where their launcher can reach them, as mpirun itself would need.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tuner.base.errors import InputError, ProbeError
from tuner.launch import Hosts, Launcher
from tuner.launch.template import library_template
from tuner.torch.placeholder import PORT_VARIABLE, PREFIXES

START_TIMEOUT_S = 60.0  # for the launcher to start its placeholders
_POLL_S = 0.1
TORCHRUN_VARIABLE = "TORCHELASTIC_RUN_ID"
_RANK_VARIABLES = ("PMIX_RANK", "PMI_RANK", "PMI_ID")
_PLACEHOLDER = Path(__file__).with_name("placeholder.py")
_ALTERNATIVE = "start the program with mpirun instead of torchrun"


def join_ranks(store: Any, rank: int, size: int) -> None:
    """Set the environment by which MPI makes this process one of `size` ranks; collective.

    store   key-value store of PyTorch that all ranks share

    Raises InputError on all ranks where the launcher of the MPI library cannot start.
    """
    store.set(f"host/{rank}", socket.gethostname())
    if rank == 0:
        names = [store.get(f"host/{other}").decode() for other in range(size)]
        try:
            found = _Placeholders(names).environments
            answers = [json.dumps(environment) for environment in found]
        except (InputError, ProbeError, OSError) as failure:
            sentence = f"MPI cannot be started under torchrun: {failure}; {_ALTERNATIVE}"
            answers = [json.dumps(sentence)] * size
        for other, answer in enumerate(answers):
            store.set(f"environment/{other}", answer)
    answer = json.loads(store.get(f"environment/{rank}"))
    if isinstance(answer, str):
        raise InputError(answer)
    port = int(answer.pop(PORT_VARIABLE))
    os.environ.update(answer)
    # The connection stays open until the process ends, after MPI has ended in it.
    socket.create_connection(("127.0.0.1", port), timeout=START_TIMEOUT_S).detach()


class _Placeholders:
    """The placeholders of all ranks, which live as long as the processes of the ranks.

    names   host of each rank

    Raises InputError or ProbeError where they cannot be started.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._word = secrets.token_hex(16)
        with socket.create_server(("", 0)) as server:
            address = names[0] if len(set(names)) > 1 else "127.0.0.1"
            program = [str(_PLACEHOLDER), address, str(server.getsockname()[1]), self._word]
            command = launcher_command(names, program)
            self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - kept open
            self._launcher = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                env={k: v for k, v in os.environ.items() if not k.startswith(PREFIXES[:2])},
                start_new_session=True,
            )
            self.environments = self._collect(server, len(names))

    def _collect(self, server: socket.socket, size: int) -> list[dict[str, str]]:
        """Return the environment of each rank once all placeholders have sent theirs."""
        found: dict[int, dict[str, str]] = {}
        server.settimeout(_POLL_S)
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(found) < size:
            if self._launcher.poll() is not None or time.monotonic() > deadline:
                raise InputError(self._reason())
            with suppress(TimeoutError):
                connection, _ = server.accept()
                answer = _read_line(connection)
                if answer.get("word") == self._word:
                    environment = answer["environment"]
                    found[_rank_in(environment)] = environment
        return [found[rank] for rank in range(size)]

    def _reason(self) -> str:
        """Return why the launcher did not start all placeholders."""
        with suppress(ProcessLookupError):
            self._launcher.terminate()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        said = next((line for line in lines if any(map(str.isalpha, line))), "")
        name = Path(self._launcher.args[0]).name  # type: ignore[index, arg-type]
        return f"{name} starts no ranks{f' ({said})' if said else ''}"


def launcher_command(names: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return the command that starts a program of Python in the place of each rank.

    names   host of each rank

    Raises InputError where the ranks of a host are not consecutive, or hosts have different
    numbers of ranks; ProbeError where the MPI library has no launcher here.
    """
    hosts = list(dict.fromkeys(names))
    ppn, rest = divmod(len(names), len(hosts))
    if rest or list(names) != [host for host in hosts for _ in range(ppn)]:
        raise InputError("the hosts have different numbers of ranks")
    launcher = Launcher.find(python=Path(sys.executable))
    if len(hosts) == 1:
        words = launcher.command(len(names), program)
    else:
        template = library_template(launcher.profile)
        words = template.command([sys.executable, *program], {}, Hosts(tuple(hosts)), ppn)
        words[0] = str(launcher.executable)
    return [words[0], *launcher.profile.detached_options, *words[1:]]


def _rank_in(environment: dict[str, str]) -> int:
    for name in _RANK_VARIABLES:
        if name in environment:
            return int(environment[name])
    raise InputError(f"the launcher sets none of {', '.join(_RANK_VARIABLES)}")


def _read_line(connection: socket.socket) -> dict[str, Any]:
    connection.settimeout(START_TIMEOUT_S)
    with connection, connection.makefile("rb") as stream:
        answer = json.loads(stream.readline())
    return answer if isinstance(answer, dict) else {}


def has_launcher() -> bool:
    """Return whether an MPI launcher has started this process.

    Processes of torchrun may have inherited the variables of a launcher that started torchrun.
    """
    if TORCHRUN_VARIABLE in os.environ:
        return False
    return any(name in os.environ for name in (*_RANK_VARIABLES, "PMI_FD"))
