"""Files that version 0.1 wrote, under the names that their fields had then."""

from __future__ import annotations

import json
import math

import pytest

from tuner.base.atomic_io import current_names, dataclass_from_record
from tuner.base.errors import InputError
from tuner.core.calibration import Estimate, calibration_from_record, calibration_record
from tuner.core.table import AlgorithmConfig, parse_table, table_record
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.topology.readers.serialization import topology_from_record, topology_to_record
from tuner.whatif.study_result import result_from_record, result_record

TABLE = """
{"kind": "table", "version": 1, "library": "openmpi 5.0.11", "provenance": {},
 "cluster": {"name": "one", "nodes": 1, "cores": 4, "cpu": "", "memory": 0},
 "rules": [
  {"key": {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any"},
   "lo": 0, "hi": 1024, "choice": {"algorithm": "default", "params": {}, "via": "library"},
   "evidence": {"basis": "none"}},
  {"key": {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any"},
   "lo": 1024, "hi": "inf", "choice": {"algorithm": "chain", "params": {}, "via": "schedule"},
   "evidence": {"basis": "none"}}]}
"""
ONE = {"value": 1e-6, "low": 1e-6, "high": 1e-6}
CALIBRATION = {
    "version": 1,
    "cluster": "one",
    "library": "openmpi 5.0.11",
    "paths": [
        {
            "path_class": "node",
            "memory": "host",
            "eager_limit": 4096.0,
            "overhead": ONE,
            "acknowledged_from": 512.0,
            "ahead_limit": 8192.0,
            "segments": [
                {"lo": 0.0, "hi": "inf", "alpha": ONE, "beta": ONE, "staged": False, "lag": ONE}
            ],
        }
    ],
    "reduction": {},
    "capacities": {},
    "shared_from": 4096.0,
    "network_port": True,
    "stripe_from": 65536.0,
    "pointer_query": 1e-7,
    "envelope": 64.0,
    "given": True,
    "provenance": {},
}
TOPOLOGY = {
    "kind": "topology",
    "version": 2,
    "name": "two",
    "nodes": [{"name": "a", "cores": 1, "interior": 0}, {"name": "b", "cores": 1, "interior": 0}],
    "switches": [],
    "links": [
        {"source": a, "target": b, "capacity": 1e9, "latency": 1e-6}
        for a, b in (("a", "b"), ("b", "a"))
    ],
    "interiors": [{"devices": [{"name": "cpu0", "kind": "cpu", "cores": 1}], "links": []}],
    "offers": ["multicast"],
}
STUDY = {
    "kind": "study",
    "version": 1,
    "name": "taper",
    "topology": "flat",
    "axes": {"taper": [1, 2]},
    "points": [
        {
            "at": {"taper": taper},
            "collective": "bcast",
            "nbytes": 1024,
            "timings": [{"algorithm": name, "params": {}, "seconds": 1e-6}],
            "left_out": ["chain"],
            "kept": {"algorithm": "chain", "params": {}, "nodes": 2, "ppn": 1, "regret": 0.5},
        }
        for taper, name in ((1, "binomial"), (2, "linear"))
    ],
    "switches": [
        {
            "axis": "taper",
            "collective": "bcast",
            "at": {"nbytes": 1024},
            "below": 1,
            "above": 2,
            "before": {"algorithm": "binomial", "params": {}},
            "after": {"algorithm": "linear", "params": {}},
        }
    ],
    "keeping": {"mean": 0.5, "worst": 0.5, "points": 2, "unknown": 0},
}


def test_a_table_is_read_and_written_under_the_names_of_today() -> None:
    table = parse_table(TABLE)
    assert [(rule.start_bytes, rule.stop_bytes) for rule in table.rules] == [
        (0, 1024),
        (1024, math.inf),
    ]
    assert table.rules[1].choice == AlgorithmConfig("chain", {}, "schedule")
    written = table_record(table)
    assert written["rules"][1].keys() >= {"start_bytes", "stop_bytes"}
    assert parse_table(json.dumps(written)).rules == table.rules


def test_a_calibration_is_read_and_written_under_the_names_of_today() -> None:
    found = calibration_from_record(CALIBRATION)
    assert (found.port_sharing_threshold, found.striping_threshold) == (4096.0, 65536.0)
    assert (found.pointer_query_seconds, found.header_bytes) == (1e-7, 64.0)
    assert found.separate_network_port
    assert found.nominal
    cost = found.path_cost("node")
    assert (cost.sync_ack_threshold, cost.early_push_limit) == (512.0, 8192.0)
    assert cost.segment(100).latency_per_byte == Estimate(1e-6, 1e-6, 1e-6)
    written = calibration_record(found)
    assert not {"envelope", "given", "shared_from"} & written.keys()
    assert calibration_from_record(written) == found


def test_a_topology_is_read_and_written_under_the_names_of_today() -> None:
    found = topology_from_record(TOPOLOGY)
    assert found.capabilities == {"multicast"}
    assert all(node.node_topology is not None for node in found.nodes)
    assert topology_from_record(topology_to_record(found)) == found


def test_the_result_of_a_study_is_read_and_written_under_the_names_of_today() -> None:
    found = result_from_record(STUDY)
    assert found.points[0].best.algorithm == "binomial"
    assert found.points[0].skipped == ("chain",)
    assert (found.crossovers[0].lower_value, found.crossovers[0].upper_value) == (1, 2)
    assert found.table_regret is not None
    assert found.table_regret.max_regret == 0.5
    assert result_from_record(result_record(found)) == found


def test_default_algorithms_are_read_under_their_former_names() -> None:
    record = {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 2,
        "most": 1024,
        "starts": [4, 64],
        "choices": [None, {"algorithm": "chain", "params": {}, "via": "library"}],
    }
    found = dataclass_from_record(DefaultAlgorithms, record)
    assert (found.max_bytes, found.thresholds) == (1024, (4, 64))


def test_a_record_with_both_names_is_refused() -> None:
    both = json.loads(TABLE)
    both["rules"][0]["start_bytes"] = 0
    both["rules"][0]["stop_bytes"] = 8
    with pytest.raises(InputError, match="unknown in the rule: 'hi', 'lo'"):
        parse_table(json.dumps(both))
    assert current_names({"lo": 1, "start_bytes": 2}, {"lo": "start_bytes"}) == {
        "lo": 1,
        "start_bytes": 2,
    }
