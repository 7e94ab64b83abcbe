"""Models of requests that take the settings of files, made from where these are declared."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import MISSING
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, create_model

from tuner.api.schemas import RequestBody
from tuner.base.errors import InputError
from tuner.base.file_settings import Setting, declared_settings


def settings_model(record_type: type, left_out: Set[str] = frozenset()) -> Any:
    """Return the model of requests with the settings of a record; null is left out.

    left_out    settings that requests do not have, or have in another form
    """
    fields = {
        name: (
            _field_type(one),
            Field(... if one.default is MISSING else None, description=one.about or None),
        )
        for name, one in declared_settings(record_type).items()
        if name not in left_out
    }
    return create_model(record_type.__name__, __base__=RequestBody, **fields)  # type: ignore[call-overload]


def _field_type(setting: Setting) -> Any:
    """Return the type of what the kind of a setting reads, as it was sent."""

    def check(value: Any) -> Any:
        try:
            setting.kind.read(setting.name, value)
        except InputError as reason:
            raise ValueError(str(reason)) from None
        return value

    sent = Annotated[Any, AfterValidator(check), WithJsonSchema(dict(setting.kind.schema))]
    return sent if setting.default is MISSING else sent | None
