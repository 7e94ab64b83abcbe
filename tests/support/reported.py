"""A small result with all that a report shows, and a database that holds it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

from tests.support.stored import CLUSTER, LIBRARY
from tuner import db
from tuner.core.collective import Collective
from tuner.core.measurement import Measurement, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.probe.all_pairs import describe_slow_pairs
from tuner.report import LibraryResult

SIZES = (64, 2048, 65536)
SLOWNESS = {"default": 1.0, "knomial": 0.5, "linear": 1.3}  # relative to the default


def a_result() -> LibraryResult:
    """Two collectives; knomial takes half the default's time in bcast, and the table takes it."""
    return LibraryResult(
        "openmpi",
        Measurements(CLUSTER, LIBRARY, {}, tuple(_series())),
        TuningTable(CLUSTER, LIBRARY, tuple(_rules())),
        (),
        [_validation(0, "default"), _validation(1024, "knomial(radix=4)")],
        [_heldout(2.0, "knomial"), _heldout(1.0, "default")],
    )


def store_result(url: str) -> int:
    """Store the result and return the version of its table."""
    engine, result = db.open_database(url), a_result()
    with db.transaction(engine) as session:
        probe = db.store_measurements(session, result.measurements).id
        version = db.store_table(session, result.table, probe).id
        db.store_validations(session, version, result.validations)
        db.store_heldout(session, version, result.heldout)
    engine.dispose()
    return version


def _series() -> list[Measurement]:
    return [
        Measurement(
            "collective",
            name,
            1,
            4,
            4,
            nbytes,
            (seconds * nbytes * 1e-9,) * 4,
            algorithm,
            params,
            launch=launch,
        )
        for name in ("allreduce", "bcast")
        for algorithm, seconds in SLOWNESS.items()
        for params in ({"radix": 4} if algorithm == "knomial" else {},)
        for nbytes in SIZES
        for launch in range(3)
    ]


def _rules() -> list[Rule]:
    bcast, allreduce = (RuleKey(each, 1, 4) for each in (Collective.BCAST, Collective.ALLREDUCE))
    evidence = Evidence("measured", (2048,), (2e-6,), (1e-6,), gain=2.0, gain_ci95=(1.8, 2.2))
    knomial = AlgorithmChoice("knomial", {"radix": 4})
    return [
        Rule(allreduce, 0, math.inf, AlgorithmChoice(), Evidence("measured")),
        Rule(bcast, 0, 1024, AlgorithmChoice(), Evidence("measured")),
        Rule(bcast, 1024, math.inf, knomial, evidence),
    ]


def _validation(start_bytes: int, expected: str) -> dict[str, Any]:
    return {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "p": 4,
        "operators": "any",
        "start_bytes": start_bytes,
        "nbytes": max(start_bytes, 4),
        "expected": expected,
        "executed": expected.partition("(")[0],
        "confirmed": True,
        "reason": "",
    }


def _heldout(ratio: float, algorithm: str) -> dict[str, Any]:
    return {
        "collective": "bcast",
        "p": 4,
        "nbytes": 3000,
        "algorithm": algorithm,
        "default_s": 1e-5,
        "tuned_s": 1e-5 / ratio,
        "ratio": ratio,
        "ci95": [ratio / 1.02, ratio * 1.02],
    }


def swept_measurements() -> Measurements:
    """A probe of four hosts of which each met all others; n1 and n2 are slow with each other."""
    series = tuple(
        Measurement(
            "sweep",
            "network",
            2,
            1,
            2,
            8,
            (6e-6 if pair == (1, 2) else 2e-6,) * 4,
            params={"first": pair[0], "second": pair[1]},
        )
        for pair in combinations(range(4), 2)
    )
    hosts = ["n0", "n1", "n2", "n3"]
    notes = describe_slow_pairs(series, hosts)
    return Measurements(
        replace(CLUSTER, nodes=4), LIBRARY, {"hosts": hosts, "notes": notes}, series
    )
