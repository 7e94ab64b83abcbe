"""Make a virtual environment hold what a lock lists, and say how much has come and what is left.

    environment.py DIRECTORY LOCK                 the packages alone
    environment.py DIRECTORY LOCK editable        and this project, with its command
    environment.py DIRECTORY LOCK importable      and a path to this project, for ranks
    environment.py --sizes FOLDER                 print the file SIZES for the wheels in a folder

It runs before anything is installed, so it uses the standard library alone. SIZES, made together
with the locks, says how large the packages are; what pip announces corrects that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SIZES = Path(__file__).with_name("requirements.sizes")
HERE = Path(__file__).parent
MB = 1_000_000  # as pip counts
UNITS = {"bytes": 1, "kB": 1000, "MB": MB, "GB": 1000 * MB}
UNPACKING = 10 * MB  # bytes of packages that are unpacked in a second
REDRAWN = 0.5  # seconds between two states of the line on a terminal
LINE_EVERY = 10.0  # seconds between lines elsewhere
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
QUIET = {"PIP_PROGRESS_BAR": "off", "PIP_ROOT_USER_ACTION": "ignore"}
INSTALLED = (
    "from importlib.metadata import distributions\n"
    "for one in distributions(): print(one.name + '==' + one.version)"
)
ANNOUNCED = re.compile(
    r"(?:Downloading|Using cached) (\S+(?:\.whl|\.tar\.gz)) \(([\d.]+) (bytes|kB|MB|GB)\)"
)
LOCAL = re.compile(r"Processing (\S+)")


class SetupError(Exception):
    """A sentence for the user."""


def normalized(requirement: str) -> str:
    """Return `NAME==VERSION` with the name as package indexes write it."""
    name, _, version = requirement.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def of_file(path: str) -> str:
    """Return `NAME==VERSION` of a wheel or a source archive."""
    name = Path(path).name
    stem = name.removesuffix(".tar.gz")
    parts = name.split("-") if name.endswith(".whl") else stem.rsplit("-", 1)
    return normalized("==".join(parts[:2]))


def listed(lock: Path) -> dict[str, int]:
    """Return the bytes of every package of a lock, 0 where SIZES does not know them."""
    known = dict(line.split() for line in SIZES.read_text(encoding="utf-8").splitlines())
    names = re.findall(r"^[\w.-]+==[^\s;\\]+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: int(known.get(name, 0)) for name in map(normalized, names)}


@dataclass
class Progress:
    """Follow what pip says and fetches.

    expected    bytes of each package that is missing
    folder      where pip keeps what it fetched until it is installed
    """

    expected: dict[str, int]
    folder: Path
    begun: float = field(default_factory=time.monotonic)
    unpacking: float = 0.0  # when that began

    def hear(self, line: str) -> None:
        """Take in one line of pip."""
        if found := ANNOUNCED.search(line):
            self.expected[of_file(found[1])] = round(float(found[2]) * UNITS[found[3]])
        elif found := LOCAL.search(line):
            self.expected.pop(of_file(found[1]), None)  # it is here already
        elif "Installing collected packages" in line:
            self.unpacking = time.monotonic()

    @property
    def total(self) -> int:
        """Return the bytes of all packages."""
        return sum(self.expected.values())

    def text(self) -> str:
        """Return how much has come, of how much, and how long everything still takes."""
        unpacking = self.total / UNPACKING
        if self.unpacking:
            return f"unpacking, {clock(self.unpacking + unpacking - time.monotonic())} left"
        come = min(sum(sizes(self.folder)), self.total)
        shown = f"{come / MB:.0f} of {self.total / MB:.0f} MB"
        if come <= self.total / 100:
            return shown
        rest = (time.monotonic() - self.begun) * (self.total - come) / come
        return f"{shown}, {clock(rest + unpacking)} left"


def sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of all files, also of those that are growing."""
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:
            continue  # pip has just moved it


def clock(seconds: float) -> str:
    """Return `2:05`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class Line:
    """One line that is redrawn on a terminal; elsewhere a line now and then."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._redrawn = sys.stdout.isatty()
        self._every = REDRAWN if self._redrawn else LINE_EVERY
        self._last = time.monotonic() - REDRAWN

    def show(self, text: str) -> None:
        """Print a state unless the last one is recent."""
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._print(text, end="" if self._redrawn else "\n")

    def finish(self, text: str) -> None:
        """Print what stays."""
        self._print(text, end="\n")

    def _print(self, text: str, end: str) -> None:
        start, clear = ("\r", "\x1b[K") if self._redrawn else ("", "")
        print(f"{start}{self._title}: {text}{clear}", end=end, flush=True)


def install(python: Path, lock: Path, title: str) -> None:
    """Install what is missing; raises SetupError where pip fails."""
    have = set(map(normalized, said(python, "-c", INSTALLED)))
    missing = {name: size for name, size in listed(lock).items() if name not in have}
    if not missing:
        return
    folder = python.parents[1] / "fetched"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    progress, line = Progress(missing, folder), Line(title)
    words = [*PIP, "install", "--require-hashes", "--requirement", str(lock)]
    try:
        follow(python, words, {"TMPDIR": str(folder)}, progress, line)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took = clock(time.monotonic() - progress.begun)
    packages = "1 package" if len(missing) == 1 else f"{len(missing)} packages"
    line.finish(f"{packages}, {progress.total / MB:.0f} MB, in {took}")


def follow(
    python: Path, words: list[str], environment: dict[str, str], progress: Progress, line: Line
) -> None:
    """Run pip and show its progress; raises SetupError with its last words where it fails."""
    running = subprocess.Popen(
        [python, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **QUIET, **environment},
    )
    heard = list[str]()

    def listen(lines: Iterable[str]) -> None:
        for each in lines:
            heard.append(each)
            progress.hear(each)

    assert running.stdout is not None
    listener = threading.Thread(target=listen, args=(running.stdout,))
    listener.start()
    try:
        while running.poll() is None:
            line.show(progress.text())
            time.sleep(0.1)
    finally:
        running.kill()
        listener.join()
    if running.returncode:
        errors = [each for each in heard if each.startswith("ERROR")] or heard[-3:]
        raise SetupError(
            f"packages could not be installed; check the network and run make again\n"
            f"{''.join(errors).rstrip()}"
        )


def said(python: Path, *words: str) -> list[str]:
    """Return the lines that a program prints; raises SetupError where it fails."""
    done = subprocess.run(
        [python, *words],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **QUIET},
    )
    if done.returncode:
        raise SetupError(f"{python} {words[0]} failed\n{done.stderr.rstrip()}")
    return done.stdout.splitlines()


def add_project(python: Path, how: str) -> None:
    """Install this project so that its sources stay where they are, or put it on the path."""
    if how == "editable":
        said(python, *PIP, "install", "--no-deps", "--no-build-isolation", "--editable", str(HERE))
    else:
        (packages,) = said(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))")
        Path(packages, "tuner.pth").write_text(f"{HERE.resolve()}\n", encoding="utf-8")


def has_pip(python: Path) -> bool:
    """Return whether an environment is whole: interrupted while it is made, it lacks pip."""
    if not os.access(python, os.X_OK):
        return False
    return subprocess.run([python, *PIP, "--version"], capture_output=True).returncode == 0


def set_up(directory: Path, lock: Path, how: str) -> None:
    """Make the environment, or add to it what it lacks."""
    python = directory.absolute() / "bin" / "python"
    if not has_pip(python):
        print(f"{directory}: a new virtual environment", flush=True)
        said(Path(sys.executable), "-m", "venv", "--clear", str(directory))
    install(python, lock, str(directory))
    if how:
        add_project(python, how)


def main(words: list[str]) -> int:
    """Return the exit status."""
    if words[:1] == ["--sizes"]:
        wheels = sorted(Path(words[1]).iterdir())
        print("\n".join(f"{of_file(path.name)} {path.stat().st_size}" for path in wheels))
        return 0
    directory, lock, how = [*words, ""][:3]
    try:
        set_up(Path(directory), Path(lock), how)
    except SetupError as reason:
        print(f"\ntuner: {directory}: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ntuner: {directory}: interrupted; make goes on where it stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
