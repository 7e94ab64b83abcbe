"""Choose the calls of a check, at sizes that nobody probed."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log2
from random import Random

from tests.field.tables import DEFAULT, Library, Rule

ITEM = 4  # bytes of a float
LARGEST = 4 << 20  # bytes, for rules without an upper bound where no size was probed
BLOCKS = ("allgather", "gather", "scatter")  # their whole buffer has a block for each rank
# Collectives that a table may have no rules for: loading its files may change them all the same.
OTHERS = ("reduce", *BLOCKS)
OTHER_BYTES = (1000, 100_000)


@dataclass(frozen=True)
class Call:
    """A collective on `nbytes` of whole buffer, and the algorithm that the table gives for it.

    The origin is "rule" (chosen from the range of a rule), "report" (of the report's held-out
    comparison) or "other" (of a collective without rules).
    """

    collective: str
    ranks: int
    nbytes: int
    algorithm: str
    origin: str

    @property
    def changed(self) -> bool:
        return self.algorithm != DEFAULT

    @property
    def word(self) -> str:
        """Return the call as the benchmark takes it."""
        return f"{self.collective}:{self.nbytes}"


def choose_calls(library: Library, seed: int = 0) -> list[Call]:
    """Return the calls to measure, the same for the same tuning and seed.

    These are the calls of the report's comparison, sizes spread over the range of every rule and
    next to its bounds, and collectives without rules. At least as many calls are left to the
    default as are changed.
    """
    random = Random(f"{seed} {library.name} {library.digest}")
    reported = [
        Call(
            c.collective,
            c.ranks,
            c.nbytes,
            library.algorithm(c.collective, c.ranks, c.nbytes),
            "report",
        )
        for c in library.comparisons
    ]
    known = {(call.collective, call.ranks, call.nbytes) for call in reported}
    known |= {(rule.collective, rule.ranks, size) for rule in library.rules for size in rule.probed}
    changing = [rule for rule in library.rules if rule.algorithm != DEFAULT]
    keeping = [rule for rule in library.rules if rule.algorithm == DEFAULT]
    changed = [call for rule in changing for call in _calls(library, rule, 2.5, 0, known, random)]
    kept = [call for rule in keeping for call in _calls(library, rule, 5, 0, known, random)]
    missing = len(changed) - len(kept)
    if keeping and missing > 0:
        more = ceil(missing / len(keeping))
        kept = [call for rule in keeping for call in _calls(library, rule, 5, more, known, random)]
    return reported + changed + kept + _others(library, random)


def _calls(
    library: Library,
    rule: Rule,
    octaves: float,
    more: int,
    known: set[tuple[str, int, int]],
    random: Random,
) -> list[Call]:
    """Return calls in the range of a rule: next to its bounds, and one per so many octaves."""
    low, high = rule.low, rule.high
    if high == inf:
        probed = [
            size for r in library.rules if r.collective == rule.collective for size in r.probed
        ]
        high = max([*(probed or [LARGEST]), 1.3 * low]) + 1
    first = max(low, ITEM)
    inner = ceil(log2(high / first) / octaves) + more
    unit = ITEM * rule.ranks if rule.collective in BLOCKS else ITEM
    avoided = {
        n for collective, ranks, n in known if (collective, ranks) == (rule.collective, rule.ranks)
    }
    sizes = spread_sizes(first, int(high), inner, unit, avoided, random)
    if low > 0:
        sizes |= next_sizes(range(first, int(high)), unit, avoided)
    if rule.high < inf:
        sizes |= next_sizes(range(int(high) - 1, first - 1, -1), unit, avoided)
    return [
        Call(rule.collective, rule.ranks, size, rule.algorithm, "rule") for size in sorted(sizes)
    ]


def spread_sizes(
    low: int, high: int, number: int, unit: int, avoided: set[int], random: Random
) -> set[int]:
    """Return up to so many sizes in low <= size < high, one in each part of the logarithmic range.

    They are odd multiples of the unit, so none is a power of two, nor even half of a round size.
    """
    sizes = set()
    for part in range(number):
        size = low * (high / low) ** ((part + random.random()) / number)
        size = (2 * int(size / (2 * unit)) + 1) * unit
        if low <= size < high and size not in avoided:
            sizes.add(size)
    return sizes


def next_sizes(candidates: range, unit: int, avoided: set[int]) -> set[int]:
    """Return the first odd multiple of the unit among the candidates, or nothing."""
    for size in candidates:
        if size % (2 * unit) == unit and size not in avoided:
            return {size}
    return set()


def _others(library: Library, random: Random) -> list[Call]:
    ruled = {rule.collective for rule in library.rules}
    calls = []
    for ranks in sorted({rule.ranks for rule in library.rules}):
        for collective in OTHERS:
            unit = ITEM * (ranks if collective in BLOCKS else 1)
            for size in OTHER_BYTES if collective not in ruled else ():
                nbytes = (2 * int(size * random.uniform(0.7, 1.4) / (2 * unit)) + 1) * unit
                calls.append(Call(collective, ranks, nbytes, DEFAULT, "other"))
        if "barrier" not in ruled:
            calls.append(Call("barrier", ranks, 0, DEFAULT, "other"))
    return calls
