"""Atomic writing of files, and checked conversion between dataclasses and JSON records."""

import errno
import json
import math
import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tuner.base.errors import InputError, shortened_repr

Record = TypeVar("Record")


def load_json(text: str | bytes) -> Any:
    """Parse the text of a JSON file; raise ValueError with a message for users."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as reason:
        raise ValueError(f"no JSON, or a damaged one, at line {reason.lineno}") from None
    except UnicodeDecodeError:
        raise ValueError("no text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def write_atomically(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file beside `path`, flush it to disk, then rename it over `path`.

    mode    permissions of the file

    Symbolic links are followed. Into anything but a file, such as a device, a pipe or our own
    standard output, the content is written directly; a reader may close the pipe
    early. Raises InputError (disk full, no permission, a folder); the file is then unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if _is_stream(path):
        _write_to_stream(path, data)
    else:
        _replace_file(Path(os.path.realpath(path)), path, data, mode)


def require_writable_file(path: Path, *inputs: Path | None) -> None:
    """Raise InputError if `write_atomically` could not write `path` or would overwrite an input.

    It writes nothing to `path`.

    inputs  files that are read and must not be overwritten; None: not given
    """
    for other in filter(None, inputs):
        if _is_same_file(path, other) and not _is_stream(path):
            raise InputError(f"{path} is read as well: give another name to write to")
    if _is_folder(path):
        raise InputError(f"{path} is a folder: give the name of a file")
    if _is_stream(path):
        if not os.access(path, os.W_OK):
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")
        return
    _require_writable(path, Path(os.path.realpath(path)).parent)


def require_writable_dir(path: Path) -> None:
    """Raise InputError if no files can be written into a folder, which need not exist yet."""
    if _stat_or_none(path) is not None and not _is_folder(path):
        raise InputError(f"{path} is a file: give the name of a folder")
    _require_writable(path, Path(os.path.realpath(path)))


def _require_writable(path: Path, folder: Path) -> None:
    """Raise InputError if nothing can be written into `folder` or its nearest existing ancestor."""
    import tempfile  # a slow import, which would delay every MPI program

    while not os.path.lexists(folder):
        folder = folder.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as reason:
        raise InputError(f"{path}: cannot be written: {reason.strerror}") from None


def _stat_or_none(path: Path) -> os.stat_result | None:
    """Return the status of `path`; None if it does not exist or cannot be accessed."""
    try:
        return path.stat()
    except OSError:
        return None


def _is_folder(path: Path) -> bool:
    found = _stat_or_none(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _is_stream(path: Path) -> bool:
    """Return whether `path` is a device or pipe, or is our standard output or error."""
    found = _stat_or_none(path)
    if found is None or stat.S_ISDIR(found.st_mode):
        return False
    return not stat.S_ISREG(found.st_mode) or _standard_stream_fd(path) is not None


def _is_same_file(one: Path, other: Path) -> bool:
    found, there = _stat_or_none(one), _stat_or_none(other)
    return found is not None and there is not None and os.path.samestat(found, there)


def _standard_stream_fd(path: Path) -> int | None:
    """Return our file descriptor, 1 or 2, if standard output or error is this file."""
    there = path.stat()
    for stream in (1, 2):
        try:
            if os.path.samestat(there, os.fstat(stream)):
                return stream
        except OSError:  # the stream was closed before we were started
            continue
    return None


def _write_to_stream(path: Path, data: bytes) -> None:
    own = _standard_stream_fd(path)
    try:
        if own is None:  # without a reader a pipe is an error: do not wait
            opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(opened, True)
        else:
            (sys.stdout if own == 1 else sys.stderr).flush()
            opened = os.dup(own)
        with suppress(BrokenPipeError), os.fdopen(opened, "wb") as file:
            file.write(data)
    except OSError as reason:
        why = "no process reads it" if reason.errno == errno.ENXIO else reason.strerror
        raise InputError(f"{path}: cannot be written: {why}") from None


def _replace_file(target: Path, path: Path, data: bytes, mode: int) -> None:
    """Replace the file `target`, which errors call `path`."""
    import tempfile  # a slow import, which would delay every MPI program

    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except OSError as reason:
        raise InputError(
            f"{path}: cannot be written: {reason.strerror}; nothing was changed"
        ) from None
    finally:  # also on KeyboardInterrupt
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def dataclass_from_record(kind: type[Record], record: Mapping[str, Any]) -> Record:
    """Make a dataclass from a JSON object, checking every value against its field's type.

    "inf" is an infinite float; true and false are not accepted as numbers, and neither is NaN.
    Raises ValueError or TypeError for a missing or unknown field and for a value of another type.
    """
    dataclass: type = kind
    hints = _field_types(dataclass)
    if not isinstance(record, Mapping):
        raise ValueError(f"the {_type_label(kind)} must be a mapping, got {shortened_repr(record)}")
    if unknown := record.keys() - hints.keys():
        named = ", ".join(map(shortened_repr, sorted(unknown)))
        raise ValueError(f"unknown in the {_type_label(kind)}: {named}")
    values = {
        name: value
        if hints[name] is type(value) is not float  # the common case, decided fast
        else _decode_value(name, hints[name], value)
        for name, value in record.items()
    }
    try:
        return kind(**values)
    except TypeError:
        lacking = sorted(_required_fields(dataclass) - record.keys())
        if not lacking:
            raise
        raise ValueError(f"a {_type_label(kind)} lacks {', '.join(lacking)}") from None


def encode_infinities(value: Any) -> Any:
    """Return a value for JSON, with infinity as the string "inf".

    `dataclass_from_record` reads it back.
    """
    if isinstance(value, dict):
        return {key: encode_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_infinities(item) for item in value]
    return "inf" if value == math.inf else value


@cache
def _origin_and_args(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _required_fields(kind: Any) -> set[str]:
    """Return the names of the fields without a default."""
    return {
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    }


def _type_label(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__.lstrip("_")).lower()


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode_value(name: str, hint: Any, value: Any) -> Any:
    """Convert a JSON value to its type hint; raise ValueError if it does not match."""
    if _matches_type(hint, value):
        return value
    origin, inner = _origin_and_args(hint)
    if origin is UnionType:  # `kind | None`, or a union of kinds
        fitting = next((kind for kind in inner if _matches_type(kind, value)), inner[0])
        return None if value is None else _decode_value(name, fitting, value)
    if hint is float and value == "inf":
        return math.inf
    if origin is tuple and isinstance(value, list):
        if inner == (float, ...) and _all_finite(value):
            return tuple(value)
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_decode_value(name, h, v) for h, v in zip(each, value, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        return {key: _decode_value(f"{name} {key}", inner[-1], v) for key, v in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return dataclass_from_record(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    raise ValueError(f"{name} cannot be {shortened_repr(value)}")


def _all_finite(values: list[Any]) -> bool:
    """Return whether these are surely finite floats.

    It is fast because samples come by the million.
    """
    return set(map(type, values)) == {float} and math.isfinite(sum(values))


def _matches_type(hint: Any, value: Any) -> bool:
    if hint is Any:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(hint, type) and isinstance(value, hint)
