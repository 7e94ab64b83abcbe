"""Everything known about one call of a table: what was measured, and why each rule chose as it did.

A call is here a collective on one shape, at all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.base.units import format_range, format_size, humanize
from tuner.core.measurement import Measurements
from tuner.core.table import (
    DEFAULT,
    LEARNED,
    MEASURED,
    AlgorithmChoice,
    Rule,
    TuningTable,
    rule_record,
)
from tuner.select.dataset import (
    BATCHES_KEY,
    Observation,
    build_observations,
    group_by_point,
    no_simulation,
)
from tuner.select.disturbances import screen_launches
from tuner.select.significance import Comparison, compare_with_default


@dataclass(frozen=True)
class MeasuredTime:
    """Measured times of one candidate, or of the default, at one size.

    seconds, low, high  time and its 95 % interval
    gain, gain_ci95     time of the default over this one, from the launches that have both; None
                        where the default was not measured with it
    is_faster           whether it is surely faster than the default, where a test of these samples
                        decides: not where an experiment design chose what was measured
    """

    nbytes: int
    choice: AlgorithmChoice
    samples: int
    launches: int
    seconds: float
    low: float
    high: float
    gain: float | None = None
    gain_ci95: tuple[float, float] | None = None
    is_faster: bool = False


def measured_times(measurements: Measurements) -> list[MeasuredTime]:
    """Return what the measurements of one call say, by size, the fastest first.

    Raises InputError for damaged measurements.
    """
    designed = bool(measurements.provenance.get(BATCHES_KEY))
    found = []
    every = build_observations(measurements, no_simulation)
    if designed:
        every = screen_launches(every).observations
    for point, rows in group_by_point(every).items():
        default = next((row for row in rows if row.choice.is_default), None)
        whole = compare_with_default(point, rows) if default and not designed else None
        own = [
            _measured_time(
                row, _compare_pair(default, row) if default and designed else whole, designed
            )
            for row in rows
        ]
        found += sorted(own, key=lambda each: each.seconds)
    return found


def _compare_pair(default: Observation, row: Observation) -> Comparison | None:
    """Compare a candidate with the default in the launches that both have; None without any.

    An experiment design measures different candidates in different launches.
    """
    common = {*default.samples} & {*row.samples}
    if not common:
        return None
    pair = (
        replace(one, samples={launch: one.samples[launch] for launch in common})
        for one in (default, row)
    )
    return compare_with_default(row.point, [*pair])


def _measured_time(row: Observation, compared: Comparison | None, designed: bool) -> MeasuredTime:
    samples = [len(launch) for launch in row.samples.values()]
    interval = row.seconds, row.low, row.high
    time = MeasuredTime(row.point.nbytes, row.choice, sum(samples), len(samples), *interval)
    if compared is None or row.choice not in compared.gains:
        return time
    return replace(
        time,
        gain=compared.gains[row.choice],
        gain_ci95=compared.interval(row.choice),
        is_faster=not designed and row.choice in compared.winners,
    )


def explain_rule(rule: Rule, times: Sequence[MeasuredTime], provenance: Mapping[str, Any]) -> str:
    """Return why a rule chooses what it does, in one or two sentences.

    times       of the call, as far as they are stored
    provenance  of the table
    """
    if rule.choice.is_default:
        return _explain_default(rule, times, provenance)
    evidence = rule.evidence
    if not evidence.nbytes:
        return "Chosen without evidence."
    low, high = evidence.gain_ci95
    sizes = _sizes(evidence.nbytes)
    figures = (
        f"{evidence.gain:.2f} times as fast as the default (95 % interval {low:.2f} to {high:.2f})"
    )
    if evidence.basis == MEASURED:
        where = " in a C program" if "acceptance" in provenance else ""
        text = f"Measured{where} at {sizes}: {figures}."
    elif evidence.basis == LEARNED:
        text = (
            f"Learned: not measured beside the default at every one of {sizes}; by all that was"
            f" measured there and around expected to be {figures}."
        )
    else:
        text = f"Simulated: nothing was measured nearby; at {sizes} expected to be {figures}."
    if evidence.slowdown_probability is not None:
        text += f" Over 5 % slower with a probability of {evidence.slowdown_probability:.1%}."
    runner_up = evidence.runner_up
    return f"{text} Next best: {humanize(runner_up)}." if runner_up else text


def _explain_default(
    rule: Rule, times: Sequence[MeasuredTime], provenance: Mapping[str, Any]
) -> str:
    evidence = rule.evidence
    if not evidence.nbytes:
        where = format_range(rule.start_bytes, rule.stop_bytes)
        return (
            f"Nothing was measured here ({where}), and no gain is certain to last so far from what"
            " was measured: the default stays."
        )
    sizes = _sizes(evidence.nbytes)
    if evidence.basis != MEASURED:
        return (
            f"The default itself was not measured everywhere here ({sizes}); from what was measured"
            " here and around, nothing allowed is expected to be faster than it by enough."
        )
    own = [each for each in times if each.nbytes in evidence.nbytes and each.gain is not None]
    if "acceptance" in provenance and evidence.runner_up:
        return (
            f"{humanize(evidence.runner_up)} won in the probe, and did not win again in a C program"
            f" at {sizes}: the default stays."
        )
    if own:
        designed = bool(provenance.get("probe", {}).get(BATCHES_KEY))
        return _explain_losses(own, sizes, designed)
    if evidence.runner_up not in ("", DEFAULT):
        return (
            f"Of what was measured at {sizes} nothing allowed is surely faster than the default;"
            f" next best: {humanize(evidence.runner_up)}."
        )
    return f"Of what was measured at {sizes} nothing allowed is surely faster than the default."


def _explain_losses(times: Iterable[MeasuredTime], sizes: str, designed: bool) -> str:
    """Explain the default by the candidate that came closest, or that was not allowed."""
    best = max(times, key=lambda each: each.gain or 0.0)
    assert best.gain is not None
    assert best.gain_ci95 is not None
    low, high = best.gain_ci95
    figures = (
        f"{humanize(str(best.choice))} at {format_size(best.nbytes)}, is {best.gain:.2f} times as"
        f" fast (95 % interval {low:.2f} to {high:.2f})"
    )
    if best.is_faster:
        return (
            f"The fastest measured, {figures}; yet the default stays, as a rule may not use it"
            " here: it reorders operands, was excluded, is beyond what the library's rules can"
            " say, or wins at too few sizes."
        )
    if designed:
        return (
            f"By all that was measured, nothing allowed is surely enough faster than the default at"
            f" {sizes}. The best beside it in a launch, {figures}."
        )
    return (
        f"Of what was measured at {sizes} nothing is surely faster than the default: the best,"
        f" {figures}, and less than 5 % or an interval that contains 1 is noise."
    )


def _sizes(nbytes: Sequence[int]) -> str:
    """Return sizes as `64KiB`, or `4 sizes from 4KiB to 1MiB`."""
    ends = [format_size(each) for each in (nbytes[0], nbytes[-1])]
    return ends[0] if len(nbytes) == 1 else f"{len(nbytes)} sizes from {ends[0]} to {ends[1]}"


def describe_call(table: TuningTable, measured: Measurements | None) -> dict[str, Any]:
    """Return the rules of a call with their reasons, and its measured times, as JSON records.

    table       the rules of the call alone
    measured    what was measured of the call; None where that is not known
    """
    times = measured_times(measured) if measured is not None else []
    rules = []
    for rule in table.rules:
        record = rule_record(rule)
        kept = {name: record[name] for name in ("start_bytes", "stop_bytes", "choice")}
        rules.append({**kept, "why": explain_rule(rule, times, table.provenance)})
    return {"rules": rules, "candidates": [_time_record(each) for each in times]}


def _time_record(time: MeasuredTime) -> dict[str, Any]:
    """Return a measured time with the name of its choice, and an infinite bound as None."""
    record = {**vars(time), "name": str(time.choice), "algorithm": time.choice.algorithm}
    del record["choice"]
    if time.gain_ci95 is not None:
        low, high = time.gain_ci95
        record["gain_ci95"] = (low, high if math.isfinite(high) else None)
    return record
