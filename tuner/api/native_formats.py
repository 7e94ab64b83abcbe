"""Tables in the libraries' own formats, and how a client asks for one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tuner.api.problems import Problem
from tuner.base.errors import ProbeError
from tuner.core.table import TuningTable, rule_record, table_record
from tuner.formats import mpich
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.launch import Launcher

TUNER_FORMAT = "tuner"
FORMAT_BY_MEDIA_TYPE: Mapping[str, str] = {  # what may be asked for -> the format that it means
    "application/json": TUNER_FORMAT,
    "application/vnd.tuner.table+json": TUNER_FORMAT,
    **{form.media_type: name for name, form in FORMATS.items()},
}
_MEDIA_TYPE_BY_FORMAT = {TUNER_FORMAT: "application/json"} | {
    name: form.media_type for name, form in FORMATS.items()
}


@dataclass(frozen=True)
class RequestedFormat:
    """A form of a table: one of MEDIA_TYPES, and what `ExportOptions` says where that matters."""

    media_type: str = "application/json"
    operators: str = "any"
    fallback_algorithm: str = ""
    ranks: int | None = None

    @property
    def format(self) -> str:
        """`tuner`, or one of FORMATS."""
        return FORMAT_BY_MEDIA_TYPE[self.media_type]

    def export_options(self, generic: mpich.GenericTreeLoader) -> ExportOptions:
        """What is wanted besides the table."""
        return ExportOptions(
            self.operators == "commutative", self.fallback_algorithm, self.ranks, generic
        )


def negotiate_format(
    accept: str | None, named: str | None, operators: str, otherwise: str, ranks: int | None
) -> RequestedFormat:
    """The form that `?format=`, else the Accept header asks for; what it does not look at is left
    out, so that one form has one name.

    Raises Problem 406 for an Accept header that allows none.
    """
    form = RequestedFormat(
        _MEDIA_TYPE_BY_FORMAT[named] if named else _best_media_type(accept or "*/*")
    )
    asks = FORMATS[form.format].used_options if form.format != TUNER_FORMAT else frozenset()
    return RequestedFormat(
        form.media_type,
        operators if "commutative_only" in asks else "any",
        otherwise if "otherwise" in asks else "",
        ranks if "ranks" in asks else None,
    )


@lru_cache(maxsize=256)
def _best_media_type(accept: str) -> str:
    """The offer that the header likes best, the first of equals (RFC 9110, section 12.5.1)."""
    ranges = [_parse_media_range(part) for part in accept.split(",")]
    likings = {offer: _quality(offer, ranges) for offer in FORMAT_BY_MEDIA_TYPE}
    best = max(likings, key=lambda offer: likings[offer])
    if likings[best] <= 0:
        raise Problem(406, f"a table can be had as {', '.join(FORMAT_BY_MEDIA_TYPE)}")
    return best


def _parse_media_range(part: str) -> tuple[str, float]:
    """`application/*;q=0.5` as a media range and its quality."""
    media, *parameters = (word.strip().lower() for word in part.split(";"))
    quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
    try:
        return media, float(quality) if 0 <= float(quality) <= 1 else 0.0
    except ValueError:
        return media, 0.0


def _quality(offer: str, ranges: list[tuple[str, float]]) -> float:
    """The quality of the most specific range that the offer falls into."""
    kind = offer.partition("/")[0]
    for pattern in (offer, f"{kind}/*", "*/*"):
        found = [quality for media, quality in ranges if media == pattern]
        if found:
            return max(found)
    return 0.0


def render(table: TuningTable, form: RequestedFormat, generic: mpich.GenericTreeLoader) -> bytes:
    """The table in this form. Raises InputError where the form cannot say what the table says."""
    if form.format == TUNER_FORMAT:
        return "".join(_json_chunks(table)).encode()
    native = FORMATS[form.format]
    native.require_library(table)
    text, _ = native.emit(table, form.export_options(generic))
    return text.encode()


def _json_chunks(table: TuningTable) -> Iterator[str]:
    """Yield the JSON of a table rule by rule: other threads get their turn in between."""
    about = table_record(TuningTable(table.cluster, table.library, (), table.provenance))
    opened = json.dumps(about, allow_nan=False).removesuffix("]}")
    yield opened
    for index, rule in enumerate(table.rules):
        yield ", " if index else ""
        yield json.dumps(rule_record(rule), allow_nan=False)
    yield "]}"


def generic_rules_loader(python: Path | None) -> mpich.GenericTreeLoader:
    """The rules of the MPICH in the environment of this interpreter, read when first needed."""

    @cache
    def generic(library: str, layer: mpich.Layer) -> mpich.Tree:
        if library != "mpich":
            raise Problem(501, f"the service knows no {library}: export the table by `tuner table`")
        if python is None:
            raise Problem(501, "the service knows no MPICH: start it with --mpich-python PYTHON")
        try:
            return mpich.read_generic_tree(Launcher.find("mpich", python).libmpi(), layer)
        except ProbeError as reason:
            raise Problem(501, f"the service has no usable MPICH: {reason}") from None

    return generic
