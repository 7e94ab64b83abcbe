"""What fuzzing the service starts from, and what it demands of every response."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.serving import a_study, a_table, good, probe_file, publish
from tests.support.waiting import patience
from tuner.api.routes import calibrations, measurements, topologies

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A measurements file with a piece of it replaced by something else."""
    file = measurements.EXAMPLE.encode()
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(file))] * 2)))
    piece = draw(st.sampled_from([b"", b'"', b"{", b"\n", b"NaN", b"\\u0000", b"-1", b"1e999"]))
    return draw(st.sampled_from([file, file[:first] + piece + file[last:], file[first:last]]))


schemathesis.openapi.media_type(measurements.NDJSON_MEDIA_TYPE, _damaged() | st.binary())


@schemathesis.serializer(measurements.NDJSON_MEDIA_TYPE)
def _as_it_is(_context: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def fill(client: httpx.Client) -> None:
    """One of everything, under the id 1, so that guessed ids are sometimes right."""
    cluster = {"name": "ares", "nodes": 1, "cores": 4}
    good(client.post("/v1/clusters", json=cluster), 201)
    good(client.post("/v1/topologies", content=topologies.EXAMPLE), 201)
    good(client.post("/v1/measurements", content=probe_file()), 201)
    good(client.post("/v1/calibrations", json=calibrations.EXAMPLE), 201)
    publish(client, a_table())
    good(client.post("/v1/studies", json=a_study()), 202)
    good(client.post("/v1/jobs/1/cancel"), 202)


def fuzzed(client: httpx.Client, examples: int) -> Iterator[Any]:
    """Try every operation with so many sound and so many faulty requests.

    Raises schemathesis's failures, with the request, for a response that is not described.
    """
    described = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
    for found in described.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _try(operation, mode, examples)
        yield operation


def _try(operation: Any, mode: GenerationMode, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, timeout=patience())

    with suppress(Unsatisfiable):  # nothing can be wrong about a request without parameters
        attempt()
