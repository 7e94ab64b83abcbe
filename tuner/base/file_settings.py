"""Settings of files, declared once: how each value is written, read and described.

A record is a class whose fields have a kind in their annotation:

    @dataclass(frozen=True)
    class Ddp:
        bucket: Size = 25 * MIB
        order: Annotated[str, one_of(BUCKET_ORDERS)] = "backward"

`read_settings` checks the keys of a mapping and reads each value; catalogues, the models of the
REST service and the check of the reference page ask `declared_settings` for the same fields.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import parse_bandwidth, parse_size, parse_time

MAX_FLOAT = sys.float_info.max
MAX_TEXT = 40  # characters of a quantity
MAX_LINE = 500  # characters of a text
MAX_COUNT = 1 << 16  # of nodes, ranks, cores, cables, stages, ...

Record = TypeVar("Record")
Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    name        as catalogues call it, such as size, time, rate, number, flag or choice
    read        returns what a value stands for, given its place and itself; raises InputError that
                begins with the place
    schema      JSON schema of a value; {} where requests have it in another form
    choices     the names of which a value is one
    """

    name: str
    read: Callable[[str, Any], Any]
    schema: Schema = field(default_factory=dict)
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class Setting:
    """A setting of a record.

    default     MISSING where it must be given
    about       a phrase for descriptions, the text beside the kind; may be ""
    """

    name: str
    kind: Kind
    default: Any
    about: str


@cache
def declared_settings(record_type: type) -> Mapping[str, Setting]:
    """Return the settings of a record by name: its fields that have a kind."""
    return {
        name: Setting(name, kind, getattr(record_type, name, MISSING), "".join(about))
        for name, hint in get_type_hints(record_type, include_extras=True).items()
        if get_origin(hint) is Annotated
        for kind, *about in [hint.__metadata__]
        if isinstance(kind, Kind)
    }


def required_settings(record_type: type) -> set[str]:
    """Return the names of the settings that must be given."""
    known = declared_settings(record_type)
    return {name for name, one in known.items() if one.default is MISSING}


def read_settings(
    record_type: type, record: Any, what: str, also: Set[str] = frozenset()
) -> dict[str, Any]:
    """Return the values of the settings that a mapping has; raise InputError that names the key.

    what    name of the record, for messages; keys of one that begins with "the" stand alone
    also    keys that the mapping may have besides, and that are not read
    """
    known = declared_settings(record_type)
    require_keys(what, record, known.keys() | also, required_settings(record_type))
    inside = "" if what.startswith("the ") else f"{what}: "
    return {
        name: one.kind.read(f"{inside}{name}", record[name])
        for name, one in known.items()
        if name in record
    }


def read_record(record_type: type[Record], record: Any, what: str) -> Record:
    """Return the record of a mapping; raises InputError as `read_settings` does."""
    return record_type(**read_settings(record_type, record, what))


def require_keys(what: str, record: Any, known: Set[str], required: Set[str]) -> None:
    """Raise InputError unless `record` is a mapping with all `required` and only `known` keys.

    what    name of the record, for the message
    """
    if not isinstance(record, dict):
        raise InputError(f"{what} must be a mapping with {', '.join(sorted(required or known))}")
    for key in record:
        if key not in known:
            raise InputError(
                f"{what} has an unknown key {shortened_repr(key)}; known:"
                f" {', '.join(sorted(known))}"
            )
    for key in sorted(required):
        if key not in record:
            raise InputError(f"{what} lacks {key!r}")


def parse_int(what: str, value: Any, maximum: int = MAX_COUNT, minimum: int = 1) -> int:
    """Return an integer from `minimum` to `maximum`; raise InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InputError(
            f"{what} must be a whole number from {minimum} to {maximum}, not"
            f" {shortened_repr(value)}"
        )
    return value


def parse_positive_float(what: str, value: Any, maximum: float = MAX_FLOAT) -> float:
    """Return a finite number above 0 and at most `maximum`; raise InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= maximum:
        most = f" and at most {maximum:g}" if maximum < MAX_FLOAT else ""
        raise InputError(f"{what} must be a number above 0{most}, not {shortened_repr(value)}")
    return float(value)


def parse_flag(what: str, value: Any) -> bool:
    """Return a truth value; raise InputError otherwise."""
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {shortened_repr(value)}")
    return value


def parse_name(what: str, value: Any) -> str:
    """Return a name; raise InputError otherwise.

    YAML reads a bare `no` as false, so such a name must be quoted.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{what} must be a name, not {shortened_repr(value)}; put quotes round it")
    return str(value)


def parse_names(what: str, value: Any) -> list[str]:
    """Return a list of names; raise InputError otherwise."""
    if not isinstance(value, list):
        raise InputError(f"{what} must be a list of names, not {shortened_repr(value)}")
    return [parse_name(f"each of {what}", name) for name in value]


def parse_distinct_names(what: str, entry: Any) -> tuple[str, ...]:
    """Return the names without duplicates, in the order in which they were written."""
    if not isinstance(entry, list) or not entry or not all(isinstance(e, str) for e in entry):
        raise InputError(f"{what} must be a list of names, not {shortened_repr(entry)}")
    return tuple(dict.fromkeys(entry))


def parse_mapping(what: str, value: Any, known: Collection[str] | None = None) -> dict[str, Any]:
    """Return a mapping; raise InputError for anything else, and for keys that are not known."""
    keys = value if known is None and isinstance(value, dict) else known or ()
    require_keys(what, value, set(keys), set())
    found: dict[str, Any] = value
    return found


def placed(parse: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """Return a reader whose messages begin with the place of the value that `parse` refuses."""

    def read(what: str, value: Any) -> Any:
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise InputError(f"{what} has more than {MAX_TEXT} characters: {shortened_repr(value)}")
        try:
            return parse(value)
        except InputError as reason:
            raise InputError(f"{what}: {reason}") from None

    return read


def whole(maximum: int = MAX_COUNT, minimum: int = 1) -> Kind:
    """Return the kind of whole numbers from `minimum` to `maximum`."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return Kind("number", lambda what, value: parse_int(what, value, maximum, minimum), schema)


def positive(maximum: float = MAX_FLOAT) -> Kind:
    """Return the kind of numbers above 0 and at most `maximum`."""
    schema = {"type": "number", "exclusiveMinimum": 0, "maximum": maximum}
    return Kind("number", lambda what, value: parse_positive_float(what, value, maximum), schema)


def not_negative(maximum: float = MAX_FLOAT) -> Kind:
    """Return the kind of numbers from 0 to `maximum`."""

    def read(what: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= maximum:
            raise InputError(
                f"{what} must be a number from 0 to {maximum:g}, not {shortened_repr(value)}"
            )
        return float(value)

    return Kind("number", read, {"type": "number", "minimum": 0, "maximum": maximum})


def one_of(known: Sequence[str]) -> Kind:
    """Return the kind of values that are one of some names."""

    def read(what: str, value: Any) -> str:
        if value not in known:
            raise InputError(f"{what} is one of {', '.join(known)}, not {shortened_repr(value)}")
        return str(value)

    return Kind("choice", read, {"enum": list(known)}, known)


def optional(kind: Kind) -> Kind:
    """Return a kind whose values may also be null, which is None."""
    read = kind.read
    return replace(
        kind,
        read=lambda what, value: None if value is None else read(what, value),
        schema={"anyOf": [kind.schema, {"type": "null"}]},
    )


def share(below: float = 1.0) -> Kind:
    """Return the kind of shares from 0 to `below`, written as a number or in percent."""

    def read(what: str, value: Any) -> float:
        text = str(value).strip()[: MAX_TEXT + 1]
        try:
            found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            found = math.nan
        if isinstance(value, bool) or len(text) > MAX_TEXT or not 0 <= found < below:
            raise InputError(
                f"{what} is a share from 0 to {below:g}, such as 2%, not {shortened_repr(value)}"
            )
        return found

    number = {"type": "number", "minimum": 0, "exclusiveMaximum": below}
    return Kind("share", read, {"anyOf": [number, QUANTITY]})


def mapping(known: Collection[str]) -> Kind:
    """Return the kind of mappings with some keys, whose values are read later."""
    return Kind(
        "mapping", lambda what, value: parse_mapping(what, value, known), {"type": "object"}
    )


def _read_file_name(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} is the name of a file, not {shortened_repr(value)}")
    return value


def _read_text(what: str, value: Any) -> str:
    text = str(value)
    if len(text) > MAX_LINE:
        raise InputError(f"{what} has more than {MAX_LINE} characters: {shortened_repr(text)}")
    return text


QUANTITY = {"type": "string", "maxLength": MAX_TEXT}
SIZE = Kind("size", placed(parse_size), {"anyOf": [{"type": "integer", "minimum": 0}, QUANTITY]})
TIME = Kind("time", placed(parse_time), QUANTITY)
RATE = Kind("rate", placed(parse_bandwidth), QUANTITY)
FLAG = Kind("flag", parse_flag, {"type": "boolean"})
COUNT = whole()
POSITIVE = positive()
NAME = Kind("name", parse_name)
ANY = Kind("any", lambda _what, value: value)  # checked later, with others
TEXT = Kind("text", _read_text, {"type": ["string", "number"], "maxLength": MAX_LINE})
FILE = Kind("file", _read_file_name)
NAMES = Kind("names", parse_names)
DISTINCT_NAMES = Kind("names", parse_distinct_names)

Size = Annotated[int, SIZE]  # bytes
Seconds = Annotated[float, TIME]
Rate = Annotated[float, RATE]  # bytes per second
Count = Annotated[int, COUNT]
Flag = Annotated[bool, FLAG]
