"""Files: written whole or not at all, and what was read believed only after a look at it."""

import math
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tuner.errors import InputError, quoted

Record = TypeVar("Record")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside `path`, flush to disk, then rename over it.

    Raises InputError (disk full, no permission); `path` then is what it was before.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as reason:
        raise InputError(
            f"{path}: cannot be written: {reason.strerror}; nothing was changed"
        ) from None
    finally:  # also when the user interrupts
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def from_record(kind: type[Record], record: Mapping[str, Any]) -> Record:
    """A dataclass from what JSON gave, every value of the type that its field declares.

    "inf" is an infinite float; true and false are no numbers, and NaN is none either. Raises
    ValueError or TypeError for a missing or unknown field and for a value of another type.
    """
    hints = _hints(kind)
    if not isinstance(record, Mapping) or not record.keys() <= hints.keys():
        raise ValueError(f"{quoted(record)} is no {kind.__name__}")
    return kind(**{name: _value(name, hints[name], value) for name, value in record.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(name: str, hint: Any, value: Any) -> Any:
    """The value as its type hint wants it."""
    if _fits(hint, value):
        return value
    inner = get_args(hint)
    if hint is float and value == "inf":
        return math.inf
    if get_origin(hint) is tuple and isinstance(value, list):
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_value(name, h, v) for h, v in zip(each, value, strict=True))
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        return {key: _value(f"{name} {key}", inner[-1], v) for key, v in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return from_record(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    raise ValueError(f"{name} cannot be {quoted(value)}")


def _fits(hint: Any, value: Any) -> bool:
    if hint is Any:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(hint, type) and isinstance(value, hint)
