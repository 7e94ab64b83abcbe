"""Timings that running programs reported for a version of a table, and whether it is stale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, omit_default_placement
from tuner.core.speedup import mean_over_launches
from tuner.core.table import Evidence, Rule, RuleKey, TuningTable
from tuner.db.deduplication import InsertResult, content_digest, insert_if_absent
from tuner.db.models import FeedbackRow
from tuner.db.pagination import PAGE_SIZE, Page, fetch_page
from tuner.db.tables import describe_table, load_table

# Reported over measured time, beyond which a table is stale.
STALE_ABOVE_RATIO = 1.25
STALE_BELOW_RATIO = 0.8
MAX_REPORTS = 1000  # newest reports that are evaluated


@dataclass(frozen=True)
class StoredFeedback:
    """A stored report of one program."""

    id: int
    version: int
    cluster: str
    library: str
    ranks: int
    items: Sequence[Mapping[str, Any]]
    stored_at: datetime


@dataclass(frozen=True)
class Staleness:
    """The result of comparing reported times with those measured for the table.

    reports, items      how many were reported; fewer may have been comparable
    ratio               reported over measured time, geometric mean over reports, or None if none
                        was comparable
    low, high           its 95 % confidence interval, or None for fewer than two reports
    """

    reports: int
    items: int
    stale: bool
    reason: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


_COLUMNS = (
    FeedbackRow.id,
    FeedbackRow.version,
    FeedbackRow.cluster,
    FeedbackRow.library,
    FeedbackRow.ranks,
    FeedbackRow.items,
    FeedbackRow.stored_at,
)


def store_feedback(session: Session, version: int, report: Mapping[str, Any]) -> InsertResult:
    """Store a report, once per content.

    A report has cluster, library, ranks, and items of collective, nodes, ppn, memory, operators,
    placement, algorithm, nbytes, calls, median_s and max_s (seconds). Raises NotFoundError where
    there is no such version.
    """
    describe_table(session, version)
    told = {name: report[name] for name in ("cluster", "library", "ranks")}
    told["items"] = [
        omit_default_placement({"placement": BLOCK, **item}) for item in report["items"]
    ]
    values = {**told, "version": version, "digest": content_digest([version, told])}
    return insert_if_absent(session, FeedbackRow.id, values, "digest")


def list_feedback(
    session: Session, version: int, *, after: int = 0, limit: int = PAGE_SIZE
) -> Page[StoredFeedback]:
    """Return a page of reports in the order received; raise NotFoundError if no such version."""
    describe_table(session, version)
    query = select(*_COLUMNS).where(FeedbackRow.version == version)
    return fetch_page(session, query, FeedbackRow.id, StoredFeedback, after, limit)


def assess_staleness(session: Session, version: int) -> Staleness:
    """Compare the reports with the evidence of the rules that the programs followed.

    Only measured rules count, between the probed sizes, and only calls that ran the rule's
    algorithm. Each report counts as one number, as one launch does in `tuner.core.speedup`: the
    geometric mean of its items. Raises NotFoundError where there is no such version.
    """
    table = load_table(session, version)
    of_version = FeedbackRow.version == version
    reports = session.scalar(select(func.count()).where(of_version)) or 0
    newest = select(FeedbackRow.items).where(of_version).order_by(FeedbackRow.id.desc())
    items = session.scalars(newest.limit(MAX_REPORTS)).all()
    logs = [_log_ratios(table, each) for each in items]
    ratios = [math.exp(float(np.mean(each))) for each in logs if each]
    return _assess(reports, sum(map(len, items)), ratios)


def _assess(reports: int, items: int, ratios: list[float]) -> Staleness:
    if not reports:
        return Staleness(0, 0, False, "no program has reported on this version")
    if len(ratios) < 2:
        few = "one report is" if ratios else "no report is"
        return Staleness(
            reports,
            items,
            False,
            f"{few} about sizes that the table measured; it takes two to judge",
            ratios[0] if ratios else None,
        )
    ratio, low, high = mean_over_launches([[each] for each in ratios])
    stale = (ratio > STALE_ABOVE_RATIO and low > 1) or (ratio < STALE_BELOW_RATIO and high < 1)
    advice = "probe again and publish a new table" if stale else "no reason to probe again"
    reason = (
        f"calls take {ratio:.2f} times as long as when the table was measured (95 % interval"
        f" {low:.2f} to {high:.2f}, {len(ratios)} reports): {advice}"
    )
    return Staleness(reports, items, stale, reason, ratio, low, high)


def _log_ratios(table: TuningTable, items: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the logarithms of reported over expected time of the items with an expected time."""
    logs = []
    for item in items:
        rule = _followed_rule(table, item)
        if rule is None or rule.choice.algorithm != item["algorithm"] or item["median_s"] <= 0:
            continue
        expected = _expected_seconds(rule.evidence, item["nbytes"])
        if expected is not None:
            logs.append(math.log(item["median_s"] / expected))
    return logs


def _followed_rule(table: TuningTable, item: Mapping[str, Any]) -> Rule | None:
    """Return the rule that the call followed.

    Where no rule has the call's operators, the one for any operator applies.
    """
    key = RuleKey(
        Collective(item["collective"]),
        item["nodes"],
        item["ppn"],
        item["memory"],
        item["operators"],
        item.get("placement", BLOCK),
    )
    own = table.lookup(key, item["nbytes"])
    return own or table.lookup(replace(key, operators="any"), item["nbytes"])


def _expected_seconds(evidence: Evidence, nbytes: int) -> float | None:
    """Return the expected time, interpolated in log-log between the nearest probed sizes.

    The result is in seconds, and None outside the probed sizes or where the rule was not measured.
    """
    points = sorted(zip(evidence.nbytes, evidence.chosen_s, strict=False))
    known = [(size, time) for size, time in points if size > 0 and time > 0]
    if evidence.basis != "measured" or not known or not known[0][0] <= nbytes <= known[-1][0]:
        return None
    sizes, times = np.log(np.asarray(known)).T
    return math.exp(float(np.interp(math.log(nbytes), sizes, times)))
