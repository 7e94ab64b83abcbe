"""The launcher of an MPI library: finding it, building its command and running it.

It needs no MPI in the calling process, so it can start the ranks of any environment: with the
launcher beside a given Python interpreter, else the one on PATH; on several hosts with the one that
a template names.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, LaunchFailedError, ProbeError
from tuner.base.processes import available_cores
from tuner.launch import failures
from tuner.launch.executables import SRUN, find_launcher_executable, find_mpicc
from tuner.launch.failures import CompletedRun
from tuner.launch.hosts import LOCAL_HOST, Hosts
from tuner.launch.installation import Installation, inspect_interpreter
from tuner.launch.package import search_path
from tuner.launch.process import run_streaming
from tuner.launch.template import TEMPLATES, LauncherTemplate, connection_environment
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.mpi_libraries.products import base_of
from tuner.mpi_libraries.profiles import PROFILES, LibraryProfile

# A rank uses one thread: a threaded numpy would compete with the other ranks for the cores.
SINGLE_THREAD_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
PRELOAD_VARIABLE = "LD_PRELOAD"


@dataclass(frozen=True)
class Launcher:
    """A launcher of ranks that run `python`, whose MPI is `library` or built on it.

    template    command that starts ranks on other hosts; None: the library's own launcher
    """

    library: str
    python: Path
    template: LauncherTemplate | None = None

    @classmethod
    def find(
        cls,
        library: str | None = None,
        python: Path = Path(sys.executable),
        template: LauncherTemplate | None = None,
    ) -> Launcher:
        """Return a launcher for the MPI of an interpreter.

        library     MPI library that the interpreter must have; None: any

        Raises ProbeError where the interpreter has another library or none, and where there is no
        launcher of the same library and version.
        """
        if library is not None and library not in PROFILES:
            known = ", ".join(PROFILES)
            raise ProbeError(f"no launcher for MPI library {library!r}: choose one of {known}")
        found = inspect_interpreter(python)
        if library not in (None, found.base):
            raise ProbeError(
                f"{python} loads {found.identity}, which is not {library}: give an interpreter of"
                f" an environment with {library} (--python)"
            )
        if template is None:
            find_launcher_executable(found)
        return cls(found.base, python, template)

    @property
    def profile(self) -> LibraryProfile:
        return PROFILES[self.library]

    @property
    def installation(self) -> Installation:
        """The MPI of the interpreter; raises ProbeError."""
        return inspect_interpreter(self.python)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the MPI library; raises ProbeError."""
        return self.installation.capabilities

    @property
    def executable(self) -> Path:
        """The path of mpirun or mpiexec; raises ProbeError when there is none."""
        return find_launcher_executable(self.installation)

    @property
    def start_command(self) -> str:
        """The template of the command that starts ranks, or the name of the library's own."""
        return shlex.join(self.template.words) if self.template else self.executable.name

    @property
    def compiler(self) -> Path | None:
        """The library's `mpicc` beside its launcher; None without one."""
        return find_mpicc(self.executable)

    def version(self) -> str:
        """Return a name such as `openmpi 5.0.11`; raises ProbeError without an MPI."""
        return self.installation.library

    def libmpi(self) -> Path:
        """Return the MPI library that the ranks load; raises ProbeError when they load none."""
        return self.installation.libmpi

    def command(
        self,
        ranks: int,
        arguments: Sequence[str],
        settings: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> list[str]:
        """Return the command that starts `ranks` ranks with `arguments` on this computer.

        It is the command that a user would type: binding, mapping and waiting are the library's
        defaults, and oversubscription is requested only for more ranks than cores.

        settings    MCA parameters for Open MPI, control variables (MPIR_CVAR_...) for MPICH,
                    variables (I_MPI_...) for Intel MPI
        program     compiled program to run; None: the interpreter
        """
        words = [str(self.executable)]
        if self.executable.name == SRUN:
            words += ["--nodes=1", f"--ntasks={ranks}", "--overcommit", "--kill-on-bad-exit=1"]
            given = self.profile.environment(settings or {})
            words += ["/usr/bin/env", *(f"{name}={value}" for name, value in given.items())]
        else:
            words += self.profile.root_option if os.geteuid() == 0 else ()
            words += self.profile.oversubscribe_option if ranks > physical_cores() else ()
            words += self.profile.setting_words(settings or {})
            words += [self.profile.ranks_option, str(ranks)]
        return [*words, str(program or self.python), *arguments]

    def command_on_hosts(
        self,
        hosts: Hosts,
        ppn: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> list[str]:
        """Return the command that starts `ppn` ranks on each of `hosts`; see `command`."""
        template = self.template or LauncherTemplate.parse(self.library)
        words = template.command(
            [str(program or self.python), *arguments],
            {**self.profile.environment(settings or {}), **environment},
            hosts,
            ppn,
        )
        if words[0] in ("mpirun", "mpiexec"):  # the one of this library, not the first on PATH
            words[0] = str(self.executable)
        return words

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        hosts: Hosts = LOCAL_HOST,
        ppn: int | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        check: bool = True,
        program: Path | None = None,
    ) -> CompletedRun:
        """Start the ranks, pass each line of their output to `on_line`, wait for the end.

        ppn                 ranks per host; None: `ranks` divided by the number of hosts
        settings            see `command`
        environment         variables for the ranks
        on_line             takes a line; may return a new silence timeout
        timeout             seconds for the whole run; None: no limit
        silence_timeout     seconds that the ranks may stay silent; None: no limit
        check               whether to raise LaunchFailedError when the ranks fail
        program             compiled program that they run with `arguments`; None: the interpreter

        `tuner` is importable in the ranks in any environment. An exception in `on_line` and Ctrl-C
        end the ranks. Raises LaunchTimeoutError when they stay silent or run for too long,
        InputError when `ranks` is not `ppn` times the number of `hosts`.
        """
        forwarded = dict(environment or {})
        with search_path(hosts.is_local, forwarded.get("PYTHONPATH")) as path:
            if program is None:
                forwarded = {**SINGLE_THREAD_VARIABLES, **forwarded, "PYTHONPATH": path}
            known = {**os.environ, **forwarded}
            if hosts.is_local:
                command = self.command(ranks, arguments, settings, program)
            else:
                each = ranks // len(hosts.names) if ppn is None else ppn
                if each * len(hosts.names) != ranks:
                    raise InputError(f"{ranks} ranks are not {each} on each of {len(hosts.names)}")
                command = self.command_on_hosts(
                    hosts, each, arguments, forwarded, settings, program
                )
                if self.template is None or self.template in TEMPLATES.values():
                    known |= connection_environment(os.environ)
            run = run_streaming(command, known, on_line, timeout, silence_timeout, str(hosts))
        if check and run.returncode != 0:
            raise LaunchFailedError(self.explain_failure(run, ranks, hosts))
        return run

    def explain_failure(self, run: CompletedRun, ranks: int, hosts: Hosts = LOCAL_HOST) -> str:
        """Return one sentence on why a launch failed and what to do."""
        executable = self.executable if self.template is None else self.template.words[0]
        return failures.explain_failure(
            run,
            executable=str(executable),
            python=str(self.python),
            library=self.profile.pip_package,
            ranks=ranks,
            multi_host=not hosts.is_local,
        )


def physical_cores() -> int:
    """Return the number of cores of these processors, which are launchers' default slots."""
    topology = (
        Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        for number in os.sched_getaffinity(0)
    )
    siblings = {file.read_text() for file in topology if file.is_file()}
    return len(siblings) or available_cores()


def loaded_libmpi(library: str, python: Path) -> Path:
    """Return the MPI library that ranks of `python` load; raises ProbeError when there is none."""
    return Launcher.find(base_of(library), python).libmpi()


@dataclass(frozen=True)
class MultiHostLauncher:
    """A launcher that starts `ppn` ranks on each host, or `ppn` + 1 where more are requested.

    It starts no more where the library's launcher does not bear it (`starts_spare_ranks`). On this
    computer it starts as many as are requested.
    """

    launcher: Launcher
    hosts: Hosts
    ppn: int

    @property
    def library(self) -> str:
        return self.launcher.library

    @property
    def python(self) -> Path:
        return self.launcher.python

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **known: Any,
    ) -> CompletedRun:
        """Run ranks on all hosts, see `Launcher.run`.

        An LD_PRELOAD in `environment` is appended to that of this process.
        """
        more = ranks > self.ppn * len(self.hosts.names) and self.launcher.profile.starts_spare_ranks
        ppn = self.ppn + more
        given = dict(environment or {})
        if PRELOAD_VARIABLE in given:
            given[PRELOAD_VARIABLE] = ":".join(
                filter(None, [os.environ.get(PRELOAD_VARIABLE), given[PRELOAD_VARIABLE]])
            )
        number = ranks if self.hosts.is_local else ppn * len(self.hosts.names)
        return self.launcher.run(
            number, arguments, hosts=self.hosts, ppn=ppn, environment=given, **known
        )
