"""Control variables: the settings of every candidate force it, and bad ones are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.waiting import patience
from tuner import mpi_libraries
from tuner.core.collective import Collective
from tuner.launch import Launcher
from tuner.mpi_libraries.openmpi_rule_numbers import canonical_choice
from tuner.validation import openmpi_trace
from tuner.validation.validation import CallOutcome

NBYTES = 1 << 18
RANKS = 4
PROGRAM = """
import json, sys
import numpy as np
from mpi4py import MPI
from tuner.runtime.algorithm_control import AlgorithmControl
from tuner.rank_programs.validate import observed_calls, watch_communicator
forcing = AlgorithmControl("openmpi", MPI.COMM_WORLD)
data = np.zeros(int(sys.argv[2]) // 4, np.int32)
for collective, settings in json.loads(sys.argv[1]):
    comm = forcing.communicator(settings)
    watch_communicator(comm)
    observed_calls()
    comm.Bcast(data) if collective == "bcast" else comm.Allreduce(data, data.copy())
    if comm.rank == 0:
        print(json.dumps(observed_calls()), flush=True)
"""
REFUSED = """
import sys
from mpi4py import MPI
from tuner.base.errors import InputError
from tuner.runtime.control_variables import ControlVariables
variables = ControlVariables()
for name, value in (("nonsense", 1), (sys.argv[1], 77), (sys.argv[1], "ring")):
    try:
        variables.write(name, value)
    except InputError as reason:
        print(reason)
print(variables.read(sys.argv[1]))
"""


def test_settings_force_every_candidate(launcher: Launcher, tmp_path: Path) -> None:
    watcher = openmpi_trace.build_tracer(tmp_path)
    assert watcher is not None
    program = tmp_path / "force.py"
    program.write_text(PROGRAM)
    wanted = [
        (collective, choice)
        for collective in (Collective.BCAST, Collective.ALLREDUCE)
        for choice in mpi_libraries.openmpi.candidates(collective, RANKS, NBYTES)[1:]
    ]
    orders = [(c, mpi_libraries.openmpi.settings(c, choice)) for c, choice in wanted]
    run = launcher.run(
        RANKS,
        [str(program), json.dumps(orders), str(NBYTES)],
        settings={"coll_tuned_use_dynamic_rules": "1"},
        environment={"LD_PRELOAD": str(watcher)},
        timeout=patience(),
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    for (collective, choice), numbers in zip(wanted, lines, strict=True):
        seen = openmpi_trace.executed_algorithm(
            collective, CallOutcome(0, tuple(map(tuple, numbers)))
        )
        assert seen == canonical_choice(collective, choice) == choice


@pytest.mark.parametrize("library", ["openmpi", "mpich"])
def test_bad_variables_and_values_are_refused_by_name(
    library: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fixture, name = {
        "openmpi": ("launcher", "coll_tuned_bcast_algorithm"),
        "mpich": ("mpich_launcher", "MPIR_CVAR_BCAST_TREE_KVAL"),
    }[library]
    program = tmp_path / "refused.py"
    program.write_text(REFUSED)
    run = request.getfixturevalue(fixture).run(1, [str(program), name], timeout=patience())
    unknown, *value, text, now = run.stdout.splitlines()
    assert "control variable nonsense cannot be found" in unknown
    refused = {"openmpi": "has no value 'ring' in", "mpich": "takes a number, not 'ring'"}[library]
    assert f"{name} {refused}" in text
    if library == "openmpi":
        assert f"{name} cannot be set to 77" in value[0]
        assert now == "0"
