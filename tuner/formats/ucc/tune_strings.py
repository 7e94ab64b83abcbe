"""UCC's TUNE strings: `allreduce:0-4096:host:inf:@knomial#...`.

Tokens are joined by #, the qualifiers of a token by colons. Sizes are half-open ranges in bytes,
or in k, m, g and t of 1024; a range without a score keeps that of the transport layer, inf makes
it win (ucc_coll_score.c of UCC 1.8). UCC reports a string that it cannot read in its log and
ignores it as a whole, so everything doubtful raises InputError here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.formats import strict_parsing
from tuner.formats.file_rules import BYTES, INF, MEMORY, RANKS, Ranges, every
from tuner.mpi_libraries.ucc import ALGORITHMS

COLLECTIVES = {str(collective): collective for collective in ALGORITHMS}
MEMORIES = ("host", "cuda", "cuda_managed", "rocm", "rocm_managed")
INFINITE_BYTES = 2**64 - 1  # the number that UCC reads `inf` as
INFINITE_SCORE = "inf"  # the score that wins over every other transport layer
MAX_RANKS = 2**32 - 1
ANY_TEAM_SIZE = ((0, MAX_RANKS),)
MAX_FINITE_SCORE = 2**31 - 2  # the largest int is `inf`
MAX_TOKENS = 2000
_SIZE = re.compile(
    rf"({strict_parsing.INTEGER_PATTERN})(?:([kmgt])b?|b)?", re.IGNORECASE | re.ASCII
)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
IntRange = tuple[int, int]


@dataclass(frozen=True)
class TuneToken:
    """One token: the algorithm for some calls of a collective.

    size_ranges    half-open ranges of the message size in bytes
    memories       kinds of memory of the buffers
    team_sizes     inclusive ranges of the number of ranks
    score          priority of the algorithm; "" for that of the transport layer
    """

    collective: Collective
    algorithm: str
    size_ranges: tuple[IntRange, ...] = ((0, INFINITE_BYTES),)
    memories: tuple[str, ...] = MEMORIES
    team_sizes: tuple[IntRange, ...] = ANY_TEAM_SIZE
    score: str = ""

    def matches(self, p: int, memory: str, nbytes: int) -> bool:
        """Return whether it decides this call."""
        return (
            memory in self.memories
            and any(lo <= nbytes < hi for lo, hi in self.size_ranges)
            and any(first <= p <= last for first, last in self.team_sizes)
        )

    def overlaps(self, other: TuneToken) -> bool:
        """Return whether some call matches both tokens."""
        return (
            self.collective is other.collective
            and not set(self.memories).isdisjoint(other.memories)
            and any(a < d and c < b for a, b in self.size_ranges for c, d in other.size_ranges)
            and any(a <= d and c <= b for a, b in self.team_sizes for c, d in other.team_sizes)
        )

    @property
    def box(self) -> dict[str, Ranges]:
        """The calls that it decides, with inclusive bounds."""
        return {
            BYTES: tuple(
                (lo, INF if hi == INFINITE_BYTES else hi - 1) for lo, hi in sorted(self.size_ranges)
            ),
            MEMORY: tuple((n, n) for n, one in enumerate(MEMORIES) if one in self.memories)
            if self.memories != MEMORIES
            else every(MEMORY),
            RANKS: every(RANKS) if self.team_sizes == ANY_TEAM_SIZE else self.team_sizes,
        }

    def __str__(self) -> str:
        sizes = ",".join(
            f"{lo}-{'inf' if hi == INFINITE_BYTES else hi}" for lo, hi in self.size_ranges
        )
        memories = [] if self.memories == MEMORIES else [",".join(self.memories)]
        score = [self.score] if self.score else []
        return ":".join([str(self.collective), sizes, *memories, *score, f"@{self.algorithm}"])


def parse_tune(text: str) -> tuple[TuneToken, ...]:
    """Return the tokens of a string; raises InputError naming the token that UCC would refuse."""
    words = text.split("#")
    if len(words) > MAX_TOKENS:
        raise InputError(f"more than {MAX_TOKENS} tokens")
    tokens = tuple(token for word in words for token in _parse_tokens(word))
    for one, other in combinations(tokens, 2):
        if one.overlaps(other):
            raise InputError(f"{one} and {other} overlap: UCC takes neither")
    return tokens


def _parse_tokens(word: str) -> Iterator[TuneToken]:
    """Yield one token for each collective that the word names."""
    told: dict[str, str] = {}
    for field in word.split(":"):
        kind = _qualifier_kind(field)
        if kind is None or kind in told:
            raise InputError(
                f"{shortened_repr(word)}: {shortened_repr(field)} is not"
                f" {'a second ' if kind else 'a '}qualifier that UCC knows; it would leave out the"
                " whole string"
            )
        told[kind] = field
    if "algorithm" not in told or "collectives" not in told:
        raise InputError(
            f"{shortened_repr(word)}: name a collective and an algorithm, as in allreduce:@ring"
        )
    if told.get("score") == "0":
        raise InputError(
            f"{shortened_repr(word)}: a score of 0 switches the range off: drop the token"
        )
    for name in told["collectives"].split(","):
        collective = COLLECTIVES[name]
        yield TuneToken(
            collective,
            _parse_algorithm(collective, told["algorithm"]),
            tuple(_parse_size_ranges(told["sizes"])) if "sizes" in told else ((0, INFINITE_BYTES),),
            tuple(told["memories"].split(",")) if "memories" in told else MEMORIES,
            tuple(_parse_team_sizes(told["teams"])) if "teams" in told else ANY_TEAM_SIZE,
            told.get("score", ""),
        )


def _qualifier_kind(field: str) -> str | None:
    """Return which qualifier a field is, tested in UCC's order; None for none."""
    parts = field.split(",")
    if all(part in COLLECTIVES for part in parts):
        return "collectives"
    if all(part in MEMORIES for part in parts):
        return "memories"
    if field == INFINITE_SCORE or strict_parsing.parse_int(field, MAX_FINITE_SCORE) is not None:
        return "score"
    if re.fullmatch(r"\[[-0-9,inf]+\]", field):
        return "teams"
    if re.fullmatch(r"@\w+", field):
        return "algorithm"
    return "sizes" if all("-" in part for part in parts) else None


def _parse_size_ranges(field: str) -> Iterator[IntRange]:
    for part in field.split(","):
        first, _, last = part.partition("-")
        lo, hi = _parse_size(first, field), _parse_size(last, field)
        if lo >= hi:
            raise InputError(f"the half-open range {shortened_repr(part)} must hold a size")
        yield lo, hi


def _parse_size(word: str, field: str) -> int:
    if word.lower() == "inf":
        return INFINITE_BYTES
    match = _SIZE.fullmatch(word)
    size = int(match[1]) << _POWERS[(match[2] or "").lower()] if match else INFINITE_BYTES
    if size >= INFINITE_BYTES:
        raise InputError(f"{shortened_repr(field)} is not a range of sizes such as 0-4k or 1m-inf")
    return size


def _parse_team_sizes(field: str) -> Iterator[IntRange]:
    for part in field[1:-1].split(","):
        first, dash, last = part.partition("-")
        lo = strict_parsing.parse_int(first, MAX_RANKS)
        hi = (
            MAX_RANKS
            if last == "inf"
            else strict_parsing.parse_int(last if dash else first, MAX_RANKS)
        )
        if lo is None or hi is None or lo > hi:
            raise InputError(
                f"{shortened_repr(field)} is not a list of numbers of ranks such as [2-8,16]"
            )
        yield lo, hi


def _parse_algorithm(collective: Collective, field: str) -> str:
    name, names = field[1:], ALGORITHMS[collective]
    number = strict_parsing.parse_int(name, len(names) - 1)
    if number is not None:
        return names[number]
    if name not in names:
        raise InputError(
            f"UCC has no {collective} algorithm {shortened_repr(name)}: it has {list(names)}"
        )
    return name


def join_tokens(tokens: Sequence[TuneToken]) -> str:
    """Return the TUNE string of these tokens."""
    return "#".join(map(str, tokens))
