"""What a replay found: measured beside predicted times of iterations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.replay.replay_plan import ReplayPlan
from tuner.base.statistics import median_interval
from tuner.base.units import format_time


def replay_report(
    plans: Sequence[ReplayPlan],
    seconds: Sequence[Sequence[float]],
    library: str,
    hosts: int,
    compute: str,
) -> dict[str, Any]:
    """Return the record of a replay.

    seconds     seconds of all iterations of each plan, the maximum over the ranks
    hosts       number of hosts of the ranks
    """
    found = [_plan_result(plan, own) for plan, own in zip(plans, seconds, strict=True)]
    return {
        "kind": "replay",
        "version": 1,
        "library": library,
        "hosts": hosts,
        "compute": compute,
        "replays": found,
    }


def _plan_result(plan: ReplayPlan, seconds: Sequence[float]) -> dict[str, Any]:
    median, low, high = median_interval(seconds)
    return {
        "workload": plan.workload,
        "ranks": plan.ranks,
        "nodes": plan.nodes,
        "tuned": plan.table is not None,
        "compute_seconds": plan.compute,
        "predicted_seconds": plan.seconds,
        "predicted_exposed": max(0.0, plan.seconds - plan.compute),
        "median_seconds": median,
        "ci95": [low, high],
        "exposed": max(0.0, median - plan.compute),
        "seconds": list(seconds),
    }


def print_report(record: dict[str, Any], *, as_json: bool) -> None:
    """Print the record of a replay as JSON or as sentences."""
    if as_json:
        print(json.dumps(record), flush=True)
        return
    for one in record["replays"]:
        low, high = map(format_time, one["ci95"])
        off = one["predicted_seconds"] / one["median_seconds"] - 1
        print(
            f"{one['workload']}, {one['ranks']} ranks:"
            f" {format_time(one['median_seconds'])} an iteration ({low} to {high}),"
            f" {format_time(one['exposed'])} of it exposed; predicted"
            f" {format_time(one['predicted_seconds'])} ({off:+.1%}),"
            f" {format_time(one['predicted_exposed'])} exposed",
            flush=True,
        )
        if one["nodes"] != record["hosts"]:
            print(
                f"caution: the prediction is for {one['nodes']} nodes, and the ranks are on"
                f" {record['hosts']}: choose ppn and the launcher's options alike",
                flush=True,
            )
