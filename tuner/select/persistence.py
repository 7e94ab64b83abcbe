"""Trained selectors as files: what they have learned, and a manifest of what it rests on.

A Gaussian process is what it was trained on, so that is what is kept: the typical time of every
choice at every call, with its interval. The matrices, many times as large, are made again when
they are asked for, and give the same answers. skops keeps the columns, which runs nothing that a
file says; of classes a file may name none but numpy's arrays.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import math
import platform
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner import __version__
from tuner.base.arrays import FloatArray, IntArray
from tuner.base.atomic_io import finite, from_record, write_atomically
from tuner.base.errors import InputError, quoted
from tuner.core.measurement import LONGEST, SHORTEST
from tuner.core.path_classes import CONSECUTIVE
from tuner.core.table import Choice
from tuner.select.cases import Case
from tuner.select.dataset import Point, Row, Simulate
from tuner.select.selector import Selector, train

FILE, MANIFEST = "selector.skops", "manifest.json"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "skops")  # whose versions a manifest tells
MOST_BYTES = 256 << 20  # unpacked
_SCHEMA = "schema.json"  # of skops: what is in a file, and of which classes
VERSION = 2
OBJECTS = 1  # version whose file holds an object of a class instead of its columns
# What zipfile, zlib, numpy and skops raise for a file that is not theirs.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Trained:
    """What was measured, one row for each call and choice: columns of the same length.

    group           whose times are comparable: cluster and library
    choice          a `Choice` as JSON
    seconds         typical, with the 95 % interval from low to high
    """

    group: NDArray[np.str_]
    collective: NDArray[np.str_]
    nodes: IntArray
    ppn: IntArray
    memory: NDArray[np.str_]
    nbytes: IntArray
    choice: NDArray[np.str_]
    seconds: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def on(cls, cases: Sequence[Case]) -> Trained:
        """Learn from all cases. Raises InputError where there are none, and for ranks that are not
        consecutive: the columns say nothing of placements.
        """
        if not cases:
            raise InputError("there are no calls of consecutive ranks to train a selector on")
        if any(case.point.placement != CONSECUTIVE for case in cases):
            raise InputError("a selector is trained on calls of consecutive ranks and no others")
        rows = [
            (
                case.group,
                *_call(case.point),
                json.dumps(asdict(row.choice), sort_keys=True),
                row.typical,
                row.low,
                row.high,
            )
            for case in cases
            for row in case.rows.values()
        ]
        return cls(*map(np.array, zip(*rows, strict=True)))

    @property
    def groups(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(map(str, np.unique(self.group)))

    def selector(self, simulate: Simulate, group: str = "") -> Selector:
        """That of one group, which must be named where there are several: machines differ too much
        to be asked together. Raises InputError for another name.
        """
        asked = group or (self.groups[0] if len(self.groups) == 1 else "")
        if asked not in self.groups:
            what = f"nothing was learned of {quoted(group)}" if group else "say what it is like"
            raise InputError(f"{what}: there are {', '.join(self.groups)}")
        return train([row for name, row in self._rows() if name == asked], simulate)

    def _rows(self) -> list[tuple[str, Row]]:
        choices = {text: _choice(text) for text in set(self.choice.tolist())}
        columns = [column.tolist() for column in _columns(self)]
        return [
            (group, Row(Point(*call), choices[choice], {0: (seconds,)}, seconds, low, high))
            for group, *call, choice, seconds, low, high in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class Manifest:
    """Where a trained selector comes from and how good it is.

    data        name of each file that it was trained on, the whole path where several have that
                name -> its SHA-256
    versions    of what trained it
    held_out    set of comparable calls -> what it was asked without having seen it, and the regret
    selector    SHA-256 of the file beside it
    """

    data: Mapping[str, str]
    versions: Mapping[str, str]
    held_out: Mapping[str, Mapping[str, Any]]
    selector: str = ""


def versions() -> dict[str, str]:
    """Of this program and of what it computes with here. Raises InputError without skops."""
    _skops()
    known = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"tuner": __version__, "python": platform.python_version(), **known}


def write_trained(trained: Trained, manifest: Manifest, directory: Path) -> None:
    """Both files. Raises InputError where they cannot be written, or without skops."""
    data = _skops().dumps(vars(trained), compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    record = {**asdict(manifest), "selector": sha256(data).hexdigest()}
    text = json.dumps({"kind": "selector", "version": VERSION, **finite(record)}, indent=1)
    write_atomically(directory / FILE, data)
    write_atomically(directory / MANIFEST, text + "\n")


def read_trained(directory: Path) -> tuple[Trained, Manifest]:
    """What `write_trained` wrote. Raises InputError for anything else, and without skops."""
    manifest = _manifest(directory / MANIFEST)
    path = directory / FILE
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    if sha256(data).hexdigest() != manifest.selector:
        raise InputError(f"{path}: is not the file that {MANIFEST} beside it tells of: train again")
    try:
        return _loaded(data), manifest
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def _manifest(path: Path) -> Manifest:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.pop("kind") != "selector" or record.pop("version") not in (OBJECTS, VERSION):
            raise ValueError("of another kind or version")
        return from_record(Manifest, record)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as reason:
        raise InputError(f"{path}: is no manifest of a trained selector: {reason}") from None


def _loaded(data: bytes) -> Trained:
    """Raises InputError for what is too large, names another type, or is no selector at all."""
    skops = _skops()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MOST_BYTES:
                raise InputError(f"would unpack to {size} bytes, more than {MOST_BYTES}")
            data = _of_columns(data, archive)
        foreign = skops.get_untrusted_types(data=data)
        if foreign:
            raise InputError(f"names {sorted(foreign)[0]}, which no selector needs: not loaded")
        found = Trained(**skops.loads(data))
    except _DAMAGED as reason:
        raise InputError(f"is no trained selector: {reason}") from None
    if not _sound(found):
        raise InputError("is no trained selector: its columns do not fit together")
    return found


def _of_columns(data: bytes, archive: zipfile.ZipFile) -> bytes:
    """Return a file of the columns alone, of one that holds an object with these columns.

    Files of version 1 name the class and the module that it was in.
    """
    schema = json.loads(archive.read(_SCHEMA))
    if not isinstance(schema, dict) or schema.get("__class__") != "Trained":
        return data
    plain = {**schema["content"], **{name: schema[name] for name in ("protocol", "_skops_version")}}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as copy:
        for entry in archive.infolist():
            content = json.dumps(plain) if entry.filename == _SCHEMA else archive.read(entry)
            copy.writestr(entry.filename, content)
    return written.getvalue()


def _sound(trained: Trained) -> bool:
    columns = _columns(trained)
    if not all(isinstance(column, np.ndarray) and column.ndim == 1 for column in columns):
        return False
    kinds = "".join(column.dtype.kind for column in columns)
    lengths = {len(column) for column in columns}
    if kinds != "UUiiUiUfff" or len(lengths) > 1 or lengths == {0}:
        return False
    whole = min(trained.nodes.min(), trained.ppn.min()) >= 1 and trained.nbytes.min() >= 0
    seconds = trained.seconds
    timed = seconds.min() >= SHORTEST and seconds.max() <= LONGEST
    around = (trained.low > 0) & (trained.low <= seconds) & (seconds <= trained.high)
    return bool(whole and timed and around.all() and math.isfinite(trained.high.max()))


def _columns(trained: Trained) -> list[Any]:
    """In the order of their declaration; a file may lack some."""
    return [vars(trained).get(field.name) for field in fields(Trained)]


def _choice(text: str) -> Choice:
    try:
        return from_record(Choice, json.loads(text))
    except (TypeError, ValueError, RecursionError) as reason:
        raise InputError(f"trained selector: {quoted(text)} is no choice: {reason}") from None


def _call(point: Point) -> tuple[str, int, int, str, int]:
    return str(point.collective), point.nodes, point.ppn, point.memory, point.nbytes


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError:
        raise InputError(
            "trained selectors are kept by skops, which is not here: pip install '.[selectors]'"
            " where tuner was unpacked"
        ) from None
