"""Cautions that precede the gain in a report: losses, noise and rules that were not confirmed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tuner.base.units import format_size, humanize, plural
from tuner.core.measurement import MIN_LAUNCHES, Measurements, launches_of_calls, provenance_texts
from tuner.core.table import DISTURBED_KEY, TuningTable

Record = Mapping[str, Any]
# Typical departure of the control from 1 above which the comparison is doubtful.
MAX_CONTROL_DEPARTURE = 0.05
GREAT_GAIN = 10  # reports of defaults that are that slow are rare (16 times in openucx/ucc#1357)
# Typical half-width of a ratio's 95 % interval above which little can be seen.
MAX_CI_HALF_WIDTH = 0.10


def comparison_cautions(changed: Sequence[Record], control: Sequence[Record]) -> list[str]:
    """Return sentences on wrong and slower calls, and on how far to trust the comparison."""
    compared = [*changed, *control]
    costs = _control_losses(control)
    return [*_wrong(compared), *_losses(changed), *costs, *_departures(control), *_noise(compared)]


def is_slower(record: Record) -> bool:
    """Return whether a call is significantly slower under one of the conditions.

    A record without conditions is slower if its whole 95 % interval lies below 1.
    """
    conditions = record.get("conditions")
    if not conditions:
        return bool(record["ci95"][1] < 1)
    return any(one["slower"] for one in conditions.values())


def _wrong(compared: Sequence[Record]) -> list[str]:
    wrong = [record for record in compared if record.get("wrong")]
    if not wrong:
        return []
    return [
        f"{plural(len(wrong), 'call')} gave a wrong result, such as {wrong[0]['collective']} of"
        f" {format_size(wrong[0]['nbytes'])} on {wrong[0]['p']} ranks. Do not use the table."
    ]


def _losses(changed: Sequence[Record]) -> list[str]:
    slower = [record for record in changed if is_slower(record)]
    if not slower:
        return []
    worst = min(slower, key=_smallest_ratio)
    return [
        f"{plural(len(slower), 'call')} became slower, at most"
        f" {1 / _smallest_ratio(worst):.2f} times"
        f" ({worst['collective']} of {format_size(worst['nbytes'])} on {worst['p']} ranks)."
    ]


def _smallest_ratio(record: Record) -> float:
    conditions = record.get("conditions", {}).values()
    return min(float(one["ratio"]) for one in conditions or (record,) if one.get("slower", True))


def table_cautions(table: TuningTable) -> list[str]:
    """Return sentences on wrong results, withdrawn rules, disturbances, gains and crowded cores."""
    found = table.provenance.get("comparison")
    compared = found if isinstance(found, Mapping) else {}
    wrong = [
        f"{call} gave a wrong result when it was compared. Do not use the table."
        for call in provenance_texts(compared, "wrong")
    ]
    withdrawn = _withdrawn(provenance_texts(compared, "withdrawn"))
    doubts = [*_disturbances(table), *_great_gains(table), *_oversubscription(table)]
    return [*wrong, *withdrawn, *doubts]


def _disturbances(table: TuningTable) -> list[str]:
    """Return a sentence on calls whose times in a launch were left out."""
    disturbed = provenance_texts(table.provenance, DISTURBED_KEY)
    if not disturbed:
        return []
    return [
        f"Something held up {plural(len(disturbed), 'call')} in a launch, such as {disturbed[0]}:"
        " these times are left out."
    ]


def _great_gains(table: TuningTable) -> list[str]:
    """Return a sentence on gains that no C program has confirmed and that are seldom true."""
    gains = [rule.evidence.gain for rule in table.rules if rule.evidence.gain > GREAT_GAIN]
    if not gains or "acceptance" in table.provenance:
        return []
    return [
        f"{plural(len(gains), 'rule')} would make calls over {GREAT_GAIN} times as fast (at most"
        f" {max(gains):.0f} times), which is often a launch that something disturbed: let a C"
        " program try the rules (`tuner table accept`)."
    ]


def _oversubscription(table: TuningTable) -> list[str]:
    cores = table.cluster.cores
    changing = (rule for rule in table.rules if not rule.choice.is_default)
    crowded = sorted({rule.key.p for rule in changing if rule.key.ppn > cores})
    if not crowded:
        return []
    return [
        f"Rules for {', '.join(map(str, crowded))} ranks come from more ranks than a node has cores"
        f" ({cores}): they hold for such runs, and say little about others."
    ]


def _withdrawn(rules: Sequence[str]) -> list[str]:
    if not rules:
        return []
    were = "was" if len(rules) == 1 else "were"
    return [
        f"{plural(len(rules), 'range')} of sizes {were} withdrawn in which rules won when tried and"
        f" did not win again, such as {rules[0]}. This machine does not always behave alike."
    ]


def _control_losses(control: Sequence[Record]) -> list[str]:
    slower = [record for record in control if is_slower(record)]
    if not slower:
        return []
    worst = min(slower, key=_smallest_ratio)
    largest = max(slower, key=lambda call: int(call["nbytes"]))
    return [
        "The file itself costs time: calls that the table leaves to the library become slower, at"
        f" most {1 / _smallest_ratio(worst):.2f} times ({worst['collective']} of"
        f" {format_size(worst['nbytes'])}). It pays for programs whose calls are larger than"
        f" {format_size(largest['nbytes'])}."
    ]


def control_departure(control: Sequence[Record]) -> float:
    """Return how far calls of the same code typically differ: the root mean square of ln(ratio)."""
    if not control:
        return 0.0
    return math.sqrt(sum(math.log(record["ratio"]) ** 2 for record in control) / len(control))


def _departures(control: Sequence[Record]) -> list[str]:
    typical = control_departure(control)
    if typical <= MAX_CONTROL_DEPARTURE:
        return []
    return [
        f"Calls that ran the same code on both sides differed by {typical:.0%}. A difference of"
        " that size in one call means nothing. Measure again on a quiet machine (`--restart`)."
    ]


def _noise(compared: Sequence[Record]) -> list[str]:
    if not compared:
        return []
    width = median(math.log(record["ci95"][1] / record["ci95"][0]) / 2 for record in compared)
    if width <= MAX_CI_HALF_WIDTH:
        return []
    return [
        f"The comparison is too noisy: in half of the calls a difference below {width:.0%} cannot"
        " be seen. Measure again on a quiet machine (`--restart`)."
    ]


def validation_cautions(validations: Sequence[Record]) -> list[str]:
    """Return a sentence on rules that the library was not seen to follow, if there are any."""
    missing = sum(not validation["confirmed"] for validation in validations)
    if not missing:
        return []
    if not any(was_tried(validation) for validation in validations):
        return [
            "No rule was tried in the library: whether it then runs the algorithms that the rules"
            " name is not known."
        ]
    are = "is" if missing == 1 else "are"
    return [
        f"{missing} of {plural(len(validations), 'rule')} {are} not confirmed: the library was not"
        " seen to run the algorithm."
    ]


def was_tried(validation: Record) -> bool:
    """Return whether the library was started with the rule."""
    return bool(validation.get("sizes", True))


def measurement_cautions(measurements: Measurements) -> list[str]:
    """Return sentences on what was noticed while measuring, and on too few launches."""
    notes = provenance_texts(measurements.provenance, "notes")
    noticed = [_sentence(humanize(note)) for note in notes]
    launches = launches_of_calls(measurements.series)
    if 0 < launches < MIN_LAUNCHES:
        noticed.append(
            f"The ranks were launched only {_times(launches)}, so only gains that hardly vary"
            " are seen. Measure with more launches, or with a larger --budget."
        )
    return noticed


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:].removesuffix('.')}."


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number} times"
