"""Each wrong file of a study, workload, sweep, topology or machine gets the sentence stored for it.

`wrong_files.yaml` has a right file of each kind, and the changes that make it wrong, with the
message. A change to null takes a key out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.base.errors import InputError
from tuner.machines.loader import load_machine
from tuner.training.sweep_spec import read_sweep
from tuner.training.workload import read_training
from tuner.whatif.study_spec import read_study

STORED: Any = yaml.safe_load(Path(__file__).with_name("wrong_files.yaml").read_text())
TOPOLOGIES = ("switch", "links", "fabric", "combined", "preset", "machine")
READERS: dict[str, Callable[[Path], Any]] = {
    "study": read_study,
    "workload": read_training,
    "recorded": read_training,
    "sweep": read_sweep,
    **dict.fromkeys(TOPOLOGIES, load_machine),
}
CASES = [(kind, case) for kind in READERS for case in STORED["wrong"][kind]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trace.txt").write_text(STORED["trace"])
    return tmp_path


def read(kind: str, record: Any, folder: Path) -> Any:
    file = folder / "file.yaml"
    file.write_text(json.dumps(record))
    return READERS[kind](file)


@pytest.mark.parametrize("kind", READERS)
def test_the_right_file_is_read(kind: str, folder: Path) -> None:
    read(kind, STORED["right"][kind], folder)


@pytest.mark.parametrize(
    ("kind", "case"), CASES, ids=[f"{kind}-{case['change']}"[:80] for kind, case in CASES]
)
def test_the_message_of_a_wrong_file(kind: str, case: Any, folder: Path) -> None:
    changed = STORED["right"][kind] | case["change"]
    record = {key: value for key, value in changed.items() if value is not None}
    with pytest.raises(InputError) as caught:
        read(kind, record, folder)
    assert str(caught.value).replace(f"{folder}/", "") == f"file.yaml: {case['says']}"
