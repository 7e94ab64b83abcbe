"""Tables in the libraries' native formats, and content negotiation for them."""

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
from tuner.mpi_libraries import LIBRARY_MODULES

TUNER_FORMAT = "tuner"
FORMAT_BY_MEDIA_TYPE: Mapping[str, str] = {  # media type -> name of the format
    "application/json": TUNER_FORMAT,
    "application/vnd.tuner.table+json": TUNER_FORMAT,
    **{form.media_type: name for name, form in FORMATS.items()},
}
_MEDIA_TYPE_BY_FORMAT = {TUNER_FORMAT: "application/json"} | {
    name: form.media_type for name, form in FORMATS.items()
}


@dataclass(frozen=True)
class RequestedFormat:
    """A requested format of a table.

    media_type          one of the keys of FORMAT_BY_MEDIA_TYPE
    operators           "commutative" for `commutative_only` of `ExportOptions`, else "any"
    fallback_algorithm  as in `ExportOptions`
    ranks               as in `ExportOptions`
    """

    media_type: str = "application/json"
    operators: str = "any"
    fallback_algorithm: str = ""
    ranks: int | None = None

    @property
    def format(self) -> str:
        """Return `tuner`, or one of FORMATS."""
        return FORMAT_BY_MEDIA_TYPE[self.media_type]

    def export_options(self, generic: mpich.GenericTreeLoader) -> ExportOptions:
        return ExportOptions(
            self.operators == "commutative", self.fallback_algorithm, self.ranks, generic
        )


def negotiate_format(
    accept: str | None,
    named: str | None,
    operators: str,
    fallback_algorithm: str,
    ranks: int | None,
) -> RequestedFormat:
    """Return the format that is requested by name, else by the Accept header.

    accept      the Accept header
    named       the name of the format in the query

    Options that the format does not use get their defaults, so that equal representations have
    equal keys. Raises Problem 406 where the Accept header allows no format.
    """
    form = RequestedFormat(
        _MEDIA_TYPE_BY_FORMAT[named] if named else _best_media_type(accept or "*/*")
    )
    asks = FORMATS[form.format].used_options if form.format != TUNER_FORMAT else frozenset()
    return RequestedFormat(
        form.media_type,
        operators if "commutative_only" in asks else "any",
        fallback_algorithm if "fallback_algorithm" in asks else "",
        ranks if "ranks" in asks else None,
    )


@lru_cache(maxsize=256)
def _best_media_type(accept: str) -> str:
    """Return the media type of the highest quality (RFC 9110, section 12.5.1).

    Of equals it is the first one. Raises Problem 406 where the header allows none.
    """
    ranges = [_parse_media_range(part) for part in accept.split(",")]
    likings = {offer: _quality(offer, ranges) for offer in FORMAT_BY_MEDIA_TYPE}
    best = max(likings, key=lambda offer: likings[offer])
    if likings[best] <= 0:
        raise Problem(406, f"a table can be had as {', '.join(FORMAT_BY_MEDIA_TYPE)}")
    return best


def _parse_media_range(part: str) -> tuple[str, float]:
    """Return a media range and its quality from text such as `application/*;q=0.5`."""
    media, *parameters = (word.strip().lower() for word in part.split(";"))
    quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
    try:
        return media, float(quality) if 0 <= float(quality) <= 1 else 0.0
    except ValueError:
        return media, 0.0


def _quality(offer: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that contains the media type `offer`."""
    kind = offer.partition("/")[0]
    for pattern in (offer, f"{kind}/*", "*/*"):
        found = [quality for media, quality in ranges if media == pattern]
        if found:
            return max(found)
    return 0.0


def render(table: TuningTable, form: RequestedFormat, generic: mpich.GenericTreeLoader) -> bytes:
    """Return the table in this format; raise InputError where the format cannot express it."""
    if form.format == TUNER_FORMAT:
        return "".join(_json_chunks(table)).encode()
    native = FORMATS[form.format]
    native.require_library(table)
    text, _ = native.emit(table, form.export_options(generic))
    return text.encode()


def _json_chunks(table: TuningTable) -> Iterator[str]:
    """Yield the JSON of a table rule by rule, so that other threads can run in between."""
    about = table_record(TuningTable(table.cluster, table.library, (), table.provenance))
    opened = json.dumps(about, allow_nan=False).removesuffix("]}")
    yield opened
    for index, rule in enumerate(table.rules):
        yield ", " if index else ""
        yield json.dumps(rule_record(rule), allow_nan=False)
    yield "]}"


def generic_rules_loader(python: Path | None) -> mpich.GenericTreeLoader:
    """Return a loader of the generic selection rules of the MPICH in the environment of `python`.

    They are read when first needed. The loader raises Problem 501 where there is no usable MPICH.
    """

    @cache
    def generic(library: str, layer: mpich.Layer) -> mpich.Tree:
        if library not in LIBRARY_MODULES:
            raise Problem(501, f"the service knows no {library}: export the table by `tuner table`")
        if python is None:
            raise Problem(501, "the service knows no MPICH: start it with --mpich-python PYTHON")
        try:
            return mpich.read_generic_tree(Launcher.find(library, python).libmpi(), layer)
        except ProbeError as reason:
            raise Problem(501, f"the service has no usable MPICH: {reason}") from None

    return generic
