"""Install the packages of a lock file into a virtual environment, and print the progress.

    environment.py DIRECTORY LOCK                 the packages alone
    environment.py DIRECTORY LOCK editable        also this project, with its command
    environment.py DIRECTORY LOCK importable      also a path to this project, for ranks
    environment.py --sizes FOLDER                 print requirements.sizes for a folder of wheels

With `editable` the simulation is compiled while most packages are still being fetched.

It runs before anything is installed, so it uses the standard library alone. The estimate of the
remaining time starts from the sizes in requirements.sizes, which `make locks` writes; the sizes
that pip prints replace them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROJECT_DIR = Path(__file__).parent
SIZES_FILE = PROJECT_DIR / "requirements.sizes"
MB = 1_000_000  # as pip counts
UNITS = {"bytes": 1, "kB": 1000, "MB": MB, "GB": 1000 * MB}
UNPACK_RATE = 10 * MB  # bytes of packages per second
REDRAW_INTERVAL_S = 0.5  # seconds between updates of the line on a terminal
LINE_INTERVAL_S = 10.0  # seconds between lines of a log
COMPILE = ("-P", "-m", "tuner.sim.warmup")
COMPILE_NEEDS = ("llvmlite", "numba", "numpy", "pyyaml", "scipy")  # packages that it imports
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
PIP_SETTINGS = {"PIP_PROGRESS_BAR": "off", "PIP_ROOT_USER_ACTION": "ignore"}
LIST_INSTALLED = (
    "from importlib.metadata import distributions\n"
    "for found in distributions(): print(found.name + '==' + found.version)"
)
DOWNLOAD_PATTERN = re.compile(
    r"(?:Downloading|Using cached) (\S+(?:\.whl|\.tar\.gz)) \(([\d.]+) (bytes|kB|MB|GB)\)"
)
LOCAL_FILE_PATTERN = re.compile(r"Processing (\S+)")


class SetupError(Exception):
    """An error with a sentence for the user."""


def normalize(requirement: str) -> str:
    """Return `NAME==VERSION` with the name as package indexes write it."""
    name, _, version = requirement.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def requirement_of_file(path: str) -> str:
    """Return `NAME==VERSION` for the file of a wheel or a source archive."""
    name = Path(path).name
    stem = name.removesuffix(".tar.gz")
    parts = name.split("-") if name.endswith(".whl") else stem.rsplit("-", 1)
    return normalize("==".join(parts[:2]))


def read_sizes() -> dict[str, int]:
    """Return the size in bytes of every package that requirements.sizes has."""
    lines = SIZES_FILE.read_text(encoding="utf-8").splitlines()
    return {name: int(size) for name, size in map(str.split, lines)}


def read_entries(lock: Path) -> dict[str, str]:
    """Return the text of every package of a lock, with its hashes."""
    text = lock.read_text(encoding="utf-8")
    entries = re.findall(r"^[\w.-]+==.*(?:\n[ \t]+.*)*\n", text, re.MULTILINE)
    return {normalize(re.split(r"[\s;\\]", entry)[0]): entry for entry in entries}


@dataclass
class Progress:
    """Progress of an installation, from the output of pip and the files that it has fetched.

    expected    size in bytes of each package that is missing
    folder      temporary directory of pip, with the files that are not installed yet
    """

    expected: dict[str, int]
    folder: Path
    start_time: float = field(default_factory=time.monotonic)
    unpack_start_time: float = 0.0  # 0: pip still fetches

    def parse_line(self, line: str) -> None:
        """Update the sizes and the state from one line of pip's output."""
        if found := DOWNLOAD_PATTERN.search(line):
            self.expected[requirement_of_file(found[1])] = round(float(found[2]) * UNITS[found[3]])
        elif found := LOCAL_FILE_PATTERN.search(line):
            self.expected.pop(requirement_of_file(found[1]), None)  # nothing to fetch
        elif "Installing collected packages" in line:
            self.unpack_start_time = time.monotonic()

    @property
    def total(self) -> int:
        """Return the size of all packages in bytes."""
        return sum(self.expected.values())

    def text(self) -> str:
        """Return the megabytes that were fetched, those in total, and the remaining time."""
        unpack_time = self.total / UNPACK_RATE
        if self.unpack_start_time:
            rest = self.unpack_start_time + unpack_time - time.monotonic()
            return f"unpacking, {format_duration(rest)} left"
        fetched = min(sum(file_sizes(self.folder)), self.total)
        shown = f"{fetched / MB:.0f} of {self.total / MB:.0f} MB"
        if fetched <= self.total / 100:
            return shown
        rest = (time.monotonic() - self.start_time) * (self.total - fetched) / fetched
        return f"{shown}, {format_duration(rest + unpack_time)} left"


def file_sizes(folder: Path) -> Iterator[int]:
    """Yield the size in bytes of every file in a folder, while pip writes to it."""
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:
            continue  # pip has moved it meanwhile


def format_duration(seconds: float) -> str:
    """Return minutes and seconds, such as `2:05`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class StatusLine:
    """One line that is redrawn on a terminal, or lines at intervals in a log."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._redraws = sys.stdout.isatty()
        self._interval = REDRAW_INTERVAL_S if self._redraws else LINE_INTERVAL_S
        self._last_time = time.monotonic() - REDRAW_INTERVAL_S

    def show(self, text: str) -> None:
        """Print a state, unless the last one was printed less than the interval ago."""
        if time.monotonic() - self._last_time >= self._interval:
            self._last_time = time.monotonic()
            self._print(text, end="" if self._redraws else "\n")

    def finish(self, text: str) -> None:
        """Print the final state."""
        self._print(text, end="\n")

    def _print(self, text: str, end: str) -> None:
        start, clear = ("\r", "\x1b[K") if self._redraws else ("", "")
        print(f"{start}{self._title}: {text}{clear}", end=end, flush=True)


def install(python: Path, lock: Path, title: str, names: Collection[str] = ()) -> None:
    """Install the packages of a lock that are missing; raise SetupError if pip fails.

    names   packages to install; by default all
    """
    installed = set(map(normalize, run_lines(python, "-c", LIST_INSTALLED)))
    entries = {
        name: text
        for name, text in read_entries(lock).items()
        if name not in installed and (not names or name.partition("==")[0] in names)
    }
    if not entries:
        return
    folder = python.parents[1] / "fetched"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wanted = folder / "missing.lock"
    wanted.write_text("".join(entries.values()), encoding="utf-8")
    sizes = read_sizes()
    missing = {name: sizes.get(name, 0) for name in entries}
    progress, line = Progress(missing, folder), StatusLine(title)
    words = [*PIP, "install", "--no-deps", "--require-hashes", "--requirement", str(wanted)]
    try:
        run_pip([python, *words], {"TMPDIR": str(folder)}, progress, line)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    duration = format_duration(time.monotonic() - progress.start_time)
    packages = "1 package" if len(missing) == 1 else f"{len(missing)} packages"
    line.finish(f"{packages}, {progress.total / MB:.0f} MB, in {duration}")


def run_pip(
    command: list[Path | str], environment: dict[str, str], progress: Progress, line: StatusLine
) -> None:
    """Run pip and show its progress; raise SetupError with its errors if it fails."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **PIP_SETTINGS, **environment},
    )
    output = list[str]()

    def read(lines: Iterable[str]) -> None:
        for text in lines:
            output.append(text)
            progress.parse_line(text)

    assert process.stdout is not None
    reader = threading.Thread(target=read, args=(process.stdout,))
    reader.start()
    try:
        while process.poll() is None:
            line.show(progress.text())
            time.sleep(0.1)
    finally:
        process.kill()
        reader.join()
    if process.returncode:
        errors = [text for text in output if text.startswith("ERROR")] or output[-3:]
        raise SetupError(
            f"packages could not be installed; check the network and run make again\n"
            f"{''.join(errors).rstrip()}"
        )


def run_lines(python: Path, *words: str) -> list[str]:
    """Run Python and return the lines that it prints; raise SetupError if it fails."""
    ran = subprocess.run(
        [python, *words],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **PIP_SETTINGS},
    )
    if ran.returncode:
        raise SetupError(f"{python} {words[0]} failed\n{ran.stderr.rstrip()}")
    return ran.stdout.splitlines()


def add_project(python: Path, mode: str) -> None:
    """Install this project in editable mode, or write a .pth file with its directory."""
    if mode == "editable":
        run_lines(
            python,
            *PIP,
            "install",
            "--no-deps",
            "--no-build-isolation",
            "--editable",
            str(PROJECT_DIR),
        )
    else:
        (packages,) = run_lines(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))")
        Path(packages, "tuner.pth").write_text(f"{PROJECT_DIR.resolve()}\n", encoding="utf-8")


def has_pip(python: Path) -> bool:
    """Return whether an environment has pip, which one lacks whose creation was interrupted."""
    if not os.access(python, os.X_OK):
        return False
    return subprocess.run([python, *PIP, "--version"], capture_output=True).returncode == 0


def set_up(directory: Path, lock: Path, mode: str) -> None:
    """Create the environment unless it exists, and install what it lacks."""
    python = directory.absolute() / "bin" / "python"
    if not has_pip(python):
        print(f"{directory}: a new virtual environment", flush=True)
        run_lines(Path(sys.executable), "-m", "venv", "--clear", str(directory))
    if mode != "editable":
        install(python, lock, str(directory))
        if mode:
            add_project(python, mode)
        return
    install(python, lock, str(directory), COMPILE_NEEDS)
    with compiling(python, str(directory)):
        install(python, lock, str(directory))
        add_project(python, mode)


@contextmanager
def compiling(python: Path, title: str) -> Iterator[None]:
    """Compile the simulation beside what is done meanwhile, and wait for its end.

    Where it cannot be compiled, commands say so when they need it.
    """
    process = subprocess.Popen(
        [python, *COMPILE],
        env={**os.environ, "PYTHONPATH": str(PROJECT_DIR.resolve())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        line = StatusLine(title)
        while process.poll() is None:
            line.show("compiling the simulation, once")
            time.sleep(0.1)
        line.finish("the simulation is compiled")
    finally:
        process.kill()
        process.wait()


def main(words: list[str]) -> int:
    """Run the command line and return the exit status."""
    if words[:1] == ["--sizes"]:
        wheels = sorted(Path(words[1]).iterdir())
        print(
            "\n".join(f"{requirement_of_file(path.name)} {path.stat().st_size}" for path in wheels)
        )
        return 0
    directory, lock, mode = [*words, ""][:3]
    try:
        set_up(Path(directory), Path(lock), mode)
    except SetupError as reason:
        print(f"\ntuner: {directory}: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ntuner: {directory}: interrupted; make goes on where it stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
