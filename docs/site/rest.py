"""The reference pages of the REST service, made from its OpenAPI description, a page per tag."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuner.api.app import create_app
from tuner.api.settings import Settings

PROBLEM = "application/problem+json"
Json = Mapping[str, Any]


def document() -> dict[str, Any]:
    """Return the OpenAPI description of the service."""
    with TemporaryDirectory() as folder:
        settings = Settings(database=f"sqlite:///{Path(folder, 'tuner.sqlite')}")
        return create_app(settings).openapi()


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page."""
    described = document()
    operations: dict[str, list[str]] = defaultdict(list)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            operations[operation["tags"][0]].append(_operation(method, path, operation))
    for tag, texts in operations.items():
        yield tag, "\n\n".join([f"# {tag.capitalize()}", *texts]) + "\n"
    schemas = described["components"]["schemas"]
    parts = [_schema(name, schema) for name, schema in sorted(schemas.items())]
    yield "schemas", "\n\n".join(["# Bodies of requests and answers", *parts]) + "\n"


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [f"## {method.upper()} {path}", operation["description"]]
    rows = [
        (
            f"`{one['name']}`",
            one["in"],
            _type(one["schema"]),
            _required(one.get("required")),
            _said(one),
        )
        for one in operation.get("parameters", ())
    ]
    if rows:
        parts.append(_table(("parameter", "in", "type", "required", "meaning"), rows))
    if body := operation.get("requestBody"):
        parts += ["**Body**", *_contents(body["content"])]
    parts += ["**Answers**", _table(("status", "body", "meaning"), _answers(operation))]
    return "\n\n".join(parts)


def _answers(operation: Json) -> Iterator[tuple[str, ...]]:
    for status, answer in operation["responses"].items():
        content = answer.get("content", {})
        shown = [_type(media.get("schema", {})) or name for name, media in content.items()]
        yield status, ", ".join(dict.fromkeys(shown)), answer["description"]


def _contents(content: Json) -> Iterator[str]:
    for name, media in content.items():
        yield f"`{name}`: {_type(media.get('schema', {})) or 'text'}"
        for example in _examples(media):
            text = example if isinstance(example, str) else json.dumps(example, indent=2)
            yield f"```{'text' if isinstance(example, str) else 'json'}\n{text.rstrip()}\n```"


def _examples(media: Json) -> list[Any]:
    named = [one["value"] for one in media.get("examples", {}).values()]
    return [*([media["example"]] if "example" in media else []), *named][:2]


def _schema(name: str, schema: Json) -> str:
    parts = [f"({_anchor(name)})=\n## {name}", schema.get("description", "")]
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", _type(of), _required(field in required), _said(of))
        for field, of in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append(_table(("field", "type", "required", "meaning"), rows))
    elif "enum" in schema:
        parts.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    return "\n\n".join(part for part in parts if part)


def _type(schema: Json) -> str:
    """Return a type in words, with a link to the schema that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{_anchor(name)})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[several])))
    if "allOf" in schema:
        return _type(schema["allOf"][0])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'values'}"
    return str(schema.get("type", ""))


def _anchor(name: str) -> str:
    return f"schema-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"


def _required(required: object) -> str:
    return "yes" if required else ""


def _said(one: Json) -> str:
    """Return the explanation of a parameter or field, with its default."""
    said = str(one.get("description", ""))
    default = one.get("default", one.get("schema", {}).get("default"))
    return (
        said
        if default in (None, "", [], {})
        else f"{said} (default `{json.dumps(default)}`)".strip()
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_line(head), _line("---" for _ in head)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"
