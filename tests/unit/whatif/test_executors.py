"""Who carries a study out: this process, many processes, a Dask cluster; how it is resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from tests.support.waiting import patience, until
from tuner.base.errors import InputError, TunerError
from tuner.base.signals import EXIT_SIGNAL
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.sim import process_pool
from tuner.whatif import executors
from tuner.whatif.axes import LineRate
from tuner.whatif.checked_study import Study
from tuner.whatif.dask_executor import make_dask_executor
from tuner.whatif.executors import make_parallel_executor
from tuner.whatif.study_checkpoint import checkpoint_file
from tuner.whatif.study_result import StudyResult, result_record
from tuner.whatif.study_runner import CancelledError, run_study
from tuner.whatif.study_spec import FileResolver, study_from_record
from tuner.whatif.study_tasks import StudyTask, TaskTimes, plan_study

pytestmark = pytest.mark.slow

FLAT = {
    "name": "flat",
    "nodes": 16,
    "latency": "2us",
    "bandwidth": "12.5GB/s",
    "cores": 4,
    "local": {"latency": "300ns", "bandwidth": "10GB/s"},
}
SPEC: dict[str, Any] = {
    "name": "small",
    "topology": FLAT,
    "collectives": ["bcast", "allreduce"],
    "vary": {"nodes": [2, 5, 16], "ppn": [1, 2]},
    "sizes": ["1KiB", "256KiB"],
    "algorithms": ["binomial", "chain", "pipeline", "ring", "recursive_doubling", "hierarchical"],
}
LONG = {**SPEC, "vary": {"nodes": [128]}, "sizes": [2**i for i in range(14, 27)]}
PAUSE_S = 0.05
LONGER = {**LONG, "vary": {"nodes": [600, 768, 1000, 1024]}}


def made(**changed: Any) -> Study:
    return study_from_record({**SPEC, **changed}, FileResolver(Path("/nonexistent")))


@pytest.fixture(scope="module")
def serial() -> StudyResult:
    return run_study(made())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes to other processes."""
    monkeypatch.setattr(executors, "MAX_SERIAL_S", -1.0)
    monkeypatch.setattr(executors, "MAX_SHORT_TASK_S", 0.0)
    monkeypatch.setattr(executors, "BATCH_TARGET_S", 0.02)


@pytest.mark.usefixtures("at_once")
def test_processes_give_the_same_numbers_bit_for_bit(serial: StudyResult) -> None:
    assert run_study(made(), executor=make_parallel_executor(2)) == serial


@pytest.mark.extended
@pytest.mark.usefixtures("at_once")
def test_line_rates_and_limits_come_back_from_processes() -> None:
    """Values of an axis that are written in bits keep their text on the way."""
    asked = made(
        topology="preset:dgx-h100",
        vary={"nodes": [2], "bandwidth": ["400Gb/s", "800Gb/s"]},
        algorithms=["ring", "rabenseifner"],
        collectives=["allreduce"],
        sizes=["256KiB"],
    )
    found = run_study(asked, executor=make_parallel_executor(2))
    assert found == run_study(asked)
    rates = [point.coordinates["bandwidth"] for point in found.points]
    assert [rate.text for rate in rates if isinstance(rate, LineRate)] == ["400Gb/s", "800Gb/s"]
    assert all(point.sensitivities for point in found.points)


def test_a_small_study_starts_no_process(
    serial: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "MAX_SERIAL_S", 1e9)
    monkeypatch.setattr(process_pool, "map_unordered", None)
    assert run_study(made(), executor=make_parallel_executor(2)) == serial


@pytest.mark.usefixtures("at_once")
def test_cancelling_ends_the_processes() -> None:
    calls: list[str] = []
    before = children()
    with pytest.raises(CancelledError):
        run_study(
            made(**LONG),
            lambda _, text: calls.append(text),
            lambda: len(calls) > 2,
            executor=make_parallel_executor(2),
        )
    assert children() == before


def children() -> set[int]:
    """Processes of ours that price tasks: all that come from `multiprocessing.spawn`."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = status.read_text().partition("PPid:")[2].split()[0]
            command = status.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == os.getpid() and b"spawn_main" in command:
            found.add(int(status.parent.name))
    return found


def batches_of(tasks: dict[int, StudyTask]) -> list[list[int]]:
    return executors.batch_tasks(tasks)


def test_batches_hold_every_task_once_and_one_machine_each() -> None:
    tasks = dict(
        enumerate(plan_study(made(**{**LONG, "vary": {"nodes": [4, 8]}}), lambda _: None).tasks)
    )
    found = batches_of(tasks)
    assert sorted(number for batch in found for number in batch) == list(tasks)
    for batch in found:
        assert len({tasks[number].grid_index for number in batch}) == 1
        assert sum(len(tasks[number].sizes) for number in batch) <= executors.MAX_TIMES_PER_BATCH
        assert sum(tasks[number].core_seconds for number in batch[:-1]) < executors.BATCH_TARGET_S


# ---- answers that are kept ----------------------------------------------------------------------


def few() -> tuple[Study, tuple[StudyTask, ...]]:
    asked = made()
    return asked, plan_study(asked, lambda _: None).tasks


def interrupted_after(path: Path, number: int, **changed: Any) -> list[int]:
    """Run until so many tasks were answered; the tasks that were carried out."""
    carried: list[int] = []

    def some(asked: Study, tasks: Any) -> Any:
        for answered in executors.run_serial(asked, tasks):
            if len(carried) == number:
                raise KeyboardInterrupt
            carried.extend(n for n, _ in answered)
            yield answered

    with pytest.raises(KeyboardInterrupt), checkpoint_file(path) as keep:
        run_study(made(**changed), executor=some, open_checkpoint=keep)
    return carried


def test_an_interrupted_study_goes_on(tmp_path: Path, serial: StudyResult) -> None:
    path = tmp_path / "s.partial"
    done = interrupted_after(path, 7)
    candidates, _ = resumed(path, serial)
    assert len(done) == 7
    assert sorted(done + candidates) == list(range(len(few()[1])))
    assert list(tmp_path.iterdir()) == []


def resumed(path: Path, expected: StudyResult) -> list[list[int]]:
    """The tasks that a resumed study carries out: of candidates, and of limits."""
    carried: list[list[int]] = []

    def watched(asked: Study, tasks: Any) -> Any:
        carried.append(list(tasks))
        yield from executors.run_serial(asked, tasks)

    with checkpoint_file(path) as keep:
        assert run_study(made(), executor=watched, open_checkpoint=keep) == expected
    return carried


def test_a_search_for_limits_goes_on(tmp_path: Path, serial: StudyResult) -> None:
    """Both files stay: that of the candidates, which are all answered, and that of the limits."""
    path, number = tmp_path / "s.partial", len(few()[1])
    interrupted_after(path, number + 5)
    assert len(list(tmp_path.iterdir())) == 2
    candidates, limits = resumed(path, serial)
    assert candidates == []
    assert limits[0] == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", [1, 5])
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: int, serial: StudyResult) -> None:
    path = tmp_path / "s.partial"
    interrupted_after(path, 7)
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    with checkpoint_file(path) as keep:
        answers = keep(*few())
        assert len(answers.times) == 6
        answers.add(200, None)
        assert path.read_bytes() == whole[: whole[:-1].rindex(b"\n") + 1] + b"[200, null]\n"


def test_nothing_is_left_of_a_study_that_did_not_begin(tmp_path: Path) -> None:
    interrupted_after(tmp_path / "s.partial", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_study_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "s.partial"
    interrupted_after(path, 3)
    before = path.read_bytes()
    with (
        pytest.raises(InputError, match="of another study, of this one before it was changed"),
        checkpoint_file(path) as keep,
    ):
        run_study(made(sizes=["2KiB"]), open_checkpoint=keep)
    assert path.read_bytes() == before


def test_a_study_is_not_resumed_by_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.partial"
    interrupted_after(path, 3)
    monkeypatch.setattr("tuner.whatif.study_checkpoint.CODE_VERSION", "0.2.0+changed")
    with pytest.raises(InputError, match="or of another version of tuner: delete the file"):
        resumed(path, run_study(made()))


def test_two_at_once_are_told(tmp_path: Path) -> None:
    path = tmp_path / "s.partial"
    with checkpoint_file(path) as keep, checkpoint_file(path) as other:
        keep(*few())
        with pytest.raises(InputError, match="another process is at work on this study"):
            other(*few())


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[0]",
        "[-1, null]",
        "[1e9, null]",
        '[0, "x"]',
        "[0, [1.0, 2.0, 3.0, 4.0]]",
        "[0, [true]]",
        "[0, [-1.0]]",
        "[0, [NaN]]",
        "[" * 100_000,
    ],
)
def test_damaged_answers_are_refused_by_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "s.partial"
    interrupted_after(path, 3)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with (
        pytest.raises(InputError, match="line 3: not an answer; give --restart"),
        checkpoint_file(path) as k,
    ):
        k(*few())


def test_a_directory_is_no_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "/"]) == 1
    assert "tuner: /: cannot be read: Is a directory" in capsys.readouterr().err


def test_answers_that_cannot_be_kept(tmp_path: Path) -> None:
    missing = tmp_path / "absent" / "s.partial"
    with (
        pytest.raises(InputError, match="cannot be kept beside the study"),
        checkpoint_file(missing) as k,
    ):
        k(*few())


# ---- the real command ---------------------------------------------------------------------------


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`tuner study` in a session of its own, as a terminal starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuner.cli.main", "study", "study.yaml", *options],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def answered(folder: Path) -> int:
    path = folder / "study.yaml.partial"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def wait_for(folder: Path, number: int, running: subprocess.Popen[str]) -> None:
    """Until so many tasks are answered, of which the rest may take a second."""
    until(lambda: running.poll() is not None or answered(folder) >= number, longest_pause_s=PAUSE_S)
    assert running.poll() is None, running.communicate()


@pytest.fixture
def long_study(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(json.dumps(LONG))
    return tmp_path


def test_a_killed_study_is_resumed(long_study: Path) -> None:
    """SIGKILL of the process alone: those that it started notice, and answers are kept."""
    running = started(long_study, "--jobs", "2")
    wait_for(long_study, 30, running)
    children = [
        int(pid)
        for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    ]
    running.kill()
    running.communicate()
    kept = answered(long_study)
    assert kept >= 30
    assert main(["study", str(long_study / "study.yaml"), "--json", "--jobs", "1"]) == 0
    assert not (long_study / "study.yaml.partial").exists()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.representative("2")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_the_end_of_a_batch_job_say_how_to_go_on(
    long_study: Path, sent: signal.Signals
) -> None:
    """To all processes at once, as terminals and batch systems send it."""
    running = started(long_study, "--jobs", "2", "--json")
    wait_for(long_study, 10, running)
    os.killpg(running.pid, sent)
    out, error = running.communicate(timeout=patience())
    assert running.returncode == EXIT_SIGNAL + sent
    assert out == ""
    assert "the same command again resumes; what is finished is kept" in error
    assert "Traceback" not in error
    assert "resource_tracker" not in error
    assert answered(long_study) >= 10
    resumed = started(long_study, "--json")
    out, error = resumed.communicate(timeout=patience())
    assert (resumed.returncode, json.loads(out)["name"]) == (0, "small")
    assert re.search(r"going on from \d+%: \d+ of \d+ schedules are answered already", error)
    assert [path.name for path in long_study.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b"\xff\x00" * 999, b'{"a": 1}'])
def test_what_is_in_the_way_of_the_answers_is_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.partial"
    path.write_bytes(content)
    with pytest.raises(InputError, match="was not written by one"), checkpoint_file(path) as keep:
        keep(*few())
    assert path.read_bytes() == content


@pytest.fixture
def small_study(tmp_path: Path) -> Path:
    (tmp_path / "flat.json").write_text(json.dumps(FLAT))
    tiny = {**SPEC, "topology": "flat.json", "vary": {}, "sizes": [8]}
    (tmp_path / "study.json").write_text(json.dumps(tiny))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--csv", "study.json"), "study.json is read as well"),
        (("--csv", "flat.json"), "flat.json is read as well"),
        (("--csv", "."), "is a folder"),
        (("--csv", "/proc/x.csv"), "/proc/x.csv: cannot be written"),
        (("--plots", "flat.json"), "flat.json is a file: give the name of a folder"),
    ],
)
def test_targets_are_looked_at_before_anything_is_simulated(
    small_study: Path,
    options: tuple[str, ...],
    sentence: str,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(small_study)
    before = {path.name: path.read_bytes() for path in small_study.iterdir()}
    assert main(["study", "study.json", *options]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "simulating" not in error
    assert {path.name: path.read_bytes() for path in small_study.iterdir()} == before


def test_what_was_written_and_the_progress_are_told_on_standard_error(
    small_study: Path, capsys: Any
) -> None:
    target = small_study / "s.csv"
    assert main(["study", str(small_study / "study.json"), "--csv", str(target)]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("small: the best algorithm on flat")
    assert "simulating" in error
    rows = target.read_text().count("\n") - 1
    assert f"s.csv: {rows} times of 2 points" in " ".join(error.split())


def test_answers_stay_where_a_result_cannot_be_written(small_study: Path, capsys: Any) -> None:
    pipe = small_study / "pipe"
    os.mkfifo(pipe)
    assert main(["study", str(small_study / "study.json"), "--csv", str(pipe)]) == 1
    assert "no process reads it; the answers stay in" in capsys.readouterr().err
    assert (small_study / "study.json.partial").exists()


def test_fresh_starts_anew_and_a_changed_study_says_so(
    long_study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = long_study / "study.yaml"
    path.write_text(json.dumps(SPEC))
    (long_study / "study.yaml.partial").write_text('{"kind": "partial study"}\n')
    assert main(["study", str(path)]) == 1
    assert "study.yaml.partial: holds the answers of another study" in capsys.readouterr().err
    assert main(["study", str(path), "--restart"]) == 0


@pytest.mark.parametrize("jobs", ["0", "x", "-1", "5000"])
def test_a_number_of_processes(jobs: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["study", str(tmp_path / "s.yaml"), "--jobs", jobs]) == 2
    assert "--jobs is a number of processes from 1 to 1024" in capsys.readouterr().err


# ---- a Dask cluster -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A scheduler and two processes on loopback."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", silence_logs=50
    ) as running:
        yield running


@pytest.mark.extended
def test_a_dask_cluster_gives_the_same_numbers(
    cluster: LocalCluster, serial: StudyResult, tmp_path: Path, capsys: Any
) -> None:
    address = str(cluster.scheduler_address)
    assert run_study(made(), executor=make_dask_executor(address)) == serial
    (tmp_path / "study.yaml").write_text(json.dumps(SPEC))
    assert main(["study", str(tmp_path / "study.yaml"), "--dask", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(result_record(serial)))


@pytest.mark.extended
def test_a_study_on_a_cluster_is_cancelled(cluster: LocalCluster) -> None:
    calls: list[str] = []
    with pytest.raises(CancelledError):
        run_study(
            made(**LONG),
            lambda _, text: calls.append(text),
            lambda: len(calls) > 1,
            executor=make_dask_executor(str(cluster.scheduler_address)),
        )


def test_an_error_on_the_cluster_is_told(cluster: LocalCluster) -> None:
    """What pricing refuses there is one sentence here; anything else names the cluster."""
    address = str(cluster.scheduler_address)
    asked = made()
    unknown = StudyTask(99, asked.collectives[0], "ring", {}, (8,), 1.0)  # there is no such machine
    with pytest.raises(TunerError, match="the Dask cluster lost a task"):
        list(make_dask_executor(address)(asked, {0: unknown}))
    odd = StudyTask(0, asked.collectives[0], "linear", {}, (1 << 61,), 1.0)
    with pytest.raises(InputError, match="a message has 0 to"):
        list(make_dask_executor(address)(asked, {0: odd}))


@pytest.mark.parametrize(
    "address", ["nonsense", "host:x", "tcp://", "x://h:1", "tcp://127.0.0.1", "h:99999"]
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(InputError, match=r"written like tcp://10\.0\.0\.1:8786, not '"):
        make_dask_executor(address)


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.whatif.dask_executor.TIMEOUT_S", 0.5)
    with pytest.raises(InputError, match="no Dask scheduler answers at tcp://127"):
        list(make_dask_executor("tcp://127.0.0.1:1")(*few_mapped()))


def few_mapped() -> tuple[Study, dict[int, StudyTask]]:
    asked, tasks = few()
    return asked, dict(enumerate(tasks))


def test_a_scheduler_without_anybody_to_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.whatif.dask_executor.TIMEOUT_S", 1.0)
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0", silence_logs=50) as c,
        pytest.raises(InputError, match="has no workers: start some with"),
    ):
        list(make_dask_executor(str(c.scheduler_address))(*few_mapped()))


@pytest.mark.weekly
def test_a_scheduler_that_dies_is_told_in_one_sentence(long_study: Path) -> None:
    """The command goes on where it was with another scheduler, or without one."""
    (long_study / "study.yaml").write_text(json.dumps(LONGER))
    place = long_study / "place.json"
    dask = [sys.executable, "-m", "dask"]
    listening = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    scheduler = subprocess.Popen(
        [*dask, "scheduler", *listening, "--scheduler-file", str(place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: scheduler.poll() is not None or place.exists())
    address = json.loads(place.read_text())["address"]
    other = subprocess.Popen(
        [*dask, "worker", address, "--no-dashboard", "--no-nanny"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        running = started(long_study, "--dask", address)
        wait_for(long_study, 1, running)
        scheduler.kill()
        _, error = running.communicate(timeout=patience())
    finally:
        for process in (other, scheduler):
            process.kill()
            process.wait()
    assert running.returncode == 1
    said = error.splitlines()[-1]
    assert said.startswith(f"tuner: the Dask scheduler at {address} no longer answers")
    assert "distributed" not in error
    assert "Traceback" not in error
    assert answered(long_study) >= 1


def test_an_answer_may_be_that_the_algorithm_is_not_for_so_many_ranks() -> None:
    wrong = StudyTask(0, Collective.BCAST, "chain", {"chains": -1}, (8,), 1.0)
    answers: list[tuple[int, TaskTimes]] = next(executors.run_serial(made(), {0: wrong}))
    assert answers == [(0, None)]
