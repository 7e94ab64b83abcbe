"""Read what a program did under a flat file: how often it followed each rule, and what it saved."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.base.arrays import AnyArray
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, CYCLIC
from tuner.core.table import DEFAULT, OPERATORS, RuleKey
from tuner.preload.flat_table import DTYPES, HEADER, MAGIC
from tuner.preload.run_record import RunRecord

Interval = tuple[float, float, float]  # a value and the ends of its interval


@dataclass(frozen=True)
class FlatRule:
    """A rule of a flat file.

    number          its place in the file
    key             calls that it is for; rules for any operator stand there for commutative ones,
                    too, where the table has none for these
    start_bytes     size from which on it holds, up to that of the next rule
    choice          name of what runs
    saved_s         what a call saves by the evidence of the table, seconds, and its interval
    """

    number: int
    key: RuleKey
    start_bytes: int
    choice: str
    saved_s: Interval


def flat_rules(content: bytes) -> Iterator[FlatRule]:
    """Yield the rules of a flat file, those of each key in ascending size."""
    arrays = _arrays(content)
    for shape in arrays["shape"]:
        placement = CYCLIC if shape["is_cyclic"] else BLOCK
        lists = [(collective, kind) for collective in Collective for kind in OPERATORS]
        for (collective, operators), first, number in zip(
            lists, shape["first_rule"], shape["n_rules"], strict=True
        ):
            nodes, ppn = int(shape["nodes"]), int(shape["ppn"])
            key = RuleKey(collective, nodes, ppn, "host", operators, placement)
            for place in range(first, first + number):
                rule = arrays["rule"][place]
                name = _text(arrays, arrays["choice"]["name"][rule["choice"]])
                yield FlatRule(
                    place, key, int(rule["start_bytes"]), name, (*rule["saved_seconds"].tolist(),)
                )


def saved_seconds(content: bytes, record: RunRecord) -> list[Interval] | None:
    """Return what each kind of calls saved by the table's evidence, and its interval.

    These are seconds of a rank, in the mean; 0 for calls that followed no rule. None where all
    together exceed the run, as `summarize` of libtuner/report.c says: the savings are unknown.
    """
    rules: dict[RuleKey, list[FlatRule]] = {}
    for rule in flat_rules(content):
        rules.setdefault(rule.key, []).append(rule)
    saved = []
    for kind in record.kinds:
        one = (0.0, 0.0, 0.0)
        if kind.calls and kind.choice != DEFAULT:
            known = rules.get(kind.key, [])
            one = next((r.saved_s for r in reversed(known) if r.start_bytes <= kind.nbytes), one)
        calls = kind.rank_calls / record.ranks
        saved.append((calls * one[0], calls * one[1], calls * one[2]))
    return None if abs(sum(one for one, _, _ in saved)) > record.run_seconds else saved


def flat_notes(path: Path) -> list[str] | None:
    """Return why a flat file leaves rules to the library; None where it is missing or damaged."""
    try:
        content = bytearray(path.read_bytes())
        header = np.frombuffer(content, HEADER, count=1)[0]
        expected, header["checksum"] = int(header["checksum"]), 0
        if zlib.crc32(content) != expected:
            return None
        arrays = _arrays(bytes(content))
    except (OSError, ValueError, InputError):
        return None
    return [_text(arrays, text) for text in arrays["note"]["text"]]


def choice_names(content: bytes) -> list[str]:
    """Return the names of what the rules of a flat file have run, by number."""
    arrays = _arrays(content)
    return [_text(arrays, name) for name in arrays["choice"]["name"]]


def read_counts(path: Path) -> dict[int, int]:
    """Return how often each rule was followed on all ranks together, by its number in the file.

    Raises InputError where the program has written no report.
    """
    try:
        pairs = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        return {int(number): int(calls) for number, calls in pairs}
    except (OSError, ValueError):
        raise InputError(f"{path}: the program has left no report: did it end by itself?") from None


def _arrays(content: bytes) -> dict[str, AnyArray]:
    header = np.frombuffer(content, HEADER, count=1)[0]
    if header["magic"] != MAGIC:
        raise InputError("not the flat file of a table")
    return {
        name: np.frombuffer(
            content, dtype, int(header[f"{name}s"]["count"]), int(header[f"{name}s"]["offset"])
        )
        for name, dtype in DTYPES.items()
    }


def _text(arrays: dict[str, AnyArray], offset: int) -> str:
    content = arrays["string"].tobytes()
    return content[offset : content.index(b"\0", offset)].decode()
