"""The report as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path

from tuner.base.units import plural
from tuner.core.measurement import Cluster
from tuner.report.page_sections import PageSection, library_sections
from tuner.report.palette import DARK, LIGHT
from tuner.report.summary import LibraryResult, summarise
from tuner.studio.assets import PAGES_DIR

STANDALONE_STYLE = Path(__file__).parent / "page_files" / "standalone.css"
CONTENT_STYLE = PAGES_DIR / "report_content.css"  # as the studio's page has it
CONTENT_SCRIPT = PAGES_DIR / "report_content.js"


def render_page(results: Sequence[LibraryResult]) -> str:
    """Return the report as HTML with its plots, its style and its script inside."""
    title = f"Tuning report: {escape(results[0].table.cluster.name)}"
    return standalone_page(title, render_content(results))


def standalone_page(title: str, content: str) -> str:
    """Return a page with its style and its script inside.

    Its security policy allows nothing else, so that no browser asks another machine for anything.
    """
    policy = content_security_policy()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{_style()}</style></head>\n<body>{content}"
        f'<script type="module">{_script()}</script></body></html>\n'
    )


def content_security_policy() -> str:
    """Return the policy that allows the page its own style and script, and nothing else."""
    return (
        f"default-src 'none'; style-src {_digest(_style())}; script-src {_digest(_script())};"
        " base-uri 'none'; form-action 'none'"
    )


def render_content(results: Sequence[LibraryResult]) -> str:
    """Return what the page shows, without its style and its script."""
    record = summarise(results)
    sections = [
        section
        for result in results
        for section in library_sections(result, record["libraries"][result.name])
    ]
    return arrange("Tuning report", _describe(results[0].table.cluster), sections)


def arrange(title: str, description: str, sections: Sequence[PageSection]) -> str:
    """Return the content of a page: its title, its contents with filters, and its sections."""
    return (
        f'<div class="report"><div class="report-head"><h1>{escape(title)}</h1>'
        f"<p>{escape(description)}</p></div>"
        f'<aside class="report-aside">{_filters(sections)}{_contents(sections)}</aside>'
        f'<div class="report-body">{"".join(section.html for section in sections)}'
        '<p class="nothing" hidden>Nothing here is about such calls: choose others above.</p>'
        "</div></div>"
    )


@cache
def _style() -> str:
    return f"{_palette_css()}{_read(STANDALONE_STYLE)}{_read(CONTENT_STYLE)}"


@cache
def _script() -> str:
    return f"{_read(CONTENT_SCRIPT)}\nenliven(document.querySelector('.report'));\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _palette_css() -> str:
    """Return the colours of algorithms as variables."""

    def variables(colours: Iterable[str]) -> str:
        return "".join(f"--a{number}:{colour};" for number, colour in enumerate(colours))

    return (
        f":root{{{variables(LIGHT)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}\n"
    )


def _describe(cluster: Cluster) -> str:
    known = (
        plural(cluster.nodes, "node"),
        plural(cluster.cores, "core") + (" each" if cluster.nodes > 1 else ""),
        cluster.cpu,
        f"{cluster.memory / 2**30:.0f} GiB of memory" if cluster.memory else "",
    )
    return f"{cluster.name}: {', '.join(filter(None, known))}"


def _filters(sections: Sequence[PageSection]) -> str:
    """Return the controls that choose collective and ranks; none where there is no choice."""
    collectives = sorted({one.collective for one in sections if one.collective})
    ranks = sorted({one.ranks for one in sections if one.ranks})
    parts = [
        _select("collective", "Collective", "all", [(name, name) for name in collectives]),
        _select("ranks", "Ranks", "any number", [(str(p), str(p)) for p in ranks]),
    ]
    return f'<div class="report-filters">{"".join(parts)}</div>'


def _select(name: str, label: str, everything: str, choices: Sequence[tuple[str, str]]) -> str:
    options = "".join(
        f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in choices
    )
    return (
        f'<label>{label} <select data-filter="{name}"><option value="">{everything}</option>'
        f"{options}</select></label>"
    )


def _contents(sections: Sequence[PageSection]) -> str:
    links = "".join(
        f'<li class="level{section.level}"{section.attributes}>'
        f'<a href="#{section.anchor}">{escape(section.title)}</a></li>'
        for section in sections
    )
    return f'<nav aria-label="Contents"><h2>Contents</h2><ul>{links}</ul></nav>'
