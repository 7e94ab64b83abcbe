"""Tables in the libraries' own formats, and how a client asks for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tuner.api.problems import Problem
from tuner.errors import InputError, ProbeError
from tuner.export import mpich, openmpi
from tuner.runtime.launch import Launcher
from tuner.table import TuningTable, table_record

TUNER, OPENMPI, MPICH = "tuner", "openmpi", "mpich"
MEDIA_TYPES: Mapping[str, str] = {  # what may be asked for -> the format that it means
    "application/json": TUNER,
    "application/vnd.tuner.table+json": TUNER,
    "application/vnd.tuner.openmpi-rules": OPENMPI,
    "application/vnd.tuner.mpich-csel+json": MPICH,
}
_NAMED = {TUNER: "application/json", OPENMPI: "application/vnd.tuner.openmpi-rules",
          MPICH: "application/vnd.tuner.mpich-csel+json"}  # fmt: skip
Generic = Callable[[], mpich.Tree]  # the rules that an MPICH library decides with by itself


@dataclass(frozen=True)
class Wanted:
    """A form of a table: one of MEDIA_TYPES, and for which operators where that matters."""

    media_type: str = "application/json"
    operators: str = "any"

    @property
    def format(self) -> str:
        """tuner | openmpi | mpich."""
        return MEDIA_TYPES[self.media_type]

    @property
    def suffix(self) -> str:
        """Tells the ETags of different contents apart; empty for the format of tables itself."""
        words = [] if self.format == TUNER else [self.format]
        words += [] if self.operators == "any" else [self.operators]
        return "".join(f"-{word}" for word in words)


def wanted(accept: str | None, named: str | None, operators: str) -> Wanted:
    """The form that `?format=`, else the Accept header asks for.

    Raises Problem 406 for an Accept header that allows none.
    """
    media_type = _NAMED[named] if named else _accepted(accept or "*/*")
    return Wanted(media_type, operators)


@lru_cache(maxsize=256)
def _accepted(accept: str) -> str:
    """The offer that the header likes best, the first of equals (RFC 9110, section 12.5.1)."""
    ranges = [_range(part) for part in accept.split(",")]
    likings = {offer: _liking(offer, ranges) for offer in MEDIA_TYPES}
    best = max(likings, key=lambda offer: likings[offer])
    if likings[best] <= 0:
        raise Problem(406, f"a table can be had as {', '.join(MEDIA_TYPES)}")
    return best


def _range(part: str) -> tuple[str, float]:
    """`application/*;q=0.5` as a media range and its quality."""
    media, *parameters = (word.strip().lower() for word in part.split(";"))
    quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
    try:
        return media, float(quality) if 0 <= float(quality) <= 1 else 0.0
    except ValueError:
        return media, 0.0


def _liking(offer: str, ranges: list[tuple[str, float]]) -> float:
    """The quality of the most specific range that the offer falls into."""
    kind = offer.partition("/")[0]
    for pattern in (offer, f"{kind}/*", "*/*"):
        found = [quality for media, quality in ranges if media == pattern]
        if found:
            return max(found)
    return 0.0


def render(table: TuningTable, form: Wanted, generic: Generic) -> bytes:
    """The table in this form. Raises InputError where the form cannot say what the table says."""
    library = table.library.partition(" ")[0]
    if form.format == TUNER:
        return json.dumps(table_record(table), allow_nan=False).encode()
    if form.format != library:
        raise InputError(
            f"the table is for {table.library}: its rules mean nothing in the format of"
            f" {form.format}"
        )
    if form.format == OPENMPI:
        return openmpi.emit(table, commutative_only=form.operators == "commutative").encode()
    kept, _ = mpich.portable(table)
    return mpich.emit(kept, generic()).encode()


def generic_of(python: Path | None) -> Generic:
    """The rules of the MPICH in the environment of this interpreter, read when first needed."""

    @cache
    def generic() -> mpich.Tree:
        if python is None:
            raise Problem(501, "the service knows no MPICH: start it with --mpich-python PYTHON")
        try:
            return mpich.generic_tuning(Launcher.find("mpich", python).libmpi())
        except ProbeError as reason:
            raise Problem(501, f"the service has no usable MPICH: {reason}") from None

    return generic
