"""Models of users: a CSV table with one layer per row, in the order of the forward pass.

    name,forward_ms,backward_ms,elements,activations
    conv1,1.25,2.61,9408+64,802816
    relu1,0.10,0.11,,802816
    fc,0.31,0.57,2048000+1000,1000

`forward_ms` and `backward_ms` are measured times; `forward_flops` and `backward_flops` instead of
them are numbers of floating-point operations. Both are of a pass over `batch` samples, a column
with one number for all rows; without it they are per sample. `elements` has the numbers of elements
of the trained tensors of the layer, with `+` between them, and is empty for a layer without any;
`bytes` instead of it has their sizes in fp32. `activations`, the elements of the output per sample,
may be left out. A column `layer` may number the rows without gaps, which shows that none is lost.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping

from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.importers.text import parse_float, parse_int, require_fields
from tuner.training.model import FLOPS, SECONDS, Model, ModelLayer, Tensor

UNITS = {
    "ms": (SECONDS, 1e3),
    "flops": (FLOPS, 1.0),
}  # column ending -> unit, and how many make one
ELEMENT_BYTES = 4
MAX_LAYERS = 100_000
MAX_ELEMENTS = 1 << 50
_COLUMNS = {"layer", "name", "batch", "elements", "bytes", "activations"}
_HEADER = "name,forward_ms,backward_ms,elements"
Row = tuple[int, Mapping[str, str]]  # number of the line, and its fields by column


def is_layer_table(lines: list[str]) -> bool:
    """Return whether the first line names columns of layers."""
    columns = [name.strip() for name in lines[0].split(",")]
    return "name" in columns and len(columns) > 1


def parse_layer_table(lines: list[str], name: str) -> Model:
    """Return the model of a table, as described above; raise InputError naming the line.

    name    name of the model
    """
    columns = _columns(lines)
    unit_name = _unit_of(columns)
    unit, factor = UNITS[unit_name]
    rows = list(_rows(lines, columns))
    if not rows:
        raise InputError("line 1: expected layers below the header")
    batch = _batch(rows)
    seen: dict[str, int] = {}
    layers = []
    for number, (line, row) in enumerate(rows):
        _check_number(row, rows[0][1], line, number)
        _check_new(seen, row["name"], line)
        forward, backward = (
            parse_float(row[column], column, line) / factor / batch
            for column in (f"forward_{unit_name}", f"backward_{unit_name}")
        )
        activations = parse_int(row.get("activations") or "0", "activations", line)
        layers.append(
            ModelLayer(row["name"], forward, backward, tuple(_tensors(row, line)), activations)
        )
    return Model(name, tuple(layers), unit)


def _columns(lines: list[str]) -> list[str]:
    columns = [name.strip() for name in lines[0].split(",")]
    known = _COLUMNS | {f"{way}_{unit}" for way in ("forward", "backward") for unit in UNITS}
    for name in columns:
        if name not in known:
            raise InputError(f"line 1: {unknown_name('column', name, sorted(known))}")
        if columns.count(name) > 1:
            raise InputError(f"line 1: the column {name} is there twice")
    if ("elements" in columns) == ("bytes" in columns):
        raise InputError(
            "line 1: one column has the sizes of tensors, elements or bytes: write a header like"
            f" {_HEADER}"
        )
    return columns


def _unit_of(columns: list[str]) -> str:
    """Return the unit of the work, ms or flops."""
    for unit in UNITS:
        present = [way for way in ("forward", "backward") if f"{way}_{unit}" in columns]
        if len(present) == 2:
            break
    else:
        raise InputError(
            "line 1: the columns forward_ms and backward_ms, or forward_flops and backward_flops,"
            f" are missing: write a header like {_HEADER}"
        )
    others = [name for name in columns if name[-5:] == "flops"] if unit == "ms" else []
    if others:
        raise InputError(f"line 1: write times or operations, not both: leave {others[0]} out")
    return unit


def _rows(lines: list[str], columns: list[str]) -> Iterator[Row]:
    """Yield the rows that are not empty."""
    for line, text in enumerate(lines[1:], 2):
        if not text.strip():
            continue
        if line > MAX_LAYERS:
            raise InputError(f"line {line}: more than {MAX_LAYERS} layers")
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error:
            raise InputError(f"line {line}: not a row of CSV: a quote is not closed") from None
        require_fields(fields, len(columns), line)
        yield line, dict(zip(columns, (field.strip() for field in fields), strict=True))


def _batch(rows: list[Row]) -> int:
    """Return the samples of a measured pass, which all rows have to agree on."""
    first = rows[0][1].get("batch")
    if first is None:
        return 1
    for line, row in rows:
        if row["batch"] != first:
            raise InputError(
                f"line {line}: batch is {shortened_repr(row['batch'])} and was"
                f" {shortened_repr(first)} before: all layers have to be measured with one"
            )
    return parse_int(first, "batch", rows[0][0], minimum=1)


def _check_number(row: Mapping[str, str], first: Mapping[str, str], line: int, at: int) -> None:
    """Raise InputError unless the rows are numbered without gaps, if at all."""
    if "layer" not in row:
        return
    expected = parse_int(first["layer"], "layer", line) + at
    if parse_int(row["layer"], "layer", line) != expected:
        raise InputError(
            f"line {line}: layer {expected} is missing, this is layer {row['layer']}: add its row"
        )


def _check_new(seen: dict[str, int], name: str, line: int) -> None:
    if not name:
        raise InputError(f"line {line}: give the layer a name")
    if name in seen:
        raise InputError(
            f"line {line}: layer {shortened_repr(name)} is also in line {seen[name]}: give it"
            " another name, or delete one of them"
        )
    seen[name] = line


def _tensors(row: Mapping[str, str], line: int) -> Iterator[Tensor]:
    """Yield the trained tensors of a layer."""
    column = "elements" if "elements" in row else "bytes"
    unit = 1 if column == "elements" else ELEMENT_BYTES
    sizes = row[column].split("+") if row[column] not in ("", "0") else []
    for number, text in enumerate(sizes):
        size = parse_int(text.strip(), column, line, minimum=1)
        if size % unit or size > MAX_ELEMENTS:
            raise InputError(
                f"line {line}: {column} cannot be {size}: a multiple of {unit} up to {MAX_ELEMENTS}"
            )
        suffix = f".{number}" if len(sizes) > 1 else ""
        yield Tensor(f"{row['name']}{suffix}", size // unit)
