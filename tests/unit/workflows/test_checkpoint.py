"""Finished stages are kept exactly as long as their inputs are."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.cli.terminal.output import console
from tuner.cli.terminal.progress import Display
from tuner.probe.probe_spec import spec_of_this_computer
from tuner.workflows.checkpoint import CHECKPOINT_FILE, StageCheckpoint
from tuner.workflows.quickstart import STAGE_FILES, STAGE_SHARES, VALIDATION_S, LibraryPipeline


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.write_text("1")
    return path


def test_a_stage_runs_once_and_again_when_an_input_changes(tmp_path: Path, source: Path) -> None:
    made = tmp_path / "out"
    runs: list[str] = []

    def make() -> None:
        runs.append(source.read_text())
        made.write_text("made")

    assert StageCheckpoint(tmp_path).run("fit", [source], [made], make)
    assert not StageCheckpoint(tmp_path).run("fit", [source], [made], make)
    source.write_text("2")
    assert StageCheckpoint(tmp_path).run("fit", [source], [made], make)
    assert runs == ["1", "2"]


def test_a_stage_runs_again_when_its_output_is_gone(tmp_path: Path, source: Path) -> None:
    made = tmp_path / "out"
    stages = StageCheckpoint(tmp_path)
    stages.run("fit", [source], [made], lambda: made.touch())
    made.unlink()
    assert not stages.is_done("fit", [source], [made])


def test_a_stage_that_failed_is_not_finished(tmp_path: Path, source: Path) -> None:
    made = tmp_path / "out"

    def fail() -> None:
        made.touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StageCheckpoint(tmp_path).run("fit", [source], [made], fail)
    assert not StageCheckpoint(tmp_path).is_done("fit", [source], [made])


@pytest.mark.parametrize("content", ["{", "5", "[1]"])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / CHECKPOINT_FILE).write_text(content)
    with pytest.raises(InputError, match=r"stages\.json.*delete it"):
        StageCheckpoint(tmp_path)


def test_an_out_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be"):
        StageCheckpoint(tmp_path / "file" / "out")


def test_only_what_is_not_finished_is_expected_to_take_time(tmp_path: Path) -> None:
    def loop() -> LibraryPipeline:
        return LibraryPipeline(
            spec_of_this_computer("openmpi", 2),
            60.0,
            Path(sys.executable),
            StageCheckpoint(tmp_path),
            Display(console()),
        )

    def expected(stages: Sequence[str]) -> float:
        return sum(60.0 * STAGE_SHARES.get(stage, VALIDATION_S / 60.0) for stage in stages)

    assert loop().expected_seconds == pytest.approx(
        60.0 * sum(STAGE_SHARES.values()) + VALIDATION_S
    )
    (tmp_path / "openmpi").mkdir()
    for done, name in enumerate(STAGE_FILES):
        for file in (*STAGE_FILES[name][0], *STAGE_FILES[name][1]):
            (tmp_path / "openmpi" / file).touch()
        inputs, outputs = loop().inputs(name), loop().outputs(name)
        StageCheckpoint(tmp_path).run(f"openmpi/{name}", inputs, outputs, lambda: None)
        left = list(STAGE_FILES)[done + 1 :]
        assert loop().expected_seconds == pytest.approx(expected(left))
    (tmp_path / "openmpi" / "candidates.json").write_text("changed")
    assert loop().expected_seconds == pytest.approx(expected(("accept", "compare", "validate")))


@pytest.mark.parametrize("content", ["{", "5"])
def test_a_damaged_result_of_an_earlier_run_is_named(tmp_path: Path, content: str) -> None:
    loop = LibraryPipeline(
        spec_of_this_computer("openmpi", 2),
        1.0,
        Path(sys.executable),
        StageCheckpoint(tmp_path),
        Display(console()),
    )
    (tmp_path / "openmpi").mkdir()
    (tmp_path / "openmpi" / "validation.json").write_text(content)
    with pytest.raises(InputError, match=r"validation\.json.*delete it"):
        loop.read_records("validation.json")
