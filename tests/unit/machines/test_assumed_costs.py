"""Machines whose files have no latencies: short messages take as long as on other machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.nodes import eight
from tuner import algorithms
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA, HOST
from tuner.machines.assumed_costs import known_costs
from tuner.machines.loader import assumed_costs_warning, load_machine, machine_warnings
from tuner.sim import simulate
from tuner.topology import Placement
from tuner.topology.readers import nominal_calibration
from tuner.topology.readers.slurm import ASSUMED_RATES

SLURM = "SwitchName=leaf Nodes=n[1-8]\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "topology"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "ppn", "memory", "latency"),
    [(SLURM, 1, HOST, 1.5e-6), (eight(6, "PXB"), 8, CUDA, 3.2e-6)],
)
def test_each_round_takes_the_assumed_latency_more_and_rates_stay_those_of_the_links(
    tmp_path: Path, text: str, ppn: int, memory: str, latency: float
) -> None:
    machine = load_machine(written(tmp_path, text))
    placement = Placement.block(machine.topology, ppn)
    bare = nominal_calibration(machine.topology)
    for nbytes in (8, 1 << 26):
        schedule = algorithms.build(Collective.BCAST, "binomial", 8, nbytes=nbytes)
        least, found = (
            simulate(schedule, placement, costs, nbytes, memory=memory)
            for costs in (bare, machine.calibration)
        )
        assert found - least == pytest.approx(3 * latency)


def test_a_latency_that_is_said_and_a_calibration_take_their_place(tmp_path: Path) -> None:
    fabric = written(tmp_path, SLURM)
    assumed = load_machine(fabric)
    assert "1.5us between nodes" in assumed_costs_warning(assumed)
    both = tmp_path / "both.yaml"
    both.write_text(f"combine: {{fabric: {fabric.name}, latency: 1us}}")
    said = load_machine(both)
    assert (said.calibration.paths, assumed_costs_warning(said)) == ({}, "")
    measured = replace(assumed, calibration=nominal_calibration(assumed.topology))
    assert assumed_costs_warning(measured) == ""


def test_inside_and_between_nodes_are_assumed_each_by_itself(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("name: net\nnodes: 4\nlatency: 2us\nbandwidth: 25GB/s\n")
    (tmp_path / "node").write_text(eight(6, "PXB"))
    both = tmp_path / "both.yaml"
    both.write_text("combine: {fabric: net.yaml, node: node, rails: 8}")
    found = load_machine(both)
    assert set(found.calibration.paths) == set(known_costs().inside_nodes)
    assert "between" not in assumed_costs_warning(found)


def test_a_latency_of_zero_that_a_yaml_file_states_is_kept(tmp_path: Path) -> None:
    stated = written(tmp_path, "name: net\nnodes: 4\nlatency: 0us\nbandwidth: 25GB/s\n")
    found = load_machine(stated)
    assert (found.calibration.paths, assumed_costs_warning(found)) == ({}, "")


def test_cautions_of_the_files_of_a_combination_are_said(tmp_path: Path) -> None:
    block = "block: {blocks: [{block: b, nodes: 'n[1-2]'}]}"
    text = f"- topology: a\n  cluster_default: true\n  {block}\n- topology: b\n  {block}\n"
    both = tmp_path / "both.yaml"
    both.write_text(f"combine: {{fabric: {written(tmp_path, text).name}, latency: 1us}}")
    said = machine_warnings(load_machine(both))
    assert said[0] == f"caution: {ASSUMED_RATES}"
    assert said[1].startswith("caution: of Slurm's topologies a, the cluster's default, is read")
    assert said[2:] == ("",)
