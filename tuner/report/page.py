"""The report as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tuner.base.units import format_range, format_sizes, humanize
from tuner.core.collective import Collective
from tuner.core.table import Rule, RuleKey
from tuner.report.curves import (
    measured_collectives,
    measured_curves,
    predicted_curves,
    prediction_error,
)
from tuner.report.figures import curves_svg, heldout_svg
from tuner.report.summary import LibraryResult, describe_confirmed_rules, split_control, summarise

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1080px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { margin-top: 2.6rem; border-bottom: 1px solid
#ddd; } h3 { margin: 1.8rem 0 .2rem; font-size: 1.05rem; }
svg { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: 13px; margin: .5rem 0; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #eee; }
th { font-weight: 600; border-bottom: 1px solid #999; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { background: #f3f3ee; border-left: 4px solid #332288; padding: .6rem 1rem; }
.caution { background: #fdeee6; border-left: 4px solid #cc3311; padding: .6rem 1rem;
           font-weight: 600; }
.no { color: #882255; font-weight: 600; } .faint { color: #666; }
"""


def render_page(results: Sequence[LibraryResult]) -> str:
    """Return the report as HTML with all plots inside."""
    record = summarise(results)
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Tuning report</title>",
        f"<style>{CSS}</style><h1>Tuning report</h1>",
        f"<p class='faint'>{escape(_cluster(results[0]))}</p>",
    ]
    for result in results:
        figures = record["libraries"][result.name]
        parts.append(f"<h2>{escape(result.table.library)}</h2>")
        for sentence in figures["cautions"]:
            parts.append(f"<p class='caution'>Caution: {escape(sentence)}</p>")
        parts.append(f"<p class='verdict'>{escape(figures['result'])}</p>")
        parts.append(_heldout(result))
        parts.append(_times(result))
        parts.append(_rules(result))
        parts.append(_validations(result, figures))
    return "\n".join(parts) + "</html>\n"


def _cluster(result: LibraryResult) -> str:
    cluster = result.table.cluster
    return (
        f"{cluster.name}: {cluster.nodes} node, {cluster.cores} cores, {cluster.cpu},"
        f" {cluster.memory / 2**30:.0f} GiB of memory"
    )


def _heldout(result: LibraryResult) -> str:
    changed, control = split_control(result.heldout)
    parts = [_compared(result)]
    if changed:
        parts.append(
            "<h3>Tuned against default at sizes that were used for nothing else</h3>"
            "<p class='faint'>Bars are 95 % confidence intervals. Green triangles to the right:"
            " significantly faster. Purple triangles to the left: significantly slower. Grey"
            " circles: the noise hides any difference.</p>" + heldout_svg(changed)
        )
    if control:
        parts.append(
            f"<details><summary>Control: {len(control)} calls that the table leaves to the default"
            "</summary><p class='faint'>The same code ran on both sides: whatever departs from 1"
            " here is noise.</p>" + heldout_svg(control) + "</details>"
        )
    return "".join(parts)


def _compared(result: LibraryResult) -> str:
    """Return a paragraph on how the two sides were started."""
    how = result.table.provenance.get("acceptance")
    if not how or not result.launch_settings:
        return ""
    variables = (f"{name}={value}" for name, value in result.launch_settings["environment"].items())
    words = escape(" ".join((*variables, *result.launch_settings["command"])))
    return (
        f"<p class='faint'>Both sides are launches of a {escape(how['program'])} at thread level"
        f" {escape(how['thread_level'])} that take turns, call by call: one started as programs are"
        f" without <code>tuner</code>, one with <code>{words}</code>. Ratios are geometric means"
        f" over {len(how['conditions'])} conditions: {escape(', '.join(how['conditions']))}, which"
        " say whether a barrier came before each call or several calls ran in a row, and whether"
        " their buffers were reused.</p>"
    )


def _times(result: LibraryResult) -> str:
    parts = []
    series = result.measurements.series
    for collective, p in measured_collectives(series):
        key = next(
            (
                k
                for k in result.table.keys
                if (k.collective, k.p) == (collective, p) and k.operators == "any"
            ),
            None,
        )
        times, told = (
            measured_curves(series, collective, p),
            predicted_curves(result.predictions, collective, p),
        )
        parts.append(
            f"<h3>{escape(collective)} on {p} ranks</h3>{_accuracy(prediction_error(times, told))}"
        )
        parts.append(curves_svg(times, told, result.table.rules_for(key) if key else ()))
    return "".join(parts)


def _accuracy(factor: float | None) -> str:
    """Return a paragraph on how accurate the predictions are."""
    if factor is None:
        return ""
    return (
        f"<p class='faint'>Half of the predictions are off by a factor of {factor:.2f} or less. At"
        " measured sizes rules rest on measurements alone; predictions say where, between two of"
        " them, one algorithm overtakes another.</p>"
    )


def _rules(result: LibraryResult) -> str:
    columns = ("call", "ranks", "operators", "sizes", "algorithm", "gain", "95 % interval", "basis")
    rows = [
        _rule_cells(key, rule) for key in result.table.keys for rule in result.table.rules_for(key)
    ]
    return "<h3>Rules</h3>" + _table(columns, rows, numeric=(1, 5, 6))


def _rule_cells(key: RuleKey, rule: Rule) -> tuple[str, ...]:
    low, high = rule.evidence.gain_ci95
    gain = (
        ("", "")
        if rule.choice.is_default
        else (f"{rule.evidence.gain:.2f}", f"{low:.2f} to {high:.2f}")
    )
    operators = key.operators if Collective(key.collective).is_reduction else ""
    return (
        str(key.collective),
        str(key.p),
        operators,
        format_range(rule.start_bytes, rule.stop_bytes),
        humanize(str(rule.choice)),
        *gain,
        rule.evidence.basis,
    )


def _validations(result: LibraryResult, figures: Mapping[str, Any]) -> str:
    if not result.validations:
        return ""
    columns = ("call", "ranks", "tried at", "the table says", "the library executed", "confirmed")
    rows = [
        (
            validation["collective"],
            str(validation["p"]),
            format_sizes(validation.get("sizes") or [validation["nbytes"]]),
            humanize(validation["expected"]),
            humanize(validation["executed"]),
            "yes" if validation["confirmed"] else f"no: {humanize(validation['reason'])}",
        )
        for validation in result.validations
    ]
    opening = f"<p>{describe_confirmed_rules(figures)} It was started with the tuning file.</p>"
    return "<h3>Validation</h3>" + opening + _table(columns, rows, numeric=(1, 2))


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()
) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag} class='{'n' if i in numeric else 'no' if text.startswith('no:') else ''}'>"
            f"{escape(text)}</{tag}>"
            for i, text in enumerate(texts)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', columns)}</tr>{body}</table>"
