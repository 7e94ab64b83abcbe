"""Measured all-reduces of inference engines and of NCCL on the GPUs of one node, from CSV.

    gpu,backend,version,gpus,bytes,time_us
    B200,vllm,0.24.0,8,1048576,17.2
    B200,nccl,2.27.5,8,1048576,29.4

`backend` is `nccl`, or an engine, which stands for its own kernels in CUDA graphs. The column
`version` may be left out. Tables of ai-dynamo/aiconfigurator are read as well: its
`custom_allreduce_perf`, and collections of these and of its times of NCCL (`FORMS`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import format_size, plural
from tuner.importers.text import TextLines, parse_int, parse_seconds, read_lines, require_fields

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4, "int8": 1}
# Engines call NCCL from here on without recording it: `max_size` of custom_all_reduce.py in vLLM
# and SGLang.
LARGEST_OWN_BYTES = 8 << 20
EAGER = "eager"  # ends the names of kernels that are called from Python, outside CUDA graphs


@dataclass(frozen=True)
class BackendTime:
    """One all-reduce of `nbytes` on `gpus` GPUs of a node by a back end, in seconds."""

    gpu: str
    backend: str
    version: str
    gpus: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class BackendTable:
    """The columns of a form of CSV; "" for those that it does not have.

    dtype       datatype whose items `size` counts, which otherwise are bytes
    operation   the collective
    kernel      names of kernels, of which those outside CUDA graphs end in `eager`
    """

    gpu: str
    backend: str
    gpus: str
    size: str
    time: str
    units_per_second: float
    version: str = "version"
    dtype: str = ""
    operation: str = ""
    kernel: str = ""

    @property
    def required(self) -> set[str]:
        """The columns without which a file is not in this form."""
        named = {self.gpu, self.backend, self.gpus, self.size, self.time}
        return (named | {self.dtype, self.operation, self.kernel}) - {""}


OWN_FORM = BackendTable("gpu", "backend", "gpus", "bytes", "time_us", 1e6)
FORMS = (
    OWN_FORM,
    BackendTable(
        *("system", "framework", "gpus", "message_size_as_recorded", "time_us", 1e6),
        dtype="dtype",
        operation="op",
        kernel="kernel",
    ),
    BackendTable(
        *("system", "library", "gpus", "size_bytes", "time_us", 1e6),
        version="recorded_version",
        operation="collective",
    ),
    BackendTable(
        *("device", "framework", "num_gpus", "message_size", "latency", 1e3),
        dtype="allreduce_dtype",
        operation="op_name",
        kernel="kernel_source",
    ),
)


def read_backend_times(paths: Iterable[Path]) -> tuple[list[BackendTime], list[str]]:
    """Return the times in files, and sentences on rows that were left out.

    Raises InputError with file and line where a file is in none of FORMS, or damaged.
    """
    found, notes = list[BackendTime](), list[str]()
    for path in paths:
        lines = read_lines(path)
        omitted = Counter[str]()
        try:
            found += _times(lines, omitted)
        except (InputError, csv.Error) as reason:
            raise InputError(f"{path}: {reason}") from None
        notes += [
            f"{path}: {plural(number, 'row')} not used: {why}" for why, number in omitted.items()
        ]
    return found, notes


def _times(lines: TextLines, omitted: Counter[str]) -> Iterator[BackendTime]:
    """Yield the times of a file, and count the rows that are left out by their reason."""
    rows = csv.reader(lines.lines)
    header = [name.strip() for name in next(rows, [])]
    form = next((form for form in FORMS if form.required <= set(header)), None)
    if form is None:
        columns = ", ".join((OWN_FORM.gpu, OWN_FORM.backend, OWN_FORM.gpus, OWN_FORM.size))
        raise InputError(f"line 1: expected the columns {columns} and {OWN_FORM.time}")
    for fields in filter(None, rows):
        number = rows.line_num
        lines.check_complete(number)
        require_fields(fields, len(header), number)
        row = dict(zip(header, map(str.strip, fields), strict=True))
        why = _reason_to_omit(form, row)
        time = None if why else _time(form, row, number)
        if time and form.kernel and time.nbytes > LARGEST_OWN_BYTES:
            why = f"engines call NCCL above {format_size(LARGEST_OWN_BYTES)}"
        if why:
            omitted[why] += 1
        elif time:
            yield time


def _reason_to_omit(form: BackendTable, row: Mapping[str, str]) -> str:
    """Return why a row is no all-reduce that can be compared; "" where it is one."""
    operation = row[form.operation] if form.operation else "all_reduce"
    if operation not in ("all_reduce", "allreduce"):
        return f"{operation} is not all_reduce"
    if form.kernel and row[form.kernel].endswith(EAGER):
        return "calls outside CUDA graphs, of which NCCL's times have no counterpart"
    return ""


def _time(form: BackendTable, row: Mapping[str, str], line: int) -> BackendTime:
    """Return the time of a row; raise InputError where a field cannot be right."""
    dtype = row[form.dtype] if form.dtype else "int8"
    if dtype not in ITEM_BYTES:
        raise InputError(
            f"line {line}: {form.dtype} cannot be {shortened_repr(dtype)}: expected one of"
            f" {', '.join(ITEM_BYTES)}"
        )
    for name in (form.gpu, form.backend):
        if not row[name]:
            raise InputError(f"line {line}: {name} is empty")
    seconds = parse_seconds(row[form.time], form.time, line, form.units_per_second)
    if not seconds:
        raise InputError(f"line {line}: {form.time} cannot be 0")
    return BackendTime(
        row[form.gpu],
        row[form.backend].lower(),
        row.get(form.version, ""),
        parse_int(row[form.gpus], form.gpus, line, 2),
        parse_int(row[form.size], form.size, line, 1) * ITEM_BYTES[dtype],
        seconds,
    )
