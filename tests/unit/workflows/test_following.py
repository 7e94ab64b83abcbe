"""How a program is started under a table's files, as report.json and the terminal say it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.field.tables import read_use
from tests.support.ladders import table_of
from tests.support.trees import BELOW, GENERIC
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.formats import mpich
from tuner.mpi_libraries.profiles import profile_of
from tuner.validation import validate_mpich
from tuner.validation.libraries import TUNED_LIBRARIES
from tuner.workflows.following import command_line, launch_settings

TABLE = table_of(
    {(Collective.BCAST, 4): [(0, AlgorithmChoice()), (1024, AlgorithmChoice("binomial"))]},
    library="mpich 5.0.2",
)
MPIR, DEVICE = mpich.MPIR.variable, mpich.DEVICE.variable


def result(place: Path, library: str, *names: str) -> Path:
    """Return the library's file in a result's directory with these files."""
    folder = place / library
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder / profile_of(library).tuning_file


def binary(place: Path, *trees: object) -> Path:
    """Return a library that holds these rules and knows both variables."""
    texts = [json.dumps(tree, separators=(",", ":")) for tree in trees]
    path = place / "libmpi.so"
    path.write_bytes(b"\0".join(text.encode() for text in (*texts, MPIR, DEVICE)))
    return path


def test_open_mpi_is_started_with_parameters(tmp_path: Path) -> None:
    file = result(tmp_path, "openmpi", "openmpi.rules")
    use = launch_settings("openmpi", file)
    assert use["environment"] == {}
    assert use["command"] == [
        "mpirun",
        "--mca",
        "coll_tuned_use_dynamic_rules",
        "1",
        "--mca",
        "coll_tuned_dynamic_rules_filename",
        str(file),
    ]


@pytest.mark.parametrize("layered", [True, False])
def test_mpich_is_started_with_the_files_that_there_are(layered: bool, tmp_path: Path) -> None:
    names = ["mpich.json", "mpich-device.json"][: 1 + layered]
    file = result(tmp_path, "mpich", *names)
    first = (
        {DEVICE: str(file.with_name("mpich-device.json"))}
        if layered
        else {"MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
    )
    assert launch_settings("mpich", file) == {
        "command": ["mpiexec"],
        "environment": {**first, MPIR: str(file)},
    }


@pytest.mark.parametrize(
    ("library", "names"),
    [("openmpi", ["openmpi.rules"]), ("mpich", ["mpich.json", "mpich-device.json"])],
)
def test_who_reads_the_report_and_who_reads_the_terminal_start_the_same(
    library: str, names: list[str], tmp_path: Path
) -> None:
    """Also where a path has a space, and where the directory was moved since."""
    place, moved = tmp_path / "my results", tmp_path / "moved"
    use = launch_settings(library, result(place, library, *names))
    words = shlex.split(command_line(use))
    assignments = [f"{name}={value}" for name, value in use["environment"].items()]
    assert words == [*assignments, *use["command"]]
    there = result(moved, library, *names)
    place.rename(tmp_path / "gone")
    read = read_use(moved, library, json.loads(json.dumps(use)))
    wanted = launch_settings(library, there)
    assert ["mpirun" if library == "openmpi" else "mpiexec", *read.command] == wanted["command"]
    assert read.environment == wanted["environment"]


def test_a_library_without_a_device_layer_is_named_and_gets_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, python = result(tmp_path, "mpich", "mpich.json"), Path("python")
    with_layer, without = tmp_path / "with", tmp_path / "without"
    with_layer.mkdir()
    without.mkdir()
    libraries = {"with": binary(with_layer, GENERIC, BELOW), "without": binary(without, GENERIC)}
    for name, said in (("with", ""), ("without", "MPIR_CVAR_DEVICE_COLLECTIVES=none")):
        monkeypatch.setattr(validate_mpich, "loaded_libmpi", lambda *_, name=name: libraries[name])
        TUNED_LIBRARIES["mpich"].write_further_file(TABLE, file, python)
        assert mpich.device.device_file_path(file).is_file() == (name == "with")
        sentence = TUNED_LIBRARIES["mpich"].limitation(python)
        assert said in sentence
        assert bool(sentence) == bool(said)
    assert TUNED_LIBRARIES["openmpi"].limitation(python) == ""
