"""The figures and the verdict of report.json, with times in seconds and sizes in bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tuner.base.units import format_size, humanize, plural
from tuner.core.measurement import Measurements
from tuner.core.table import DEFAULT, TuningTable
from tuner.report import cautions
from tuner.report.cautions import control_departure, is_slower
from tuner.report.measured_gain import describe_measured_gain, mean_gain, measured_gains

Record = Mapping[str, Any]
NOT_IN_VALIDATED_FILE = "the file that was proved does not hold it"
# Fields of a validation record that identify its rule.
_RULE_KEY = ("collective", "nodes", "ppn", "p", "operators", "start_bytes")


@dataclass(frozen=True)
class LibraryResult:
    """Everything known about one MPI library at the end of a run.

    predictions     records of collective, algorithm, params, p, nbytes, seconds
    validations     records of collective, p, operators, lo, nbytes, expected, executed, confirmed,
                    reason
    heldout         records of collective, p, nbytes, algorithm, default_s, tuned_s, ratio, ci95;
                    ratio is default over tuned time: above 1 is faster than the default; the same
                    by condition under `conditions`
    launch_settings how to start a program with the file: `command` has the words before the
                    program's name, `environment` the variables
    """

    name: str  # openmpi, mpich
    measurements: Measurements
    table: TuningTable
    predictions: Sequence[Record]
    validations: Sequence[Record]
    heldout: Sequence[Record]
    launch_settings: Record = field(default_factory=dict)


def summarise(results: Sequence[LibraryResult]) -> dict[str, Any]:
    """Return the content of report.json: all libraries together, then each by itself."""
    noticed = {
        r.name: [*cautions.table_cautions(r.table), *cautions.measurement_cautions(r.measurements)]
        for r in results
    }
    libraries = {r.name: _library_record(r, noticed[r.name]) for r in results}
    validations = [
        {"library": r.name, **validation}
        for r in results
        for validation in validations_per_rule(r.table, r.validations)
    ]
    heldout = [{"library": r.name, **held} for r in results for held in r.heldout]
    verdict = " ".join(
        f"{result.table.library}: {libraries[result.name]['verdict']}" for result in results
    )
    every = [sentence for sentences in noticed.values() for sentence in sentences]
    measured = " ".join(describe_measured_gain(result.table) for result in results)
    gain = describe_outcome(heldout) if heldout else measured
    return {
        **_figures(validations, heldout, every, gain),
        "verdict": verdict,
        "libraries": libraries,
    }


def _library_record(result: LibraryResult, noticed: Sequence[str]) -> dict[str, Any]:
    """Return the figures of one library, where and how it is used, and its measured gains."""
    table, gains = result.table, measured_gains(result.table.rules)
    validations = validations_per_rule(table, result.validations)
    return {
        **_figures(validations, result.heldout, noticed, describe_gain(table, result.heldout)),
        "library": table.library,
        "cluster": table.cluster.name,
        "use": result.launch_settings,
        "measured": {"calls": len(gains), "geomean_speedup": mean_gain(gains)},
        "acceptance": table.provenance.get("acceptance", {}),
    }


def validations_per_rule(
    table: TuningTable, validations: Sequence[Record], reason: str = NOT_IN_VALIDATED_FILE
) -> list[Record]:
    """Return one record for each rule of a table.

    Rules without a validation come last; they are not confirmed, for this reason.
    """
    proved = {tuple(validation[name] for name in _RULE_KEY) for validation in validations}
    others: list[Record] = [
        {
            "collective": rule.key.collective.value,
            "p": rule.key.p,
            "nodes": rule.key.nodes,
            "ppn": rule.key.ppn,
            "operators": rule.key.operators,
            "start_bytes": rule.start_bytes,
            "nbytes": rule.start_bytes,
            "sizes": [],
            "stop_bytes": "inf" if rule.stop_bytes == math.inf else int(rule.stop_bytes),
            "expected": str(rule.choice),
            "executed": "",
            "confirmed": False,
            "reason": reason,
        }
        for rule in table.rules
    ]
    return [
        *validations,
        *(o for o in others if tuple(o[name] for name in _RULE_KEY) not in proved),
    ]


def _figures(
    validations: Sequence[Record], heldout: Sequence[Record], noticed: Sequence[str], gain: str
) -> dict[str, Any]:
    changed, control = split_control(heldout)
    warnings = [
        *cautions.comparison_cautions(changed, control),
        *cautions.validation_cautions(validations),
        *noticed,
    ]
    unconfirmed = [
        {
            "rule": rule_name(validation),
            "executed": validation["executed"],
            "reason": validation["reason"],
        }
        for validation in validations
        if not validation["confirmed"]
    ]
    return {
        "verdict": " ".join([*warnings, gain]),
        "cautions": warnings,
        "result": gain,
        **_mean(heldout),
        "changed": {
            "calls": len(changed),
            "faster": len(_faster(changed)),
            "slower": len(_slower(changed)),
            **_mean(changed),
        },
        "control": {
            "calls": len(control),
            "departure": control_departure(control),
            **_mean(control),
        },
        "rules_total": len(validations),
        "rules_confirmed": len(validations) - len(unconfirmed),
        "rules_default": sum(validation["expected"] == DEFAULT for validation in validations),
        "rules_unconfirmed": unconfirmed,
        "heldout": [dict(record) for record in heldout],
    }


def describe_confirmed_rules(figures: Record) -> str:
    """Return in words how many rules were confirmed and how many change something."""
    total, default = figures["rules_total"], figures["rules_default"]
    return (
        f"{figures['rules_confirmed']} of {plural(total, 'rule')} {'was' if total == 1 else 'were'}"
        f" seen at work in the real library: {total - default} that"
        f" {'names' if total - default == 1 else 'name'} another algorithm than its default,"
        f" {default} that {'leaves' if default == 1 else 'leave'} calls to it."
    )


def split_control(heldout: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Split records into calls that the table changes, and the control.

    The control are calls that the table leaves to the default. They ran the same code on both
    sides, so that any difference in them is noise.
    """
    changed = [record for record in heldout if record["algorithm"] != DEFAULT]
    return changed, [record for record in heldout if record["algorithm"] == DEFAULT]


def _mean(heldout: Sequence[Record]) -> dict[str, Any]:
    mean, low, high = geometric_mean_speedup(heldout)
    return {"geomean_speedup": mean, "geomean_ci95": [low, high]}


def _faster(heldout: Sequence[Record]) -> list[Record]:
    return [record for record in heldout if record["ci95"][0] > 1 and not is_slower(record)]


def _slower(heldout: Sequence[Record]) -> list[Record]:
    return [record for record in heldout if is_slower(record)]


def rule_name(validation: Record) -> str:
    """Return the name of a rule, such as `bcast on 4 ranks at 64KiB: binomial (segment=8KiB)`."""
    call = f"{validation['collective']} on {validation['p']} ranks"
    return f"{call} at {format_size(validation['nbytes'])}: {humanize(validation['expected'])}"


def geometric_mean_speedup(heldout: Sequence[Record]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios and its 95 % interval; (1, 1, 1) without records.

    All calls were timed in the same few launches, and what one choice of cores favours goes
    through all of them: errors do not average out, so the bounds are averaged like the ratios.
    """
    if not heldout:
        return 1.0, 1.0, 1.0
    columns = zip(*((record["ratio"], *record["ci95"]) for record in heldout), strict=True)
    mean, low, high = (math.exp(fmean(map(math.log, column))) for column in columns)
    return mean, low, high


def describe_gain(table: TuningTable, heldout: Sequence[Record]) -> str:
    """Return what the comparison says of the gain, else what the measured rules say."""
    return describe_outcome(heldout) if heldout else describe_measured_gain(table)


def describe_outcome(heldout: Sequence[Record]) -> str:
    """Return in words what was gained or lost, and how far the control departed from 1."""
    changed, control = split_control(heldout)
    if not heldout:
        return "Nothing was compared, so nothing is known about the gain."
    if not changed:
        opening = (
            "Nothing was gained and nothing lost: no other algorithm was significantly faster, so"
            f" the table leaves all {len(heldout)} compared calls to the library's default."
        )
    else:
        opening = f"{_opening(changed)} {_counts(changed, len(heldout))}"
    return f"{opening}{_control(control)}"


def _opening(changed: Sequence[Record]) -> str:
    mean, low, high = geometric_mean_speedup(changed)
    interval = f"95 % interval {low:.2f} to {high:.2f}"
    figures = f"(geometric mean {mean:.2f}, {interval})"
    if low > 1:
        return (
            f"Calls whose algorithm the table changes became {mean:.2f} times as fast (geometric"
            f" mean, {interval})."
        )
    if high < 1:
        return (
            f"Something was lost: calls whose algorithm the table changes became slower {figures}."
        )
    if _faster(changed):
        return f"Some calls gained, but not all changed calls taken together {figures}."
    return f"The changed calls show no significant gain {figures}."


def _counts(changed: Sequence[Record], total: int) -> str:
    faster, slower = _faster(changed), _slower(changed)
    rest = len(changed) - len(faster) - len(slower)
    return (
        f"The table changes {len(changed)} of {total} compared calls, all of sizes that were used"
        f" for nothing else: {_count(faster, 'faster')}, {_count(slower, 'slower')},"
        f" {rest or 'none'} within noise."
    )


def _control(control: Sequence[Record]) -> str:
    if not control:
        return ""
    ratios = [record["ratio"] for record in control]
    return (
        f" Control: {len(control)} calls ran the same code on both sides and came out at"
        f" {min(ratios):.2f} to {max(ratios):.2f}."
    )


def _count(records: Sequence[Record], word: str) -> str:
    if not records:
        return f"none {word}"
    extreme = max(records, key=lambda record: abs(math.log(record["ratio"])))
    ratio = max(extreme["ratio"], 1 / extreme["ratio"])
    return (
        f"{len(records)} {word} (at most {ratio:.2f} times: {extreme['collective']} of"
        f" {format_size(extreme['nbytes'])} on {extreme['p']} ranks)"
    )
