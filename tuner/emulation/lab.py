"""Bringing a lab up, finding out how it is, taking it down.

A lab is known by its prefix. What there is of it lies under `/run/tuner-lab/PREFIX`: the table and
the counters of the switch, the hosts' names and addresses, the variables that programs on its
hosts get, and links to the namespaces, whose names begin with the prefix.
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
from tuner.base.errors import InputError, quoted
from tuner.emulation import build_c, namespaces
from tuner.emulation.counters import Counters, read_counters
from tuner.emulation.emulation import Emulation
from tuner.emulation.environment import environment

ROOT = Path("/run/tuner-lab")
PREFIX = re.compile(r"tl[a-z0-9]{1,10}")
PATIENCE = 20.0  # s that the switch may take to begin, and another command to end
_PAUSE = 0.02


@dataclass(frozen=True)
class Status:
    """`up`: all is there and works; `partly`: something of it is there, which `down` removes."""

    up: bool
    partly: bool
    counters: Counters | None  # of a lab that is up


def prefix_for(path: Path) -> str:
    """The prefix of the lab that a topology file stands for: each file has one of its own."""
    return f"tl{sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def missing() -> str:
    """What keeps this computer from having a lab, as one sentence; empty when nothing does."""
    if not Path("/proc/self/ns/net").exists():
        return "a lab needs Linux with network namespaces"
    if os.geteuid() != 0:
        return "a lab needs root, for its network namespaces: run the command with sudo"
    if shutil.which("ip") is None:
        return "a lab needs `ip`: install iproute2"
    if build_c.compiler() is None:
        return "a lab needs a C compiler: install gcc or clang"
    return ""


@dataclass(frozen=True)
class Lab:
    """An emulated cluster, whether it is up or not. Raises InputError for an impossible prefix."""

    prefix: str
    emulation: Emulation

    def __post_init__(self) -> None:
        require_prefix(self.prefix)

    @property
    def directory(self) -> Path:
        """Where its files are while it is up."""
        return _directory(self.prefix)

    @property
    def _memory(self) -> Path:
        """What its hosts see as /dev/shm, one directory each: memory, as there."""
        return self.directory / "memory"

    @property
    def _table(self) -> Path:
        return self.directory / "table"

    def up(self) -> bool:
        """Bring it up; False when it already was.

        Raises InputError when this computer cannot have one, and when the lab that is up has
        another network. What was begun is taken away again, also on Ctrl-C.
        """
        require_possible()
        with _alone():
            if self.status().up:
                return False
            _remove(self.prefix)
            with ExitStack() as undo:
                undo.callback(_remove, self.prefix)
                self._build()
                undo.pop_all()
        return True

    def down(self) -> bool:
        """As `take_down`."""
        return take_down(self.prefix)

    def status(self) -> Status:
        """How it is now. Raises InputError when what is up has another network."""
        there = set(_namespaces(self.prefix))
        alive = bool(_switches(self.prefix))
        if alive and (self.directory / "environment").exists():  # the last thing that is written
            self._require_same()
            if there >= {_switch(self.prefix), *self._spaces}:
                counters = read_counters(self.directory / "counters", self.emulation.links)
                return Status(True, True, counters)
        return Status(False, _is_there(self.prefix), None)

    @property
    def _spaces(self) -> list[str]:
        """The names of the hosts' namespaces."""
        return [f"{self.prefix}-{host}" for host in self.emulation.hosts]

    def _require_same(self) -> None:
        wanted = (self.emulation.table, self._hosts_file())
        files = (self._table, self.directory / "hosts")
        if tuple(file.read_text(encoding="utf-8") for file in files) != wanted:
            raise InputError(
                f"the lab {self.prefix} that is up has another network than"
                f" {self.emulation.name}: take it down first"
            )

    def _build(self) -> None:
        tools = build_c.directory()
        net = self.directory / "net"
        for place in (self._memory, net):
            place.mkdir(parents=True)
        namespaces.mount_memory(self._memory)
        for host, space in zip(self.emulation.hosts, self._spaces, strict=True):
            (self._memory / host).mkdir()
            (net / host).symlink_to(namespaces.NAMES / space)
        write_atomically(self._table, self.emulation.table)
        write_atomically(self.directory / "hosts", self._hosts_file())
        namespaces.create(self._spaces, _switch(self.prefix))
        self._start_switch(tools / "switch")
        variables = environment(self.directory, tools).items()
        text = "".join(f"{name}={value}\n" for name, value in variables)
        write_atomically(self.directory / "environment", text)

    def _hosts_file(self) -> str:
        named = [f"{namespaces.address(i)} {host}" for i, host in enumerate(self.emulation.hosts)]
        return "".join(f"{line}\n" for line in ["127.0.0.1 localhost", *named])

    def _start_switch(self, program: Path) -> None:
        """Returns when it works. It outlives this program, so it has no terminal and no pipes."""
        command = [
            program,
            namespaces.NAMES / _switch(self.prefix),
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
            if not answering.select(PATIENCE) or not answers.readline():
                said = (self.directory / "switch.log").read_text(errors="replace").strip()
                raise InputError(f"the switch of the lab does not start: {said or 'no answer'}")


def take_down(prefix: str) -> bool:
    """End what runs on the hosts and remove everything; False when nothing was there.

    Raises InputError for an impossible prefix, when this computer cannot have a lab, and when a
    process cannot be ended.
    """
    require_prefix(prefix)
    require_possible()
    with _alone():
        there = _is_there(prefix)
        _remove(prefix)
    return there


def _remove(prefix: str) -> None:
    spaces = [namespaces.NAMES / name for name in _namespaces(prefix)]
    if not processes.end(lambda: processes.on(spaces) | _switches(prefix)):
        raise InputError(
            f"processes on the hosts of the lab {prefix} cannot be ended; if this is"
            " a shell on one of them, leave it"
        )
    namespaces.delete(_namespaces(prefix))
    namespaces.unmount(_directory(prefix) / "memory")
    shutil.rmtree(_directory(prefix), ignore_errors=True)


def _is_there(prefix: str) -> bool:
    """Whether there is anything of it."""
    return bool(_namespaces(prefix) or _switches(prefix)) or _directory(prefix).exists()


def _directory(prefix: str) -> Path:
    return ROOT / prefix


def _switch(prefix: str) -> str:
    """The name of the namespace in which the hosts' cables end."""
    return f"{prefix}.switch"


def _namespaces(prefix: str) -> list[str]:
    return namespaces.existing(f"{prefix}-") + namespaces.existing(_switch(prefix))


def _switches(prefix: str) -> set[int]:
    """The processes that carry its frames."""
    return processes.with_words(str(_directory(prefix) / "table"))


@contextmanager
def _alone() -> Iterator[None]:
    """One command at a time changes labs."""
    ROOT.mkdir(parents=True, exist_ok=True)
    handle, until = os.open(ROOT, os.O_RDONLY), time.monotonic() + PATIENCE
    try:
        while not _locked(handle):
            if time.monotonic() > until:
                raise InputError(
                    "another command has been bringing a lab up or down for"
                    f" {PATIENCE:g} s: try again when it is done"
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def require_prefix(prefix: str) -> None:
    """Raises InputError for what cannot be the prefix of a lab."""
    if not PREFIX.fullmatch(prefix):
        raise InputError(
            f"{quoted(prefix)} cannot be the prefix of a lab; write `tl` and up to ten"
            " small letters and digits"
        )


def require_possible() -> None:
    """Raises InputError with what `missing` says."""
    reason = missing()
    if reason:
        raise InputError(reason)
