"""The sections of the report's page, as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tuner.base.units import format_range, format_size, format_sizes, format_time, humanize
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT, OPERATORS, Rule, RuleKey
from tuner.report.curves import (
    CallTime,
    Curve,
    curve_name,
    measured_curves,
    predicted_curves,
    prediction_error,
)
from tuner.report.page_plots import curve_class, fastest_names, interval_bar, ratio_plot, time_plot
from tuner.report.summary import LibraryResult, describe_confirmed_rules, split_control

Record = Mapping[str, Any]
HOW_TO_POINT = (
    "Point at a plot, or go to it with Tab and take \u2190 and \u2192: the times of one size."
)


@dataclass(frozen=True)
class PageSection:
    """A section of the page.

    level           1 for a library, 2 below it
    content         HTML below its title
    collective      the calls that it is about; empty and 0 where it is about several
    ranks           likewise
    """

    anchor: str
    title: str
    level: int
    content: str
    collective: str = ""
    ranks: int = 0

    @property
    def attributes(self) -> str:
        """Return the HTML attributes by which calls are chosen."""
        return call_attributes(self.collective, self.ranks) if self.collective else ""

    @property
    def html(self) -> str:
        return (
            f'<section id="{self.anchor}" class="level{self.level}"{self.attributes}>'
            f"<h{self.level + 1}>{escape(self.title)}</h{self.level + 1}>{self.content}</section>\n"
        )


def call_attributes(collective: str, ranks: int) -> str:
    """Return the HTML attributes by which the page's script chooses calls."""
    return f' data-collective="{escape(collective)}" data-ranks="{ranks}"'


def library_sections(result: LibraryResult, figures: Record) -> Iterator[PageSection]:
    """Yield the sections about one library; `figures` are those of report.json."""
    start = re.sub(r"\W+", "-", result.name)
    yield PageSection(f"{start}-result", result.table.library, 1, _outcome(figures))
    if result.heldout:
        title = "Tuned against default"
        yield PageSection(f"{start}-gain", title, 2, _comparison(result))
    curves = measured_curves(result.measurements.series)
    for number, key in enumerate(sorted(curves, key=lambda key: (key.collective, key.p, str(key)))):
        yield _call_section(f"{start}-call-{number}", result, key, curves[key])
    yield PageSection(f"{start}-rules", "Rules", 2, _rules(result))
    if result.validations:
        yield PageSection(f"{start}-validation", "Validation", 2, _validations(result, figures))


def _outcome(figures: Record) -> str:
    cautions = "".join(
        f'<p class="report-caution">Caution: {escape(sentence)}</p>'
        for sentence in figures["cautions"]
    )
    return f'{_tiles(figures)}{cautions}<p class="verdict">{escape(figures["result"])}</p>'


def _tiles(figures: Record) -> str:
    """Return the figures that matter most, as large numbers."""
    changed = figures["changed"]
    rest = changed["calls"] - changed["faster"] - changed["slower"]
    departing = figures["rules_total"] - figures["rules_default"]
    shown = [(f"{departing} of {figures['rules_total']}", "rules leave the default")]
    if changed["calls"]:
        gain = f"{changed['geomean_speedup']:.2f}\u00d7"
        shown.insert(0, (gain, "as fast as the default, for the calls that changed"))
        shown.append(
            (
                f"{changed['faster']} / {rest} / {changed['slower']}",
                "faster / within noise / slower",
            )
        )
    elif figures["measured"]["calls"] and not figures["heldout"]:
        gain = f"{figures['measured']['geomean_speedup']:.2f}\u00d7"
        shown.insert(0, (gain, "as fast as the default, as measured for the rules"))
    return tiles(shown)


def tiles(shown: Sequence[tuple[str, str]]) -> str:
    """Return figures and their names, as large numbers."""
    items = "".join(f"<div><dt>{name}</dt><dd>{number}</dd></div>" for number, name in shown)
    return f'<dl class="tiles">{items}</dl>'


def _comparison(result: LibraryResult) -> str:
    changed, control = split_control(result.heldout)
    bounds = [1 / bound for record in result.heldout for bound in record["ci95"]]
    limits = min(0.8, *bounds), max(1.25, *bounds)
    parts = [
        '<p class="muted">Times as fast with the table as with the default, at sizes that were'
        " used for nothing else. Bars are 95 % intervals of the time relative to the default: left"
        " of the line it is shorter. Grey: the noise hides any difference.</p>",
        _launches_compared(result),
        _comparison_table(changed, limits) if changed else "",
    ]
    if control:
        parts.append(
            f"<details><summary>Control: {len(control)} calls that the table leaves to the default"
            '</summary><p class="muted">The same code ran on both sides: whatever departs from 1'
            f" here is noise.</p>{_comparison_table(control, limits)}</details>"
        )
    return "".join(parts)


def _comparison_table(records: Sequence[Record], limits: tuple[float, float]) -> str:
    ordered = sorted(records, key=lambda one: (one["collective"], one["p"], one["nbytes"]))
    rows = "".join(_comparison_row(record, limits) for record in ordered)
    names = ("call", "ranks", "size", "algorithm", "", "times as fast", "95 % interval", "default")
    head = _head(names, (1, 5, 6, 7))
    return f'<div class="wide"><table class="compared">{head}<tbody>{rows}</tbody></table></div>'


def _comparison_row(record: Record, limits: tuple[float, float]) -> str:
    ratio, (low, high) = record["ratio"], record["ci95"]
    cells = (
        escape(record["collective"]),
        f'<td class="n">{record["p"]}</td>',
        format_size(record["nbytes"]),
        escape(record["algorithm"]),
        interval_bar(1 / ratio, 1 / high, 1 / low, limits),
        f'<td class="n">{ratio:.2f}\u00d7</td>',
        f'<td class="n">{low:.2f} to {high:.2f}</td>',
        f'<td class="n">{format_time(record["default_s"])}</td>',
    )
    body = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
    return f"<tr{call_attributes(record['collective'], record['p'])}>{body}</tr>"


def _launches_compared(result: LibraryResult) -> str:
    """Return a paragraph on how the two sides were started."""
    how = result.table.provenance.get("acceptance")
    if not how or not result.launch_settings:
        return ""
    variables = (f"{name}={value}" for name, value in result.launch_settings["environment"].items())
    words = escape(" ".join((*variables, *result.launch_settings["command"])))
    return (
        f'<p class="muted">Both sides are launches of a {escape(how["program"])} at thread level'
        f" {escape(how['thread_level'])} that take turns, call by call: one started as programs are"
        f" without <code>tuner</code>, one with <code>{words}</code>. Ratios are geometric means"
        f" over {len(how['conditions'])} conditions: {escape(', '.join(how['conditions']))}, which"
        " say whether a barrier came before each call or several calls ran in a row, and whether"
        " their buffers were reused.</p>"
    )


def _call_section(
    anchor: str, result: LibraryResult, key: RuleKey, curves: Mapping[str, Curve]
) -> PageSection:
    rule_lists = _rule_lists(result, key)
    chosen = {curve_name(rule.choice) for rule_list in rule_lists.values() for rule in rule_list}
    fastest = [name for name in fastest_names(curves) if name != DEFAULT]
    tuned = chosen & curves.keys() - {DEFAULT}
    leading = {*fastest, *tuned}
    banded = tuned or set(fastest[:1])
    predicted = predicted_curves(result.predictions, key.collective, key.p)
    content = (
        '<div class="plots"><figure>'
        f"<figcaption>Time relative to the default{_band_note(banded)}</figcaption>"
        f"{ratio_plot(curves, leading, banded, rule_lists)}</figure>"
        f"<figure><figcaption>Time of one call (max over ranks)</figcaption>"
        f"{time_plot(curves, predicted, leading)}</figure></div>"
        f"{_legend(curves, leading)}"
        f'<div class="readout" aria-live="polite"><p class="muted">{HOW_TO_POINT}</p></div>'
        f"{_accuracy(prediction_error(curves, predicted))}{_values(curves)}"
    )
    ranks = f"{key.p} ranks" if key.nodes == 1 else f"{key.shape} ranks"
    memory = "" if key.memory == "host" else f", {key.memory} memory"
    title = f"{key.collective} on {ranks}{memory}"
    return PageSection(anchor, title, 2, content, str(key.collective), key.p)


def _band_note(banded: set[str]) -> str:
    names = escape(", ".join(sorted(banded)))
    return f"; bands: 95 % intervals of {names}" if banded else ""


def _rule_lists(result: LibraryResult, key: RuleKey) -> dict[str, Sequence[Rule]]:
    """Return the rules for calls of this key, by the operators that they are for."""
    found = {
        operators: result.table.rules_for(
            RuleKey(key.collective, key.nodes, key.ppn, key.memory, operators, key.placement)
        )
        for operators in OPERATORS
    }
    return {operators: rules for operators, rules in found.items() if rules}


def _legend(curves: Mapping[str, Curve], leading: set[str]) -> str:
    shown = sorted(leading | ({DEFAULT} & curves.keys()))
    items = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><g class="curve {curve_class(name)}">'
        f'<path d="M0 5H26"/></g></svg>{escape(name)}</li>'
        for name in shown
    )
    others = sorted(curves.keys() - set(shown))
    if others:
        items += f'<li class="muted">grey, nowhere the fastest: {escape(", ".join(others))}</li>'
    return f'<ul class="report-legend">{items}</ul>'


def _accuracy(factor: float | None) -> str:
    """Return a paragraph on how accurate the predictions are."""
    if factor is None:
        return ""
    return (
        f'<p class="muted">Rings are predictions: half of them are off by a factor of {factor:.2f}'
        " or less. At measured sizes rules rest on measurements alone; predictions say where,"
        " between two of them, one algorithm overtakes another.</p>"
    )


def _values(curves: Mapping[str, Curve]) -> str:
    """Return the table of all values, which the page's script reads, too."""
    calls = sorted(
        ((call, name) for name, curve in curves.items() for call in curve),
        key=lambda one: (one[0].nbytes, one[0].seconds),
    )
    names = ("size", "algorithm", "time", "relative time", "95 % interval")
    rows = "".join(_value_row(call, name) for call, name in calls)
    return (
        "<details><summary>All values</summary>"
        f'<div class="wide"><table class="values">{_head(names, (0, 2, 3, 4))}'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _value_row(call: CallTime, name: str) -> str:
    relative = ("", "")
    if call.relative:
        ratio, low, high = call.relative
        relative = (f"{ratio:.2f}\u00d7", f"{low:.2f} to {high:.2f}")
    if name == DEFAULT:
        relative = ("1", "")
    choice = escape(humanize(str(call.choice)))
    return (
        f'<tr data-size="{call.nbytes}"><td class="n">{format_size(call.nbytes)}</td>'
        f'<td><span class="key {curve_class(name)}"></span>{choice}</td>'
        f'<td class="n">{format_time(call.seconds)}</td>'
        f'<td class="n">{relative[0]}</td><td class="n">{relative[1]}</td></tr>'
    )


def _rules(result: LibraryResult) -> str:
    columns = ("call", "ranks", "operators", "sizes", "algorithm", "times as fast", "95 % interval")
    rows = (
        (key, _rule_cells(key, rule))
        for key in result.table.keys
        for rule in result.table.rules_for(key)
    )
    return table((*columns, "basis"), rows, numeric=(1, 5, 6))


def _rule_cells(key: RuleKey, rule: Rule) -> tuple[str, ...]:
    gain, (low, high) = rule.evidence.gain, rule.evidence.gain_ci95
    relative = ("", "")
    if not rule.choice.is_default and min(gain, low, high) > 0:
        relative = (f"{gain:.2f}\u00d7", f"{low:.2f} to {high:.2f}")
    return (
        str(key.collective),
        str(key.p) if key.nodes == 1 else key.shape,
        key.operators if Collective(key.collective).is_reduction else "",
        format_range(rule.start_bytes, rule.stop_bytes),
        humanize(str(rule.choice)),
        *relative,
        rule.evidence.basis,
    )


def _validations(result: LibraryResult, figures: Record) -> str:
    columns = ("call", "ranks", "tried at", "the table says", "the library executed", "confirmed")
    rows = (
        (
            RuleKey(Collective(one["collective"]), 1, one["p"]),
            (
                one["collective"],
                str(one["p"]),
                format_sizes(one.get("sizes") or [one["nbytes"]]),
                humanize(one["expected"]),
                humanize(one["executed"]),
                "yes" if one["confirmed"] else f"no: {humanize(one['reason'])}",
            ),
        )
        for one in result.validations
    )
    opening = f"<p>{describe_confirmed_rules(figures)} It was started with the tuning file.</p>"
    return opening + table(columns, rows, numeric=(1, 2))


def _head(names: Sequence[str], numeric: Sequence[int]) -> str:
    cells = "".join(
        f"<th{' class=n' if number in numeric else ''}>{name}</th>"
        for number, name in enumerate(names)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def table(
    columns: Sequence[str],
    rows: Iterable[tuple[RuleKey, Sequence[str]]],
    numeric: Sequence[int] = (),
) -> str:
    """Return a table with a row for each text, of the calls that its key says."""

    def cell(number: int, text: str) -> str:
        kind = "n" if number in numeric else "no" if text.startswith("no:") else ""
        return f'<td class="{kind}">{escape(text)}</td>'

    body = "".join(
        f"<tr{call_attributes(str(key.collective), key.p)}>"
        f"{''.join(cell(number, text) for number, text in enumerate(texts))}</tr>"
        for key, texts in rows
    )
    return f'<div class="wide"><table>{_head(columns, numeric)}<tbody>{body}</tbody></table></div>'
