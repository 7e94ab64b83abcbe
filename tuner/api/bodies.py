"""Request bodies that are files: received as bytes and parsed outside the event loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from tuner.api.schemas import check_storable
from tuner.base.errors import InputError


async def _read_body(request: Request) -> bytes:
    return await request.body()


RawBody = Annotated[bytes, Depends(_read_body)]


def request_body_docs(examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a body.

    examples    media type -> an example, or None
    """
    return {
        "requestBody": {
            "required": True,
            "content": {
                media_type: {
                    "schema": {"type": "string"}
                    if "json" not in media_type or "ndjson" in media_type
                    else {"type": "object"},
                    **({"example": example} if example is not None else {}),
                }
                for media_type, example in examples.items()
            },
        }
    }


def decode_body(body: bytes) -> str:
    """Return the text of a body; raise InputError where it is not UTF-8 or contains NUL."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as reason:
        raise InputError(f"the body is not UTF-8 text: byte {reason.start}") from None
    if "\0" in text:
        raise InputError("the body is not text: it contains NUL")
    return text


def parse_json_body(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises InputError where it is not JSON or contains values that the database cannot store.
    """
    try:
        return check_storable(json.loads(decode_body(body)))
    except (ValueError, RecursionError) as reason:
        raise InputError(f"the body is not JSON that can be used: {reason}") from None
