"""Give the result of a check to programs."""

from __future__ import annotations

from typing import Any

from tests.field.ratios import Estimate
from tests.field.results import COLUMNS, Result, Row


def to_json(result: Result) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "rows": [_row_json(row) for row in result.rows],
        "changed": {name: _columns_json(found) for name, found in result.changed.items()},
        "kept": {name: _columns_json(found) for name, found in result.kept.items()},
        "by_distance": [
            {
                "library": one.library,
                "ranks": one.ranks,
                "distances_ns": one.distances,
                "pairs": one.pairs,
                **_estimate_json(one.estimate),
            }
            for one in result.by_distance
        ],
        "self_check": {
            "significant": result.self_check.significant,
            "tests": result.self_check.tests,
            "expected": result.self_check.expected,
        },
        "failed": result.failed,
    }


def _estimate_json(found: Estimate) -> dict[str, Any]:
    return {"ratio": found.ratio, "ci95": [found.low, found.high], "p": found.p}


def _columns_json(found: dict[str, Estimate]) -> dict[str, Any]:
    return {column: _estimate_json(found[column]) for column in COLUMNS}


def _row_json(row: Row) -> dict[str, Any]:
    call = row.call
    patterns = {
        column: {
            **_estimate_json(row.estimates[column]),
            "verdict": row.estimates[column].verdict,
            "after_holm": row.certain[column],
        }
        for column in COLUMNS
    }
    return {
        "library": row.library,
        "collective": call.collective,
        "ranks": call.ranks,
        "nbytes": call.nbytes,
        "algorithm": call.algorithm,
        "origin": call.origin,
        "default_s": row.default_s,
        "patterns": patterns,
        "report_ratio": row.comparison.ratio if row.comparison else None,
        "wrong": row.wrong,
    }
