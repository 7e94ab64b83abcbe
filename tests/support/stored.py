"""Small things to store: equal ones are equal, and each differs from the others on demand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tuner.core.calibration import ZERO_REDUCTION_COST, Calibration, Estimate, PathCost
from tuner.core.collective import Collective
from tuner.core.measurement import (
    Cluster,
    Measurement,
    Measurements,
    end_line,
    header_line,
    series_line,
)
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable

CLUSTER = Cluster("ares", nodes=1, cores=2, cpu="any cpu", memory=2**40)
LIBRARY = "openmpi 5.0.11"


def probe(series: int = 3) -> Measurements:
    return Measurements(
        CLUSTER,
        LIBRARY,
        {"seed": 7, "launches": ["one"]},
        tuple(
            Measurement(
                "collective",
                "bcast",
                1,
                4,
                4,
                2**33 + i,
                (0.1 + i / 3, 1e-7),
                "chain",
                {"segment": 4096, "chains": 4},
            )
            for i in range(series)
        ),
    )


def measurements_file(path: Path, measurements: Measurements) -> Path:
    """What a probe that measured this would have written."""
    about = (measurements.cluster, measurements.library, measurements.provenance)
    lines = [header_line(*about), *map(series_line, measurements.series)]
    lines.append(end_line(len(measurements.series)))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def calibration() -> Calibration:
    return Calibration(
        "ares",
        LIBRARY,
        {("node", "host"): PathCost.from_alpha_beta(1e-6, 1e-10, math.inf)},
        {"host": ZERO_REDUCTION_COST},
        {"memory_bus": Estimate(1e10, 9e9, math.inf)},
    )


def table(choice: str = "chain", via: str = "library", library: str = LIBRARY) -> TuningTable:
    key = RuleKey(Collective.BCAST, 1, 4)
    evidence = Evidence(
        "measured",
        (8, 64),
        (1e-3, 2e-3),
        (5e-4, 1e-3),
        (1 / 3, 0.1),
        2.0,
        (1.5, math.inf),
        "binomial",
    )
    rules = (
        Rule(key, 0, 1, AlgorithmChoice(), Evidence("none")),
        Rule(key, 1, 2**33, AlgorithmChoice(choice, {"segment": 4096}, via), evidence),
        Rule(key, 2**33, math.inf, AlgorithmChoice(), Evidence("none")),
    )
    return TuningTable(CLUSTER, library, rules, {"noise": 0.02})


def report(times_as_long: float, **changes: Any) -> dict[str, Any]:
    """Feedback on `table`: what it expects at 8, 16 and 64 bytes, so many times."""
    call = {
        "collective": "bcast",
        "nodes": 1,
        "ppn": 4,
        "memory": "host",
        "operators": "any",
        "algorithm": "chain",
        "calls": 100,
        "max_s": 1.0,
        **changes,
    }
    expected = {8: 5e-4, 64: 1e-3, 16: 5e-4 * 2 ** (1 / 3)}
    items = [{**call, "nbytes": n, "median_s": s * times_as_long} for n, s in expected.items()]
    return {"cluster": CLUSTER.name, "library": LIBRARY, "ranks": 4, "items": items}
