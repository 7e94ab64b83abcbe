"""Tables: immutable versions, in the native formats of the libraries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter, ValidationError

from tuner import db
from tuner.api.bodies import RawBody, parse_json_body, request_body_docs
from tuner.api.large_requests import LargeBodyRoute
from tuner.api.native_formats import (
    FORMAT_BY_MEDIA_TYPE,
    TUNER_FORMAT,
    RequestedFormat,
    negotiate_format,
)
from tuner.api.problems import problem_responses
from tuner.api.published_tables import Representation, TableVersion
from tuner.api.schemas import (
    API_PREFIX,
    EXAMPLE_DIGEST,
    EXAMPLE_TIMESTAMP,
    ClusterLibraryFilter,
    Id,
    Identifier,
    Name,
    Page,
    PathId,
    QueryParameters,
    set_example,
)
from tuner.api.service import Service, ServiceDep
from tuner.core.table import table_from_record
from tuner.select.table_diff import diff_tables, table_diff_record

router = APIRouter(
    prefix=f"{API_PREFIX}/tables",
    tags=["tables"],
    responses=problem_responses(),
    route_class=LargeBodyRoute,
)
IMMUTABLE_CACHE_CONTROL = "private, max-age=31536000, immutable"
_RULE = {
    "key": {"collective": "bcast", "nodes": 1, "ppn": 4, "memory": "host", "operators": "any"},
    "start_bytes": 0,
    "stop_bytes": "inf",
    "choice": {"algorithm": "binomial", "params": {}, "runner": "library"},
    "evidence": {
        "basis": "measured",
        "nbytes": [1024],
        "default_s": [2e-06],
        "chosen_s": [1e-06],
        "gain": 2.0,
        "gain_ci95": [1.8, 2.2],
    },
}
EXAMPLE = {
    "kind": "table",
    "version": 1,
    "library": "openmpi 5.0.11",
    "provenance": {},
    "cluster": {"name": "one", "nodes": 1, "cores": 4, "cpu": "", "memory": 0},
    "rules": [_RULE],
}
TABLE_RESPONSES = problem_responses(
    404,
    406,
    409,
    501,
    extra_responses={
        200: {
            "description": "The table",
            "content": {
                media_type: {
                    "schema": {"type": "object" if media_type.endswith("json") else "string"},
                    **({"example": EXAMPLE} if form == TUNER_FORMAT else {}),
                }
                for media_type, form in FORMAT_BY_MEDIA_TYPE.items()
            },
        },
        304: {"description": "The table is the one that If-None-Match names"},
    },
)


set_example(
    db.StoredTable,
    version=1,
    digest=EXAMPLE_DIGEST,
    cluster="ares",
    library="openmpi 5.0.11",
    measurements_id=1,
    calibration_id=1,
    rules=21,
    stored_at=EXAMPLE_TIMESTAMP,
)


class TableSources(QueryParameters):
    """The sources of a table, where the service knows them."""

    measurements: Id | None = Field(None, description="what it was made from")
    calibration: Id | None = Field(None, description="what it was made with")


class FormatQuery(QueryParameters):
    """The format that a table is wanted in; without `format` the Accept header decides."""

    format: (
        Literal[
            "tuner",
            "openmpi",
            "openmpi-han",
            "openmpi-json",
            "mpich",
            "mpich-device",
            "mvapich",
            "nccl",
            "ucc",
            "intelmpi",
            "mvapich2",
        ]
        | None
    ) = None
    operators: Literal["any", "commutative"] = Field(
        "any", description="whose rules to use where the format cannot tell operators apart"
    )
    fallback_algorithm: Identifier | None = Field(
        None,
        examples=["ring_simple"],
        description="what runs where the table leaves the choice to a library whose format cannot",
    )
    ranks: int | None = Field(
        None, ge=1, le=2**31 - 1, description="of the communicators that variables are for"
    )

    def requested_format(self, accept: str | None) -> RequestedFormat:
        """Return the requested format; raise Problem 406 where the header allows none."""
        return negotiate_format(
            accept, self.format, self.operators, self.fallback_algorithm or "", self.ranks
        )


class FormatOrDiffQuery(FormatQuery):
    """The format that a version is wanted in, or the version to compare it with."""

    against: Id | None = Field(
        None, description="an earlier version: the answer is what changed, why, and what it gains"
    )


class PublishedQuery(FormatQuery):
    """The published table that is wanted, and its format."""

    cluster: Name | None = Field(None, description="may be left out where one has such a table")
    library: Name = Field(description="may lack its version", examples=["openmpi 5.0.11"])


_QUERY = TypeAdapter(PublishedQuery)
Accept = Annotated[str | None, Header()]
IfNoneMatch = Annotated[str | None, Header()]


@router.post(
    "",
    status_code=201,
    response_model=db.StoredTable,
    responses=problem_responses(404, extra_responses={200: {"model": db.StoredTable}}),
    openapi_extra=request_body_docs({"application/json": EXAMPLE}),
)
def create_table(
    service: ServiceDep, body: RawBody, response: Response, source: Annotated[TableSources, Query()]
) -> Any:
    """Store the record of a table file as a new version; 200 when its content is there already.

    422 for a table without a cluster, a library or rules, and for a rule whose algorithm Open MPI,
    MPICH or our schedules do not have, or that would give some of its calls wrong results or end
    the program.
    """
    table = table_from_record(parse_json_body(body))
    with db.transaction(service.engine) as session:
        stored = db.store_table(session, table, source.measurements, source.calibration)
        response.status_code = 201 if stored.is_new else 200
        return db.describe_table(session, stored.id)


@router.get("", response_model=Page[db.StoredTable])
def list_tables(service: ServiceDep, query: Annotated[ClusterLibraryFilter, Query()]) -> Any:
    """All versions, or those of one cluster or library."""
    with db.read_session(service.engine) as session:
        return db.list_tables(session, **query.model_dump())


@router.get("/published", response_class=Response, responses=TABLE_RESPONSES)
def get_published_table(
    service: ServiceDep,
    query: Annotated[PublishedQuery, Query()],
    accept: Accept = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The table that is published now; ask again with its ETag, 304 says that it still is."""
    entry = service.published_tables.find(query.cluster, query.library)
    rendition = entry.representation(query.requested_format(accept), service.generic_rules)
    return table_response(rendition, if_none_match)


def answer_from_cache(service: Service, request: Request) -> Response | None:
    """Answer `get_published_table` from memory; return None where that is not possible."""
    headers = request.headers
    try:
        query = _QUERY.validate_strings(dict(request.query_params))
    except ValidationError:
        return None
    form = query.requested_format(headers.get("accept"))
    entry = service.published_tables.find(query.cluster, query.library)
    rendition = entry.representations.get(form)
    return table_response(rendition, headers.get("if-none-match")) if rendition else None


@router.get("/{version}", response_class=Response, responses=TABLE_RESPONSES)
def get_table(
    service: ServiceDep,
    version: PathId,
    form: Annotated[FormatOrDiffQuery, Query()],
    accept: Accept = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One version, whose rules never change, though files in other formats may be written better
    later; or, `against` another one, what changed since."""
    with db.read_session(service.engine) as session:
        entry = TableVersion.load(session, version)
        before = None if form.against is None else db.load_table(session, form.against)
    if before is not None:
        changed = table_diff_record(diff_tables(before, entry.table))
        return JSONResponse(changed, headers={"cache-control": "no-cache"})
    rendition = entry.representation(form.requested_format(accept), service.generic_rules)
    return table_response(
        rendition, if_none_match, IMMUTABLE_CACHE_CONTROL if rendition.immutable else "no-cache"
    )


def table_response(
    rendition: Representation, if_none_match: str | None, cache: str = "no-cache"
) -> Response:
    """Return the representation, or status 304 where the client has it already."""
    headers = {"ETag": rendition.etag, "Cache-Control": cache, "Vary": "Accept"}
    if if_none_match is not None and _etag_matches(if_none_match, rendition.etag):
        return Response(status_code=304, headers=headers)
    return Response(rendition.body, headers=headers, media_type=rendition.media_type)


def _etag_matches(if_none_match: str, etag: str) -> bool:
    """Compare weakly (RFC 9110, section 13.1.2), as proxies that compress weaken ETags."""
    if if_none_match == etag:
        return True
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in known or known == ["*"]
