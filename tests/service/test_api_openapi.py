"""The description of the service holds, whatever schemathesis tries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, TypeAdapter

from tests.service.fuzzing import fill, fuzzed
from tests.service.serving import good, served
from tuner import db
from tuner.api import routes
from tuner.api.app import create_app
from tuner.api.schemas import Page
from tuner.api.settings import Settings

NEXT = Page[int].model_json_schema()["properties"]["next"]
EXAMPLES = 5  # of each operation; `python -m tests.bench.fuzz` tries many more


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    with served(Settings(database=database_url)) as client:
        fill(client)
        yield client


@pytest.mark.extended
def test_nothing_undocumented_happens(client: httpx.Client) -> None:
    tried = {operation.label for operation in fuzzed(client, EXAMPLES)}
    document = good(client.get("/openapi.json"))
    assert len(tried) == sum(map(len, document["paths"].values()))


def test_every_operation_is_described(tmp_path: Path) -> None:
    document = create_app(Settings(database=f"sqlite:///{tmp_path / 'tuner.sqlite'}")).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["description"], where
            assert operation["tags"], where
            assert "500" in operation["responses"], where
            assert "401" in operation["responses"], where
            for media in operation.get("requestBody", {}).get("content", {}).values():
                assert _has_example(media, document), where
            for status, answer in operation["responses"].items():
                for name, media in answer.get("content", {}).items():
                    assert name != "application/json" or _has_example(media, document), (
                        where,
                        status,
                    )


def test_examples_of_answers_are_such_answers() -> None:
    models = {
        model
        for module in (db, *vars(routes).values())
        if isinstance(module, ModuleType)
        for model in vars(module).values()
        if isinstance(model, type) and (_is_model(model) or "__pydantic_config__" in vars(model))
    }
    adapters: list[TypeAdapter[Any]] = [TypeAdapter(model) for model in models]
    shown = [
        (adapter, example)
        for adapter in adapters
        for example in adapter.json_schema().get("examples", ())
    ]
    assert len(shown) > 10
    for adapter, example in shown:
        adapter.validate_python(example)


def _is_model(model: type) -> bool:
    return issubclass(model, BaseModel) and model is not BaseModel


def _has_example(media: dict[str, Any], document: dict[str, Any]) -> bool:
    """Of the whole, or of every field that must be there."""
    if "example" in media or "examples" in media or media["schema"].get("type") == "string":
        return True
    schema = media["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "examples" in schema:
        return True
    fields = [schema["properties"][name] for name in schema.get("required", ())]
    return all(
        "examples" in field or "$ref" in field or field.get("type") == "array" or field == NEXT
        for field in fields
    )
