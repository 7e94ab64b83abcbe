"""The backend `tuner` of `torch.distributed`, with the real PyTorch and the real MPI."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import table_of
from tests.support.services import ETAG, Reply, always, serving
from tests.support.waiting import patience
from tuner.base.errors import ProbeError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, table_record, write_table
from tuner.launch import Launcher
from tuner.launch.failures import CompletedRun

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
TORCHRUN = PYTHON.with_name("torchrun")
CHECKS = [
    line.removeprefix("def ").partition("(")[0]
    for line in (HERE / "backend_program.py").read_text().splitlines()
    if line.startswith("def check_")
]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
TOLERANCE = 2e-5  # of the largest weight, after 100 steps in single precision


@pytest.fixture(scope="module")
def torch_launcher() -> Launcher:
    try:
        return Launcher.find(python=PYTHON)
    except ProbeError as reason:
        pytest.skip(str(reason))


def run(launcher: Launcher, ranks: int, program: str, *words: str, **named: Any) -> CompletedRun:
    environment = ENVIRONMENT | dict(named.pop("environment", {}))
    arguments = [str(HERE / program), *words]
    return launcher.run(ranks, arguments, timeout=patience(30), environment=environment, **named)


def torchrun(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TORCHRUN), "--nproc-per-node", "3", *words],
        env={**os.environ, **ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )


@pytest.fixture(scope="module", params=[2, 3, 4])
def said(request: pytest.FixtureRequest, torch_launcher: Launcher) -> dict[str, str]:
    lines = run(torch_launcher, request.param, "backend_program.py").stdout.splitlines()
    return dict(line.split(": ", 1) for line in lines if line.startswith("check_"))


@pytest.mark.parametrize("check", CHECKS)
def test_calls_do_what_gloo_does(said: dict[str, str], check: str) -> None:
    assert said[check] == "fine"


@pytest.fixture(scope="module")
def steps(torch_launcher: Launcher) -> dict[str, Any]:
    lines = run(torch_launcher, 3, "steps_program.py", "100").stdout.splitlines()
    return {told["way"]: told for told in map(json.loads, lines)}


@pytest.mark.parametrize("way", ["ddp", "accumulated", "joined", "hooked", "zero", "fsdp", "fsdp2"])
def test_a_hundred_steps_train_as_with_gloo(steps: dict[str, Any], way: str) -> None:
    told = steps[way]
    assert told["same"]
    assert told["apart"] < TOLERANCE
    assert told["losses"][1] < told["losses"][0] / 10


def test_the_program_works_while_a_call_waits(torch_launcher: Launcher) -> None:
    told = json.loads(run(torch_launcher, 2, "overlap_program.py").stdout)
    assert told["issued"] < 0.5
    assert told["done"] > 10
    assert told["first"] == 2.0


def test_calls_follow_the_table_of_the_environment(
    torch_launcher: Launcher, tmp_path: Path
) -> None:
    ring = [(0, AlgorithmChoice()), (1000, AlgorithmChoice("ring", {}, SCHEDULE))]
    library = torch_launcher.version()
    write_table(table_of({(Collective.ALLREDUCE, 3): ring}, library=library), tmp_path / "t.json")
    environment = {"TUNER_TABLE": str(tmp_path / "t.json")}
    told = run(torch_launcher, 3, "reporting_program.py", environment=environment)
    assert "[(0, '0'), (1, '1'), (2, '2')] 6" in told.stdout
    assert "1 followed the table (1 allreduce ring via schedule)" in told.stderr


@pytest.mark.usefixtures("own_cache")
def test_the_hook_averages_over_the_group_and_posts_feedback(torch_launcher: Launcher) -> None:
    """Beside gloo, in two process groups of all ranks after one another and two of a pair."""
    ring = {(Collective.ALLREDUCE, 3): [(0, AlgorithmChoice("ring", {}, SCHEDULE))]}
    record = table_record(table_of(ring, library=torch_launcher.version()))
    reply = Reply(json.dumps(record).encode(), headers={"ETag": ETAG})
    with serving(always(reply)) as service:
        environment = {"TUNER_SERVICE": service.url, "TUNER_FEEDBACK": "1", "no_proxy": "*"}
        told = run(torch_launcher, 3, "hook_program.py", "2", environment=environment)
    answer = json.loads(told.stdout)
    assert answer["found"] == answer["expected"]
    assert told.stderr.count("1 followed the table (1 allreduce ring via schedule)") == 2
    posted = [json.loads(seen.body) for seen in service.seen if seen.method == "POST"]
    items = [(each["ranks"], item["algorithm"]) for each in posted for item in each["items"]]
    assert items == [(3, "ring"), (3, "ring")]


def test_the_hook_runs_under_torchrun(torch_launcher: Launcher) -> None:
    ended = torchrun([str(HERE / "hook_program.py")])
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["found"] == answer["expected"]


def test_a_first_group_of_some_ranks_cannot_start_mpi(
    torch_launcher: Launcher, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tuner.torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.new_group([0, 1], backend='tuner')\n"
    )
    ended = torchrun([str(program)])
    assert ended.returncode != 0
    assert "InputError: the first process group of the backend 'tuner' starts MPI" in ended.stderr


def test_a_group_beside_gloo_follows_the_table(torch_launcher: Launcher, tmp_path: Path) -> None:
    """Among some of the ranks, with a default group of another backend."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, tuner.torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "some = dist.new_group([0, 2], backend='tuner')\n"
        "if dist.get_rank() != 1:\n"
        "    total = torch.full((1000,), dist.get_rank() + 1.0)\n"
        "    dist.all_reduce(total, group=some)\n"
        "    print(float(total[0]), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    ended = torch_launcher.run(3, [str(program)], timeout=patience(30), environment=ENVIRONMENT)
    assert ended.stdout.split() == ["4.0", "4.0"]


@pytest.mark.parametrize(("group", "call"), [(0, 4), (600, 4), (4, 0)])
def test_a_message_names_the_limit_that_is_over(
    torch_launcher: Launcher, group: int, call: int
) -> None:
    words = ("failing_program.py", "late", str(group), str(call))
    ended = run(torch_launcher, 2, *words, check=False)
    assert "timeout after 4 s: another rank has ended" in ended.stdout


def test_calls_on_a_destroyed_group_fail(torch_launcher: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, tuner.torch, torch.distributed as dist\n"
        "dist.init_process_group('tuner')\n"
        "group = dist.group.WORLD\n"
        "group.allreduce([torch.ones(3)]).wait()\n"
        "dist.destroy_process_group()\n"
        "try:\n"
        "    group.allreduce([torch.ones(3)]).wait()\n"
        "except dist.DistBackendError as failure:\n"
        "    print(failure, flush=True)\n"
    )
    ended = torch_launcher.run(2, [str(program)], timeout=patience(30), environment=ENVIRONMENT)
    assert ended.stdout.count("has been destroyed") == 2


@pytest.mark.parametrize(
    ("how", "seconds"), [("killed", 0), ("raises", 0), ("exits", 4), ("late", 4)]
)
def test_no_rank_waits_for_ever_for_one_that_ended(
    torch_launcher: Launcher, how: str, seconds: int
) -> None:
    begun = time.monotonic()
    ended = run(torch_launcher, 3, "failing_program.py", how, str(seconds), check=False)
    assert ended.returncode != 0
    assert time.monotonic() - begun < patience(3)
    if seconds:
        told = [line for line in ended.stdout.splitlines() if line.startswith("DistBackendError")]
        assert told
        assert f"timeout after {seconds} s: another rank has ended" in told[0]


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_torchrun_ends_when_a_rank_does(torch_launcher: Launcher, how: str) -> None:
    ended = torchrun([str(HERE / "failing_program.py"), how, "0"])
    assert ended.returncode != 0
    assert "failing_program.py FAILED" in ended.stderr


def test_torchrun_starts_the_ranks(torch_launcher: Launcher) -> None:
    ended = torchrun([str(HERE / "reporting_program.py")])
    assert ended.returncode == 0, ended.stderr
    assert "[(0, '0'), (1, '1'), (2, '2')] 6" in ended.stdout


def test_torchrun_without_a_launcher_says_what_to_do(
    torch_launcher: Launcher, tmp_path: Path
) -> None:
    """The launcher beside the interpreter is replaced by one that starts nothing."""
    program = tmp_path / "program.py"
    program.write_text(
        "import tuner.torch.joining\n"
        "tuner.torch.joining.launcher_command = lambda names, program: ['/bin/false']\n"
        + (HERE / "reporting_program.py")
        .read_text()
        .replace("from __future__ import annotations", "")
    )
    ended = torchrun([str(program)])
    assert ended.returncode != 0
    assert "MPI cannot be started under torchrun: false starts no ranks" in ended.stderr
    assert "start the program with mpirun instead" in ended.stderr


def test_hosts_need_the_same_number_of_ranks(torch_launcher: Launcher) -> None:
    program = (
        "from tuner.torch.joining import launcher_command\n"
        "print(launcher_command(['a', 'a', 'b', 'b'], ['p.py']))\n"
        "launcher_command(['a', 'b', 'a', 'a'], ['p.py'])"
    )
    ended = subprocess.run(
        [str(PYTHON), "-c", program],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert "a:2,b:2" in ended.stdout or "'a,b', '-ppn', '2'" in ended.stdout
    assert ended.stderr.splitlines()[-1].endswith("the hosts have different numbers of ranks")


def test_a_program_alone_has_one_rank(torch_launcher: Launcher) -> None:
    ended = subprocess.run(
        [str(PYTHON), str(HERE / "reporting_program.py")],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "[(0, '0')] 1" in ended.stdout


def test_mpi_started_before_torchruns_ranks_is_refused(
    torch_launcher: Launcher, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from mpi4py import MPI\nimport tuner.torch, torch.distributed\n"
        "torch.distributed.init_process_group('tuner')\n"
    )
    ended = torchrun([str(program)])
    assert ended.returncode != 0
    assert "InputError: MPI has rank 0 of 1 where PyTorch has rank" in ended.stderr


def test_too_little_support_of_threads_is_refused(torch_launcher: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import mpi4py\nmpi4py.rc.thread_level = 'single'\nimport tuner.torch, torch.distributed\n"
        "torch.distributed.init_process_group('tuner')\n"
    )
    ended = torch_launcher.run(
        2, [str(program)], timeout=patience(), environment=ENVIRONMENT, check=False
    )
    assert ended.returncode != 0
    assert "InputError: the backend 'tuner' needs MPI_THREAD_MULTIPLE" in ended.stderr
