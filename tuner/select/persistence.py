"""Trained selectors as files: the training table and a manifest of its sources and quality.

A Gaussian process is determined by its training data, so that is what is stored: the typical time
of every choice at every call, with its interval. The matrices, many times as large, are recomputed
on use and give the same answers. The columns are stored by skops, which executes nothing from a
file; a file may name no classes but numpy's arrays.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import platform
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import skops.io
from numpy.typing import NDArray

from tuner import __version__
from tuner.base.arrays import FloatArray, IntArray
from tuner.base.atomic_io import dataclass_from_record, encode_infinities, write_atomically
from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import MAX_SAMPLE_S, MIN_SAMPLE_S
from tuner.core.path_classes import BLOCK
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import (
    CallPoint,
    DefaultRuns,
    Observation,
    SimulateFunction,
    unknown_default,
)
from tuner.select.selector import Selector, train
from tuner.topology import HOST

SELECTOR_FILE, MANIFEST_FILE = "selector.skops", "manifest.json"
VERSIONED_PACKAGES = ("numpy", "scipy", "scikit-learn", "skops")  # recorded in a manifest
MAX_UNPACKED_BYTES = 256 << 20  # of a file, unpacked
VERSION = 2
# Raised by zipfile, zlib, numpy and skops for invalid files.
_DECODE_ERRORS = (
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
class TrainingTable:
    """The training data, one row for each call and choice: columns of the same length.

    group           cluster and library; times of one group are comparable
    choice          an `AlgorithmChoice` as JSON
    seconds         typical time, with the 95 % interval from low to high
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
    def from_cases(cls, cases: Sequence[EvaluationCase]) -> TrainingTable:
        """Make the table of all cases.

        Raises InputError if there are none, and for placements other than block, because the
        columns do not hold placements.
        """
        if not cases:
            raise InputError("expected calls of consecutive ranks to train a selector on")
        if any(case.point.placement != BLOCK for case in cases):
            raise InputError("a selector is trained on calls of consecutive ranks and no others")
        rows = [
            (
                case.group,
                *(str(point.collective), point.nodes, point.ppn, point.memory, point.nbytes),
                json.dumps(asdict(row.choice), sort_keys=True),
                row.seconds,
                row.low,
                row.high,
            )
            for case in cases
            for point in [case.point]
            for row in case.observations.values()
        ]
        return cls(*map(np.array, zip(*rows, strict=True)))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(map(str, np.unique(self.group)))

    def train_selector(
        self,
        simulate: SimulateFunction,
        group: str = "",
        default_algorithms: Mapping[str, Sequence[DefaultAlgorithms]] = MappingProxyType({}),
    ) -> Selector:
        """Train the selector of one group, which must be named if there are several.

        Machines differ too much to be trained on together. Raises InputError for an unknown group.

        default_algorithms      what the library's default runs, by group
        """
        asked = group or (self.groups[0] if len(self.groups) == 1 else "")
        if asked not in self.groups:
            what = (
                f"nothing was learned of {shortened_repr(group)}"
                if group
                else "say what it is like"
            )
            raise InputError(f"{what}: there are {', '.join(self.groups)}")
        default_runs = _default_runs(default_algorithms.get(asked, ()))
        return train(self._observations(asked), simulate, default_runs=default_runs)

    def _observations(self, group: str) -> list[Observation]:
        choices = {text: _choice(text) for text in set(self.choice.tolist())}
        columns = [column.tolist() for column in _columns(self)]
        return [
            Observation(CallPoint(*call), choices[choice], {0: (seconds,)}, seconds, low, high)
            for name, *call, choice, seconds, low, high in zip(*columns, strict=True)
            if name == group
        ]


def _default_runs(known: Sequence[DefaultAlgorithms]) -> DefaultRuns:
    """Return what the default runs with buffers on the host, on these shapes."""
    if not known:
        return unknown_default
    of_call: dict[tuple[str, int, int, str], DefaultAlgorithms] = {
        each.placed_collective: each for each in known
    }

    def runs(point: CallPoint) -> AlgorithmChoice | None:
        call = point.collective, point.nodes, point.ppn, point.placement
        found = of_call.get(call) if point.memory == HOST else None
        return found.choice_at(point.nbytes) if found else None

    return runs


@dataclass(frozen=True)
class Manifest:
    """The sources of a trained selector and its quality.

    data                name of each training file, the whole path where several have that name ->
                        its SHA-256
    versions            versions of the packages that trained it
    held_out            set of comparable calls -> cross-validation on it and the regret
    default_algorithms  group -> what the library's default runs on the shapes in the data, as far
                        as that was known
    selector            SHA-256 of the selector file
    """

    data: Mapping[str, str]
    versions: Mapping[str, str]
    held_out: Mapping[str, Mapping[str, Any]]
    default_algorithms: Mapping[str, tuple[DefaultAlgorithms, ...]] = field(default_factory=dict)
    selector: str = ""


def package_versions() -> dict[str, str]:
    """Return the versions of tuner, Python and the numerical packages."""
    known = {name: importlib.metadata.version(name) for name in VERSIONED_PACKAGES}
    return {"tuner": __version__, "python": platform.python_version(), **known}


def write_selector(table: TrainingTable, manifest: Manifest, directory: Path) -> None:
    """Write both files; raise InputError if they cannot be written."""
    data = skops.io.dumps(vars(table), compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    record = {**asdict(manifest), "selector": sha256(data).hexdigest()}
    text = json.dumps(
        {"kind": "selector", "version": VERSION, **encode_infinities(record)}, indent=1
    )
    write_atomically(directory / SELECTOR_FILE, data)
    write_atomically(directory / MANIFEST_FILE, text + "\n")


def read_selector(directory: Path) -> tuple[TrainingTable, Manifest]:
    """Read what `write_selector` wrote; raise InputError for anything else."""
    manifest = _manifest(directory / MANIFEST_FILE)
    path = directory / SELECTOR_FILE
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    if sha256(data).hexdigest() != manifest.selector:
        raise InputError(
            f"{path}: is not the file that {MANIFEST_FILE} beside it tells of: train again"
        )
    try:
        return _load(data), manifest
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def _manifest(path: Path) -> Manifest:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.pop("kind") != "selector" or record.pop("version") != VERSION:
            raise ValueError("of another kind or version")
        return dataclass_from_record(Manifest, record)
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as reason:
        raise InputError(f"{path}: is not a manifest of a trained selector: {reason}") from None


def _load(data: bytes) -> TrainingTable:
    """Load the columns; raise InputError if they are too large, name other types or are invalid."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > MAX_UNPACKED_BYTES:
                raise InputError(f"would unpack to {size} bytes, more than {MAX_UNPACKED_BYTES}")
        foreign = skops.io.get_untrusted_types(data=data)
        if foreign:
            raise InputError(f"names {sorted(foreign)[0]}, which no selector needs: not loaded")
        found = TrainingTable(**skops.io.loads(data))
    except _DECODE_ERRORS as reason:
        raise InputError(f"is not a trained selector: {reason}") from None
    if not _is_consistent(found):
        raise InputError("is not a trained selector: its columns do not fit together")
    return found


def _is_consistent(table: TrainingTable) -> bool:
    columns = _columns(table)
    if not all(isinstance(column, np.ndarray) and column.ndim == 1 for column in columns):
        return False
    kinds = "".join(column.dtype.kind for column in columns)
    lengths = {len(column) for column in columns}
    if kinds != "UUiiUiUfff" or len(lengths) > 1 or lengths == {0}:
        return False
    whole = min(table.nodes.min(), table.ppn.min()) >= 1 and table.nbytes.min() >= 0
    seconds = table.seconds
    timed = seconds.min() >= MIN_SAMPLE_S and seconds.max() <= MAX_SAMPLE_S
    around = (table.low > 0) & (table.low <= seconds) & (seconds <= table.high)
    return bool(whole and timed and around.all() and math.isfinite(table.high.max()))


def _columns(table: TrainingTable) -> list[Any]:
    """Return the columns in the order of declaration; None where a file lacks one."""
    return [vars(table).get(field.name) for field in fields(TrainingTable)]


def _choice(text: str) -> AlgorithmChoice:
    try:
        return dataclass_from_record(AlgorithmChoice, json.loads(text))
    except (TypeError, ValueError, RecursionError) as reason:
        raise InputError(
            f"trained selector: {shortened_repr(text)} is not a choice: {reason}"
        ) from None
