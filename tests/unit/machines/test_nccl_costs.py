"""Files of machines state the costs of NCCL on their GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.base.errors import InputError
from tuner.machines import preset, with_gpu
from tuner.machines.loader import load_machine, machine_from_record, machine_warnings
from tuner.mpi_libraries.nccl import COSTS_OF_GPUS, NcclPredictor
from tuner.topology import CUDA, NcclCosts, Placement
from tuner.topology.readers.combined import combine
from tuner.topology.readers.serialization import topology_from_record, topology_to_record
from tuner.whatif.axes import apply_axes

TOLD = {"launch": "9us", "hop": "1us", "simple": "0us", "copy_rate": "500GB/s"}
COSTS = NcclCosts(launch=9e-6, hop=1e-6, simple=0.0, copy_rate=500e9)
FULL = replace(COSTS, full_channel=2e-6)
SOURCED = {"source": "our nccl-tests", "certainty": "verified", **TOLD}
FLAT = {"name": "flat", "nodes": 2, "latency": "2us", "bandwidth": "1GB/s", "nccl": TOLD}


def test_a_preset_takes_them_for_its_own_gpus_and_for_others() -> None:
    """A machine with the number of nodes that a study asks for has them, too."""
    for gpu in ({}, {"gpu": "B200"}):
        machine = machine_from_record({"preset": "dgx-h100", **gpu, "nccl": SOURCED})
        assert machine.topology.nccl == COSTS
        assert machine.spec is not None
        assert machine.spec.sourced_values()["NCCL: hop"].source == "our nccl-tests"
        few = apply_axes(machine, {"nodes": 2}).topology
        predictor = NcclPredictor(Placement.block(few, 8))
        known = COSTS_OF_GPUS[predictor.system.compute_capability].full_channel
        assert predictor.costs == replace(COSTS, full_channel=known)
        assert with_gpu(machine, "H200").topology.nccl is None


def test_gpus_without_them_have_those_of_their_generation() -> None:
    placement = Placement.block(preset("dgx-a100", 1).topology, 8)
    assert NcclPredictor(placement).costs == COSTS_OF_GPUS[80]


def test_a_full_channel_is_read_where_it_is_stated() -> None:
    """Files from before it was fitted do not state it: the test above."""
    told = {**SOURCED, "full_channel": "2us"}
    machine = machine_from_record({"preset": "dgx-h100", "nccl": told})
    assert machine.topology.nccl == FULL
    assert NcclPredictor(Placement.block(machine.topology, 8)).costs == FULL
    flat = machine_from_record({**FLAT, "nccl": {**TOLD, "full_channel": "2us"}}).topology
    assert flat.nccl == FULL
    assert topology_from_record(json.loads(json.dumps(topology_to_record(flat)))).nccl == FULL


def test_a_topology_alone_and_a_combination_take_them(tmp_path: Path) -> None:
    flat = machine_from_record(FLAT).topology
    assert flat.nccl == COSTS
    assert topology_from_record(json.loads(json.dumps(topology_to_record(flat)))).nccl == COSTS
    inside = machine_from_record({**FLAT, "nodes": 1}).topology
    assert combine(machine_from_record({**FLAT, "nccl": TOLD}).topology, inside).nccl == COSTS
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({"combine": {"fabric": "preset:dgx-h100:2"}, "nccl": TOLD}))
    assert load_machine(path).topology.nccl == COSTS


def test_nics_that_no_gpu_sends_through_are_told() -> None:
    more = machine_from_record({"preset": "dgx-h100", "nodes": 2, "nics": 12})
    (caution,) = machine_warnings(more)[:-1]
    assert "12 NICs for 8 GPUs" in caution
    assert "4 carry nothing from the memory of GPUs" in caution
    used = Placement.block(more.topology, 8).rank_devices(CUDA).nic
    assert len(set(used.tolist())) == 2 * 8
    for nics in (4, 8):
        fewer = machine_from_record({"preset": "dgx-h100", "nodes": 2, "nics": nics})
        assert not fewer.topology.cautions


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({**FLAT, "nccl": {**TOLD, "launch": 9}}, "nccl: launch"),
        ({**FLAT, "nccl": {"launch": "9us"}}, "nccl lacks 'copy_rate'"),
        ({**FLAT, "nccl": {**TOLD, "full_channel": -1}}, "nccl: full_channel"),
        ({"preset": "dgx-h100", "nccl": TOLD}, "nccl: launch has no source"),
        ({"preset": "dgx-h100", "nccl": {**SOURCED, "jump": "1us"}}, "unknown key 'jump'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(record: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        machine_from_record(record)
