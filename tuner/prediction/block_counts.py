"""Bytes of the blocks of a call in which they differ: from a file or a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.base.arrays import FloatArray, IntArray
from tuner.base.errors import InputError, LimitExceededError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.base.units import plural
from tuner.core.collective import Collective
from tuner.core.schedule import MAX_MESSAGE_BYTES

MAX_RANKS = 1 << 12  # whose counts are held in memory, 128 MiB for a matrix
ROUNDING = 1e-12  # of shares; whole numbers of elements stay what they are
SEED = 2026  # of the order of experts and of uniform counts, so that all runs have the same


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """The blocks of a call in proportion to one another.

    shares      of the block for each rank (column) from each rank (row), shape (p, p), in what the
                mean rank has to send; less than one in sum where tokens are dropped. In an
                allgatherv, of the block from each rank (column) in all of them, shape (1, p)
    given       bytes of each block, where they are given; else None
    """

    shares: FloatArray
    given: IntArray | None = None

    @property
    def mean_bytes(self) -> int:
        """Return the mean bytes of a row of given blocks, rounded up; else 0."""
        return 0 if self.given is None else -(-int(self.given.sum()) // len(self.given))

    def sizes(self, nbytes: int, itemsize: int = 1) -> IntArray:
        """Return the elements of each block in a call whose rows have `nbytes` in the mean.

        Blocks are rounded up to whole elements.
        """
        if self.given is not None and nbytes == self.mean_bytes:
            return -(-self.given // itemsize)
        elements: FloatArray = np.ceil(self.shares * (nbytes / itemsize) * (1 - ROUNDING))
        return elements.astype(np.int64)


class Routing(NamedTuple):
    """The parameters by which tokens want experts unevenly.

    The k-th most wanted expert gets a part of all tokens in proportion to k to the minus
    `exponent`, and at most `capacity` times as many as the mean one; the rest are dropped, as in
    Switch Transformers (W. Fedus, B. Zoph, N. Shazeer, JMLR 23, 2022, section 2.2). Each token goes
    to `copies` different experts, so that none gets more than 1 / `copies` of all copies; what
    tokens want of it beyond that, the others get.
    """

    exponent: float
    capacity: float
    experts: int
    copies: int = 1

    def taken(self, p: int) -> FloatArray:
        """Return the part of all copies that the experts of each of p ranks take, shape (p,).

        The experts are dealt to the ranks in an order that is drawn once for all calls.
        """
        wanted = np.arange(1.0, self.experts + 1) ** -self.exponent
        wanted /= wanted.sum()
        for full in range(self.copies):  # the first `full` experts get every token
            left = 1 - full / self.copies
            rest = wanted[full:] * (left / wanted[full:].sum())
            if rest[0] <= 1 / self.copies:
                wanted[full:] = rest
                break
            wanted[full] = 1 / self.copies
        taken = np.minimum(wanted, self.capacity / self.experts)
        dealt = np.random.default_rng(SEED).permutation(taken)
        return np.array([own.sum() for own in np.array_split(dealt, p)])


def block_counts(text: str, p: int, collective: Collective) -> BlockCounts:
    """Return the counts that a text asks for: the name of a model, or of a file of bytes.

    Raises InputError for a model with wrong parameters, for one that the collective does not have
    and for a file with another number of counts, and LimitExceededError for too many ranks.
    """
    rows = p if collective.gives_in_scratch else 1
    if rows * p > MAX_RANKS**2:
        raise LimitExceededError(f"--counts: {p} ranks; take at most {MAX_RANKS} (--ranks)")
    name, *parameters = text.split(":")
    if name not in MODELS or Path(text).exists():
        return _read_counts(Path(text), rows, p)
    if name in OF_PAIRS and not collective.gives_in_scratch:
        raise InputError(f"--counts {text}: the ranks of an {collective} send one block each")
    try:
        made = MODELS[name](rows, p, parameters)
    except ValueError:
        raise InputError(f"--counts {text}: write {FORMS[name]}") from None
    return BlockCounts(made)


def expert_counts(routing: Routing, p: int) -> BlockCounts:
    """Return the counts of tokens that ranks send to the experts of all p ranks."""
    return BlockCounts(np.tile(routing.taken(p), (p, 1)))


def _of_mean_one(weights: FloatArray) -> FloatArray:
    shares: FloatArray = weights * (len(weights) / weights.sum())
    return shares


def _read_counts(path: Path, n_rows: int, p: int) -> BlockCounts:
    """Return the counts of a file; a single row may also be written as p rows of one count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(unknown_name("file or model of counts", str(path), [*MODELS])) from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: cannot be read as a file of text") from None
    rows = [line.replace(",", " ").split() for line in lines]
    rows = [row for row in rows if row and not row[0].startswith("#")]
    widths = sorted({len(row) for row in rows})
    if (len(rows), *widths) not in ((n_rows, p), (p, n_rows)):
        needed = f"{p} rows of {p}" if n_rows == p else f"one row of {p}"
        odd = next((n for n, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
        found = f"{len(rows)} rows of {widths[0]} counts" if widths else "no counts"
        if odd:
            found = f"{plural(len(rows[odd - 1]), 'count')} in row {odd}, {len(rows[0])} before"
        raise InputError(f"{path}: {found}: {p} ranks (--ranks) need {needed}")
    counts = np.array(
        [
            [_parse_count(word, f"{path}: row {row}, column {column}") for column, word in words]
            for row, words in enumerate((enumerate(one, start=1) for one in rows), start=1)
        ],
        np.int64,
    )
    if not counts.any():
        raise InputError(f"{path}: expected a count above 0")
    counts = counts.reshape(n_rows, p)
    return BlockCounts(_of_mean_one(counts.astype(np.float64)), counts)


def _parse_count(word: str, where: str) -> int:
    if not word.isascii() or not word.isdigit():
        shown = shortened_repr(word)
        raise InputError(f"{where}: {shown} is not a number of whole bytes, such as 1024")
    if len(word) > len(str(MAX_MESSAGE_BYTES)) or int(word) > MAX_MESSAGE_BYTES:
        raise InputError(f"{where}: a block has at most {MAX_MESSAGE_BYTES} bytes")
    return int(word)


def _uniform(rows: int, p: int, parameters: Sequence[str]) -> FloatArray:
    """Return independent counts between 0 and twice their mean."""
    if parameters:
        raise ValueError
    return _of_mean_one(np.random.default_rng(SEED).random((rows, p)))


def _zipf(rows: int, p: int, parameters: Sequence[str]) -> FloatArray:
    """Return the expected counts of tokens for experts, one on each rank, in each row.

    Nothing is dropped from the single row of an allgatherv, and so it has no capacity.
    """
    exponent, capacity = [*map(float, parameters), *(1.0, math.inf)[len(parameters) :]]
    if not (0 <= exponent < math.inf and capacity > 0) or (rows < p and len(parameters) > 1):
        raise ValueError
    return np.tile(Routing(exponent, capacity, p).taken(p), (rows, 1))


def _pencils(rows: int, p: int, parameters: Sequence[str]) -> FloatArray:
    """Return the counts of the transposes of an FFT in pencils: equal ones along a row of ranks.

    The grid of ranks is the most square one, unless its rows and columns are given.
    """
    grid_rows = max(n for n in range(1, math.isqrt(p) + 1) if p % n == 0)
    if parameters:
        (text,) = parameters
        grid_rows, columns = map(int, text.split("x"))
        if grid_rows < 1 or grid_rows * columns != p:
            raise ValueError
    row_of = np.arange(p) // (p // grid_rows)
    return _of_mean_one((row_of[:, None] == row_of).astype(np.float64))


MODELS: Mapping[str, Callable[[int, int, Sequence[str]], FloatArray]] = {
    "uniform": _uniform,
    "zipf": _zipf,
    "pencils": _pencils,
}
OF_PAIRS = ("pencils",)  # models of blocks from each rank to each rank
FORMS: Mapping[str, str] = {
    "uniform": "uniform",
    "zipf": "zipf, zipf:EXPONENT or, in an alltoallv, zipf:EXPONENT:CAPACITY, such as zipf:1.2:2",
    "pencils": "pencils or pencils:ROWSxCOLUMNS with the product of the ranks, such as pencils:4x8",
}
