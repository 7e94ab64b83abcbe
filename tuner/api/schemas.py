"""Parts that the requests and responses of several resources share."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from tuner.core.collective import Collective

Item = TypeVar("Item")

API_PREFIX = "/v1"
MAX_INT32 = 2**31 - 1  # ids and counts
MAX_SAFE_INTEGER = 2**53  # bytes; some JSON parsers round larger integers
MAX_NESTING_DEPTH = 50  # levels of a record
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # characters that databases refuse

Id = Annotated[int, Field(ge=1, le=MAX_INT32)]
PathId = Annotated[int, Path(ge=1, le=MAX_INT32, examples=[1])]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
SizeInBytes = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]  # bytes
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
CollectiveName = Annotated[Collective, Field(strict=False, examples=["allreduce"])]
AlgorithmParams = dict[Identifier, Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]]


def check_storable(value: Any, depth: int = 0) -> Any:
    """Return a JSON value that every database can store; raise ValueError for any other.

    Such a value has no NUL and no unpaired surrogates, no integer beyond 64 bits, no infinity or
    NaN, and at most MAX_NESTING_DEPTH levels.
    """
    if depth > MAX_NESTING_DEPTH:
        raise ValueError(f"nested deeper than {MAX_NESTING_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            check_storable(key)
            check_storable(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_storable(item, depth + 1)
    elif isinstance(value, str):
        if _UNSTORABLE.search(value):
            raise ValueError("a text contains something that is not a character")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number is beyond 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is infinite or none at all")
    return value


EXAMPLE_DIGEST = "dc112bbcefc105f2f1fba49cfc3e5eb2faca176255e1ca55f5b9a46700a1090b"
EXAMPLE_TIMESTAMP = "2026-03-01T12:00:00Z"


def example_config(**fields: Any) -> ConfigDict:
    """Return the configuration of a model with an example for the OpenAPI description."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


def set_example(answer: type, **example: Any) -> None:
    """Give a dataclass that routes answer with an example for the OpenAPI description."""
    answer.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]  # pydantic reads it
        json_schema_extra={"examples": [example]}, json_schema_serialization_defaults_required=True
    )


class RequestBody(BaseModel):
    """A request body, in which every value has its own type.

    It has nothing unknown in it: a misspelt name would change the question.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryParameters(BaseModel):
    """The parameters of a query, with nothing unknown among them."""

    model_config = ConfigDict(extra="forbid")


class Pagination(QueryParameters):
    """The part of a list that is wanted."""

    limit: int = Field(100, ge=1, le=1000, description="at most so many items")
    after: int = Field(0, ge=0, le=MAX_INT32, description="`next` of the page before")


class ClusterLibraryFilter(Pagination):
    """The part of a list that belongs to one cluster or library."""

    cluster: Name | None = None
    library: Name | None = None


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    items: list[Item]
    next: int | None = Field(description="`after` of the next page, null on the last")


class CallQuery(QueryParameters):
    """One call of a collective."""

    collective: CollectiveName
    nodes: Count = Field(examples=[1])
    ppn: Count = Field(description="ranks per node", examples=[8])
    nbytes: SizeInBytes = Field(description="bytes of one rank's buffer", examples=[65536])
    memory: Identifier = Field("host", examples=["host"])
    operators: Literal["any", "commutative"] = "any"
    placement: Literal["consecutive", "cyclic"] = Field(
        "consecutive", description="of the ranks on the nodes: cyclic ones are dealt one by one"
    )
