"""The OpenAPI description of the service, `/openapi.json`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tuner import __version__
from tuner.api.access import required_scope
from tuner.api.problems import ProblemDetails

TITLE = "tuner"
DESCRIPTION = """Measurements, calibrations and tuning tables of clusters, and what the published
tables decide. Times are in seconds, sizes in bytes. Errors are problem details (RFC 9457). On
loopback no token is needed; elsewhere send `Authorization: Bearer TOKEN`, with the scope that each
operation names."""


class DescribedApp(FastAPI):
    """An application whose OpenAPI description includes problem details and scopes."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is created once."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=TITLE, version=__version__, description=DESCRIPTION, routes=self.routes
            )
            self.openapi_schema = _add_problems_and_scopes(document)
        return self.openapi_schema


def _add_problems_and_scopes(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    components.setdefault("schemas", {})["ProblemDetails"] = _inline_definitions(ProblemDetails)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _document_scope(operation, required_scope(method.upper(), path))
    return document


def _inline_definitions(schema: type[ProblemDetails]) -> dict[str, Any]:
    made = schema.model_json_schema()
    parts = made.pop("$defs")
    made["properties"]["errors"]["items"] = parts["FieldError"]
    return made


def _document_scope(operation: dict[str, Any], scope: str | None) -> None:
    """Add the scope that an operation needs, or None for a public one, to its description."""
    if scope is None:
        operation["security"] = []
        return
    operation["security"] = [{}, {"token": []}]
    operation["x-scope"] = scope
    said = operation.get("description", "")
    operation["description"] = f"{said}\n\nScope: `{scope}`.".strip()
