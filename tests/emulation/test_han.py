"""The order of Open MPI's components on several hosts: `han` comes before the rules file; `^han`
lets the file decide.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.waiting import patience
from tuner.base import processes
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.emulation import EmulatedCluster, launch
from tuner.formats import openmpi
from tuner.launch import PACKAGE_DIR, Launcher
from tuner.validation import openmpi_trace, validate_openmpi
from tuner.validation.validation import VALIDATION_PROGRAM, CallOutcome

BCAST, CHAIN = Collective.BCAST, AlgorithmChoice("chain", {"chains": 2, "segment": 8192})
CALL = {"collective": "bcast", "nodes": 2, "ppn": 2, "nbytes": 65536, "commutative": True}


@pytest.mark.parametrize("without", [False, True])
def test_rules_decide_only_without_han(
    flat: EmulatedCluster, launcher: Launcher, tmp_path: Path, without: bool
) -> None:
    rules, calls = tmp_path / "o.rules", tmp_path / "calls.json"
    rules.write_text(openmpi.emit(table_of({(BCAST, 4): [(0, CHAIN)]})))
    calls.write_text(json.dumps([CALL]))
    preloaded = openmpi_trace.build_tracer(tmp_path)
    assert preloaded is not None
    settings = validate_openmpi.activation(rules) | ({"coll": "^han"} if without else {})
    words = launch.launch_command(flat, "openmpi", launcher.executable, 4, 2)
    for name, value in settings.items():
        words += ["--mca", name, value]
    program = shlex.join([str(launcher.python), *VALIDATION_PROGRAM, str(calls)])
    variables = f"PYTHONPATH={PACKAGE_DIR.parent} LD_PRELOAD=$LD_PRELOAD:{preloaded}"
    ran = openmpi_trace.executed_algorithm(
        BCAST, answer([*words, "sh", "-c", f"{variables} exec {program}"])
    )
    assert (ran == CHAIN) == without, ran


def answer(command: list[str]) -> CallOutcome:
    """Return what rank 0 said; end the launch if it takes too long."""
    mark = f"{os.getpid()} han"
    with subprocess.Popen(
        command, env={**os.environ, launch.RUN_VARIABLE: mark}, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            text = running.communicate(timeout=patience())[0]
        finally:
            processes.terminate(lambda: processes.pids_with_variable(launch.RUN_VARIABLE, mark))
    assert running.returncode == 0
    said = json.loads(text.splitlines()[-1])
    return CallOutcome(said["error"], tuple(map(tuple, said["executed"])))
