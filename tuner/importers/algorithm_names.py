"""Normalization of the names of algorithms and libraries in files of results."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable

from tuner.base.errors import InputError, shortened_repr
from tuner.importers.reading import BenchmarkResult

DEFAULT = "default"
_SYNONYMS = {
    "basic_linear": "linear",
    "split_binary_tree": "split_binary",
    "binary_tree": "binary",
    "binomial_tree": "binomial",
    "knomial_tree": "knomial",
    "non_overlapping": "nonoverlapping",
    "neighbor": "neighbor_exchange",
    "ring_segmented": "segmented_ring",
    "brucks": "bruck",
    "rabenseifner_s": "rabenseifner",
    "tuned": DEFAULT,
    "": DEFAULT,
}
_LIBRARIES = {"ompi": "openmpi", "open": "openmpi"}
_NAME_AND_VERSION = re.compile(r"(.*?[^\W\d])-(\d\S*)")  # a library and its version
_NUMBER = re.compile(r"([0-9]+)\.\s*")


def algorithm_name(text: str) -> str:
    """Return the normalized name of an algorithm.

    `2. chain`, `chain_ompi` and `default-chain` are `chain`; `default_mpich` is `default`. A number
    before the name and the library after it are removed. What is not an algorithm of the library,
    such as `ring_over`, keeps its own name. Letters of any script are kept, and a name without
    letters is returned unchanged.
    """
    plain = _normalised(text)
    name = _words("".join(letter if _is_letter(letter) else " " for letter in plain))
    name = re.sub(r"_(ompi|mpich)$", "", name)
    if name != DEFAULT:
        name = name.removeprefix(f"{DEFAULT}_")
    return _SYNONYMS.get(name, name) if name else text.strip() or DEFAULT


def check_algorithm_names(readings: Iterable[BenchmarkResult]) -> None:
    """Raise InputError for ambiguous algorithm names.

    These are a name without letters and digits, and two names that a file distinguishes but that
    are normalized to the same name, so that the samples of two algorithms would be mixed.
    """
    spelled: dict[tuple[str, ...], dict[str, BenchmarkResult]] = defaultdict(dict)
    for reading in readings:
        if reading.algorithm and not any(map(_is_letter, reading.algorithm)):
            raise InputError(
                f"{reading.source}: line {reading.line}: an algorithm cannot be called"
                f" {shortened_repr(reading.algorithm)}: give it letters or digits"
            )
        subject = reading.benchmark.subject or reading.benchmark.name
        known = spelled[reading.cluster, reading.library, subject, reading.algorithm]
        if _original_name(reading) not in known:
            for other in known.values():
                _check_same_algorithm(reading, other)
            known[_original_name(reading)] = reading


def _original_name(reading: BenchmarkResult) -> str:
    """Return the name as in the file, or the normalized one where the file has none."""
    return reading.original_algorithm or reading.algorithm


def _check_same_algorithm(reading: BenchmarkResult, other: BenchmarkResult) -> None:
    if _is_same_algorithm(_original_name(reading), _original_name(other)):
        return
    where = "" if other.source == reading.source else f"{other.source}: "
    raise InputError(
        f"{reading.source}: line {reading.line}: {shortened_repr(_original_name(reading))} and"
        f" {shortened_repr(_original_name(other))} ({where}line {other.line}) would both be called"
        f" {reading.algorithm}: let them differ in letters or digits, or write one name alike"
        " everywhere"
    )


def _is_same_algorithm(one: str, other: str) -> bool:
    """Return whether two names mean one algorithm: they differ only in parts without meaning."""
    numbers = {found[1] for text in (one, other) if (found := _NUMBER.match(text.strip()))}
    return len(numbers) < 2 and _core(one) == _core(other)


def _core(text: str) -> str:
    """Return a name without the library's, but with all its signs.

    For a name with known synonyms return the common one.
    """
    name, plain = algorithm_name(text), _words(_normalised(text))
    if name in _SYNONYMS.values() and re.fullmatch(r"[\w\s'-]*", plain):
        return name
    plain = re.sub(r"[_-](ompi|mpich)$", "", plain)
    return re.sub(rf"^{DEFAULT}[_-]", "", plain)


def _normalised(text: str) -> str:
    """Return the text in lower case without a leading number."""
    return _NUMBER.sub("", unicodedata.normalize("NFC", text).strip().lower(), count=1)


def _words(text: str) -> str:
    return re.sub(r"[\s_]+", "_", text).strip("_")


def _is_letter(letter: str) -> bool:
    """Return whether a character is a letter, a digit or a combining mark."""
    return unicodedata.category(letter)[0] in "LMN"


def library_name(name: str, version: str = "") -> str:
    """Return the normalized name and version of a library, or "" for an empty name.

    It is `openmpi 4.1.6` for `OMPI` and `4.1.6`, and for `openmpi-4.1.6`.
    """
    joined = None if version else _NAME_AND_VERSION.fullmatch(name.strip())
    words = " ".join(joined.groups() if joined else (name, version)).split()
    if words[:2] == ["Open", "MPI"]:
        words = words[1:]
        words[0] = "openmpi"
    elif words:
        lower = words[0].lower() if words[0].isascii() else words[0]
        words[0] = _LIBRARIES.get(lower, lower)
    return " ".join(words)
