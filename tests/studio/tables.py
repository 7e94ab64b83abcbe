"""Tables for the pages: two versions of one cluster, and one that the service made of a probe."""

from __future__ import annotations

import math
from collections.abc import Sequence

import httpx

from tests.service.serving import good, probe_file, publish, running
from tests.support.waiting import until
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, table_record

LAB = Cluster("<i>lab</i>", 4, 2, "a CPU", 1 << 30)
LIBRARY = "openmpi 5.0.11"
KIB = 1024
Part = tuple[int, str, str, float]  # from so many bytes on: algorithm, basis, gain


def _rules(key: RuleKey, parts: Sequence[Part]) -> list[Rule]:
    ends = [*(start for start, *_ in parts[1:]), math.inf]
    rules = []
    for (start, name, basis, gain), stop in zip(parts, ends, strict=True):
        sizes = (max(start, KIB), 2 * max(start, KIB)) if basis != "none" else ()
        default = tuple(1e-5 + 1e-9 * nbytes for nbytes in sizes)
        chosen = tuple(seconds / gain for seconds in default)
        bounds = (1.0, 1.0) if name == "default" else (gain / 1.1, gain * 1.1)
        evidence = Evidence(basis, sizes, default, chosen, (), gain, bounds, "chain")
        rules.append(Rule(key, start, stop, AlgorithmChoice(name), evidence))
    return rules


def _table(small: str, gain: float) -> TuningTable:
    """Broadcasts on two shapes and reductions for both classes of operators."""
    below: Part = (0, "default", "none", 1.0)
    parts = {
        RuleKey(Collective.BCAST, 2, 2): [
            below,
            (KIB, small, "measured", gain),
            (64 * KIB, "pipeline", "learned", 1.3),
            (1024 * KIB, "default", "measured", 1.0),
        ],
        RuleKey(Collective.BCAST, 4, 2): [below, (4 * KIB, "pipeline", "simulated", 1.2)],
        RuleKey(Collective.ALLREDUCE, 4, 2): [(0, "default", "measured", 1.0)],
        RuleKey(Collective.ALLREDUCE, 4, 2, operators="commutative"): [
            below,
            (16 * KIB, "ring", "measured", 1.4),
        ],
    }
    rules = [rule for key, own in parts.items() for rule in _rules(key, own)]
    return TuningTable(LAB, LIBRARY, tuple(rules))


def publish_two_versions(client: httpx.Client) -> tuple[int, int]:
    """The versions of two tables, the second of which is in force."""
    first = publish(client, table_record(_table("binomial", 1.5)))
    return first, publish(client, table_record(_table("chain", 2.0)))


def make_table_of_a_probe(client: httpx.Client, database: str) -> int:
    """The version that a job made of measurements, and published."""
    source = good(client.post("/v1/measurements", content=probe_file()), 201)["id"]
    job = {"kind": "tune", "measurements": source, "publish": True}
    number = good(client.post("/v1/jobs", json=job), 202)["id"]
    with running(database):
        until(lambda: good(client.get(f"/v1/jobs/{number}"))["ended_at"])
    version: int = good(client.get(f"/v1/jobs/{number}"))["result"]["table"]
    return version
