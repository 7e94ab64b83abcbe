"""Bringing an emulated cluster up, querying its status, taking it down.

An emulated cluster is identified by its prefix. Its files are under
`/run/tuner-emulation/PREFIX`: the table and the counters of the switch, the hosts' names and
addresses, the environment of programs on its hosts, and links to the namespaces, whose names begin
with the prefix.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tuner.base import processes
from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, shortened_repr
from tuner.emulation import build_c, namespaces
from tuner.emulation.counters import Counters, read_counters
from tuner.emulation.environment import host_environment
from tuner.emulation.network import EmulatedNetwork

STATE_DIR = Path("/run/tuner-emulation")
CLUSTER_ID = re.compile(r"tl[a-z0-9]{1,10}")
TIMEOUT_S = 20.0  # for the switch to start, and for another command to end
_POLL_S = 0.02


@dataclass(frozen=True)
class ClusterStatus:
    """The status of an emulated cluster.

    up          everything is present and works
    is_partial  only parts are present, which `down` removes
    counters    of an emulated cluster that is up
    """

    up: bool
    is_partial: bool
    counters: Counters | None


def cluster_id_for(path: Path) -> str:
    """Return the prefix of a topology file's cluster: each file has one of its own."""
    return f"tl{sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def missing_requirement() -> str:
    """Return what this computer lacks for an emulated cluster, as a sentence, or nothing."""
    if not Path("/proc/self/ns/net").exists():
        return "an emulated cluster needs Linux with network namespaces"
    if os.geteuid() != 0:
        return (
            "an emulated cluster needs root, for its network namespaces: run the command with sudo"
        )
    if shutil.which("ip") is None:
        return "an emulated cluster needs `ip`: install iproute2"
    if build_c.find_compiler() is None:
        return "an emulated cluster needs a C compiler: install gcc or clang"
    return ""


@dataclass(frozen=True)
class EmulatedCluster:
    """An emulated cluster, whether it is up or not; raises InputError for an invalid prefix."""

    cluster_id: str
    network: EmulatedNetwork

    def __post_init__(self) -> None:
        check_cluster_id(self.cluster_id)

    @property
    def directory(self) -> Path:
        return _directory(self.cluster_id)

    @property
    def _shm_directory(self) -> Path:
        """The directory with each host's /dev/shm, which is in memory, too."""
        return self.directory / "memory"

    @property
    def _table(self) -> Path:
        return self.directory / "table"

    def up(self) -> bool:
        """Bring the cluster up; return False when it already was.

        Raises InputError when this computer cannot have an emulated cluster, and when the cluster
        that is up has another network. A partial cluster is removed on any error, also on Ctrl-C.
        """
        check_host_support()
        with _exclusive_lock():
            if self.status().up:
                return False
            _remove(self.cluster_id)
            with ExitStack() as undo:
                undo.callback(_remove, self.cluster_id)
                self._build()
                undo.pop_all()
        return True

    def down(self) -> bool:
        return take_down(self.cluster_id)

    def status(self) -> ClusterStatus:
        """Return the status now; raises InputError when the cluster up has another network."""
        there = set(_namespaces(self.cluster_id))
        alive = bool(_switch_processes(self.cluster_id))
        if alive and (self.directory / "environment").exists():  # the file written last
            self._require_same()
            if there >= {_switch_namespace(self.cluster_id), *self._namespace_names}:
                counters = read_counters(self.directory / "counters", self.network.links)
                return ClusterStatus(True, True, counters)
        return ClusterStatus(False, _exists(self.cluster_id), None)

    @property
    def _namespace_names(self) -> list[str]:
        return [f"{self.cluster_id}-{host}" for host in self.network.hosts]

    def _require_same(self) -> None:
        wanted = (self.network.switch_table, self._hosts_file())
        files = (self._table, self.directory / "hosts")
        if tuple(file.read_text(encoding="utf-8") for file in files) != wanted:
            raise InputError(
                f"the cluster {self.cluster_id} that is up has another network than"
                f" {self.network.name}: take it down first"
            )

    def _build(self) -> None:
        tools = build_c.build_programs()
        net = self.directory / "net"
        for place in (self._shm_directory, net):
            place.mkdir(parents=True)
        namespaces.mount_tmpfs(self._shm_directory)
        for host, space in zip(self.network.hosts, self._namespace_names, strict=True):
            (self._shm_directory / host).mkdir()
            (net / host).symlink_to(namespaces.NAMESPACE_DIR / space)
        write_atomically(self._table, self.network.switch_table)
        write_atomically(self.directory / "hosts", self._hosts_file())
        namespaces.create(self._namespace_names, _switch_namespace(self.cluster_id))
        self._start_switch(tools / "switch")
        variables = host_environment(self.directory, tools).items()
        text = "".join(f"{name}={value}\n" for name, value in variables)
        write_atomically(self.directory / "environment", text)

    def _hosts_file(self) -> str:
        named = [f"{namespaces.ip_address(i)} {host}" for i, host in enumerate(self.network.hosts)]
        return "".join(f"{line}\n" for line in ["127.0.0.1 localhost", *named])

    def _start_switch(self, program: Path) -> None:
        """Start the switch and wait until it works.

        It outlives this program, so it has no terminal and no pipes.
        """
        command = [
            program,
            namespaces.NAMESPACE_DIR / _switch_namespace(self.cluster_id),
            self._table,
            self.directory / "counters",
        ]
        with (self.directory / "switch.log").open("wb") as log:
            switch = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert switch.stdout is not None
        with switch.stdout as answers, selectors.DefaultSelector() as answering:
            answering.register(answers, selectors.EVENT_READ)
            if not answering.select(TIMEOUT_S) or not answers.readline():
                said = (self.directory / "switch.log").read_text(errors="replace").strip()
                raise InputError(f"the switch of the cluster does not start: {said or 'no answer'}")


def take_down(cluster_id: str) -> bool:
    """End all processes on the hosts and remove the cluster; return False when nothing was there.

    Raises InputError for an invalid prefix, when this computer cannot have an emulated cluster, and
    when a process cannot be ended.
    """
    check_cluster_id(cluster_id)
    check_host_support()
    with _exclusive_lock():
        there = _exists(cluster_id)
        _remove(cluster_id)
    return there


def _remove(prefix: str) -> None:
    spaces = [namespaces.NAMESPACE_DIR / name for name in _namespaces(prefix)]
    if not processes.terminate(
        lambda: processes.pids_in_namespaces(spaces) | _switch_processes(prefix)
    ):
        raise InputError(
            f"processes on the hosts of the cluster {prefix} cannot be ended; if this is"
            " a shell on one of them, leave it"
        )
    namespaces.delete(_namespaces(prefix))
    namespaces.unmount(_directory(prefix) / "memory")
    shutil.rmtree(_directory(prefix), ignore_errors=True)


def _exists(prefix: str) -> bool:
    """Return whether any part of the cluster is present."""
    return bool(_namespaces(prefix) or _switch_processes(prefix)) or _directory(prefix).exists()


def _directory(prefix: str) -> Path:
    return STATE_DIR / prefix


def _switch_namespace(prefix: str) -> str:
    """Return the name of the switch's namespace, in which the hosts' cables end."""
    return f"{prefix}.switch"


def _namespaces(prefix: str) -> list[str]:
    return namespaces.list_namespaces(f"{prefix}-") + namespaces.list_namespaces(
        _switch_namespace(prefix)
    )


def _switch_processes(prefix: str) -> set[int]:
    """Return the process ids of the cluster's switch."""
    return processes.pids_with_arguments(str(_directory(prefix) / "table"))


@contextmanager
def _exclusive_lock() -> Iterator[None]:
    """Hold the lock that lets one command at a time change emulated clusters."""
    STATE_DIR.mkdir(parents=True, exist_ok=True)
    handle, until = os.open(STATE_DIR, os.O_RDONLY), time.monotonic() + TIMEOUT_S
    try:
        while not _try_lock(handle):
            if time.monotonic() > until:
                raise InputError(
                    "another command has been bringing an emulated cluster up or down for"
                    f" {TIMEOUT_S:g} s: try again when it is done"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_cluster_id(cluster_id: str) -> None:
    """Raise InputError for an invalid prefix of an emulated cluster."""
    if not CLUSTER_ID.fullmatch(cluster_id):
        raise InputError(
            f"{shortened_repr(cluster_id)} cannot be the prefix of an emulated cluster; write"
            " `tl` and up to ten small letters and digits"
        )


def check_host_support() -> None:
    """Raise InputError if this computer lacks what an emulated cluster needs."""
    reason = missing_requirement()
    if reason:
        raise InputError(reason)
