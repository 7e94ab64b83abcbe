"""How the field check starts launches, reads what they print, and keeps them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.field import launches
from tests.field.check import main, tuned_first
from tests.field.launches import PATTERNS, Program, parse, require_no_tuning
from tests.field.record import Pair, Record
from tests.field.tables import CheckError, Use

STATE = '{"ranks": 2, "message_ns": 120.5, "cache_bytes": 33554432}'


def line(call: str, pattern: str, seconds: float, wrong: int = 0) -> str:
    entry = {"call": call, "pattern": pattern, "seconds": seconds, "samples": 9, "wrong": wrong}
    return json.dumps(entry)


def output(call: str = "bcast:12", wrong: int = 0) -> str:
    lines = [line(call, pattern, 1e-6 * i, wrong) for i, pattern in enumerate(PATTERNS, 1)]
    return "\n".join([STATE, *lines])


def test_output_is_read() -> None:
    launched = parse(output(wrong=2))
    assert launched.message_ns == 120.5
    assert launched.seconds["bcast:12", "row/same"] == pytest.approx(3e-6)
    assert launched.wrong == {"bcast:12": 2}


@pytest.mark.parametrize("bad", ["warning", "[1]", '{"call": "bcast:4"}', "3"])
def test_other_output_is_refused(bad: str) -> None:
    with pytest.raises(CheckError, match="unexpected line of collective_times"):
        parse(f"{STATE}\n{bad}")
    with pytest.raises(CheckError, match="no time of a message"):
        parse("")


def test_commands_are_those_of_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(launches, "cores", lambda: 2)
    openmpi = Program("openmpi", Path("/bin/mpirun"), Path("/b/collective_times"), Path("/b"))
    use = Use(("--mca", "a", "b"), {})
    program = "/b/collective_times"
    assert openmpi.command(use, 2, ["1"]) == [
        "/bin/mpirun",
        "-np",
        "2",
        "--mca",
        "a",
        "b",
        program,
        "1",
    ]
    assert "--oversubscribe" in openmpi.command(use, 3, [])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in openmpi.command(use, 2, [])
    mpich = Program("mpich", Path("/bin/mpiexec"), Path(program), Path("/b"))
    assert mpich.command(Use((), {"A": "b"}), 4, []) == ["/bin/mpiexec", "-np", "4", program]


def test_variables_that_decide_in_both_arms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIR_CVAR_DEVICE_COLLECTIVES", "none")
    with pytest.raises(CheckError, match="MPIR_CVAR_DEVICE_COLLECTIVES is set"):
        require_no_tuning()


def pair(number: int, library: str = "mpich", distances: tuple[float, ...] = (80, 90)) -> Pair:
    return Pair(library, 2, number, parse(output()), parse(output(wrong=1)), distances)


def test_a_record_resumes_and_survives_a_cut_line(tmp_path: Path) -> None:
    path, plans = tmp_path / "field.ndjson", {"mpich": "a", "openmpi": "b"}
    record = Record(path, plans)
    record.add(pair(0))
    record.add(pair(0, "openmpi"))
    record.add(pair(1))
    path.write_text(path.read_text()[:-20])
    resumed = Record(path, plans)
    assert resumed.pairs == {("mpich", 2, 0): pair(0), ("openmpi", 2, 0): pair(0, "openmpi")}
    resumed.add(pair(1))
    assert Record(path, plans).pairs[("mpich", 2, 1)] == pair(1)


def test_other_plans_keep_what_they_measured(tmp_path: Path) -> None:
    path = tmp_path / "field.ndjson"
    Record(path, {"mpich": "a"}).add(pair(0))
    assert Record(path, {"mpich": "other"}).pairs == {}
    assert Record(path, {"mpich": "other"}, fresh=True).pairs == {}
    assert len(Record(path, {"mpich": "a"}).pairs) == 1
    assert Record(path, {"mpich": "a"}, fresh=True).pairs == {}
    assert Record(path, {"mpich": "a"}).pairs == {}


def test_either_arm_begins_in_one_of_two_pairs() -> None:
    for ranks in (2, 3):
        first = [tuned_first("openmpi", ranks, number) for number in range(40)]
        assert all(first[n] != first[n + 1] for n in range(0, 40, 2))
        assert len({first[n] for n in range(0, 40, 2)}) == 2


def test_a_pair_is_steady_where_the_cores_keep_their_distance() -> None:
    assert pair(0, distances=(80, 100, 90)).steady
    assert pair(0, distances=(80, 100, 90)).distance == 90
    assert not pair(0, distances=(80, 90, 390)).steady
    assert pair(0, distances=()).steady
    assert pair(0, distances=()).distance is None


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "field.ndjson"
    for bad in ("{", "{}", "[]", '{"plan": "a"}', '{"plan": "a", "library": 3}'):
        path.write_text(f"{bad}\n")
        with pytest.raises(CheckError, match="is damaged"):
            Record(path, {"mpich": "a"})


def test_the_command_line_refuses_what_cannot_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert "run 'make tune' first" in capsys.readouterr().err
    for words in (["--launches", "1"], ["--seconds", "0"], ["--seconds", "nan"]):
        with pytest.raises(SystemExit, match="2"):
            main([str(tmp_path), *words])
        assert "got" in capsys.readouterr().err
