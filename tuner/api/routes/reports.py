"""The report of a table, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from tuner import db
from tuner.api.problems import problem_responses, text_response_docs
from tuner.api.schemas import API_PREFIX, PathId
from tuner.api.service import Service, ServiceDep
from tuner.core.measurement import Measurements, provenance_texts
from tuner.core.table import Rule, TuningTable
from tuner.report import LibraryResult
from tuner.report.page import content_security_policy, render_page

router = APIRouter(prefix=f"{API_PREFIX}/tables", tags=["tables"], responses=problem_responses())
HTML_MEDIA_TYPE = "text/html"
MAX_SERIES = 20_000  # of measurements that a report draws
MAX_INLINE_SERIES = 100  # that take less time to draw than starting a worker
WITHOUT_SERIES = "the curves are left out"


@router.get(
    "/{version}/report",
    response_class=HTMLResponse,
    responses=problem_responses(404, extra_responses=text_response_docs(HTML_MEDIA_TYPE)),
)
async def get_report(service: ServiceDep, version: PathId) -> Response:
    """Return the report of a table as `tuner quickstart` writes it.

    The page asks for nothing else, and can be saved and sent as it is.
    """
    page = await to_thread.run_sync(_render, service, version, limiter=service.long_limiter)
    headers = {
        "Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'",
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(page, headers=headers)


def _render(service: Service, version: int) -> str:
    """Return the page, which a worker draws where that takes time."""
    with db.read_session(service.engine) as session:
        stored = db.describe_table(session, version)
        table = db.load_table(session, version)
        measurements = _load_measurements(session, stored.measurements_id, table)
        validations = _with_rules(table, db.load_validations(session, version))
        heldout = db.load_heldout(session, version)
    name = table.library.partition(" ")[0]
    results = [LibraryResult(name, measurements, table, (), validations, heldout)]
    if service.workers is None or len(measurements.series) <= MAX_INLINE_SERIES:
        return render_page(results)
    return service.workers.run(render_page, results)


def _load_measurements(session: db.Session, number: int | None, table: TuningTable) -> Measurements:
    """Return the measurements of a table, without series where there are none or too many."""
    if number is None:
        note = f"no measurements are stored with this table, so {WITHOUT_SERIES}"
        return Measurements(table.cluster, table.library, {"notes": [note]}, ())
    stored = db.describe_measurements(session, number)
    if stored.series <= MAX_SERIES:
        return db.load_measurements(session, number)
    note = f"measurements {number} have {stored.series} series, so {WITHOUT_SERIES}"
    notes = [*provenance_texts(stored.provenance, "notes"), note]
    return Measurements(table.cluster, table.library, {**stored.provenance, "notes": notes}, ())


def _with_rules(
    table: TuningTable, validations: Iterable[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the validations with the rule that each is about, which the database does not hold."""
    found = []
    for validation in validations:
        for rule in filter(partial(_is_about, validation), table.rules):
            about = {name: getattr(rule.key, name) for name in ("nodes", "ppn", "operators")}
            found.append({**validation, **about, "start_bytes": rule.start_bytes})
    return found


def _is_about(validation: Mapping[str, Any], rule: Rule) -> bool:
    called = str(rule.key.collective), rule.key.p, str(rule.choice)
    names = ("collective", "p", "expected")
    is_inside = rule.start_bytes <= validation["nbytes"] < rule.stop_bytes
    return is_inside and called == tuple(validation[name] for name in names)
