"""The rules of a library's file, in one form for all formats.

A rule is for a box of calls: for each quantity that its file compares, the whole numbers that the
rule takes. The first rule of a file whose box holds a call decides it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tuner.base.errors import InputError, UsageError
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import AlgorithmChoice

INF = math.inf
MAX_RULES = 10_000  # in a file; to compare them takes seconds, a minute at worst
Ranges = tuple[tuple[float, float], ...]  # whole numbers, bounds included, ascending
Box = Mapping[str, Ranges]
RANKS, NODES, PPN = "ranks", "nodes", "ranks per node"
BYTES, BLOCK_BYTES, SENT_BYTES = "bytes", "bytes per rank", "bytes sent to a rank"
SIZES = (BYTES, BLOCK_BYTES, SENT_BYTES)
ELEMENTS, SUBCOMMUNICATOR, MEMORY = "elements", "the kind of communicator", "memory"
ONE_NODE = "whether all ranks share a node"
POWER_OF_TWO = "whether the ranks are a power of two"
HOLDS_BLOCKS = "whether each of the largest power of two of ranks has an element"
YES = ((1, 1),)
NO = ((0, 0),)
KINDS = ("parent", "node", "node_roots", "flat")  # of communicators, as MPICH calls them
EVERY: Mapping[str, Ranges] = {
    **dict.fromkeys((RANKS, NODES, PPN, "calls in one operation"), ((1, INF),)),
    **dict.fromkeys((BYTES, BLOCK_BYTES, SENT_BYTES, ELEMENTS), ((0, INF),)),
    **dict.fromkeys((SUBCOMMUNICATOR, MEMORY), ((0, 9),)),  # kinds, by their place in a list
}
YES_OR_NO = ((0, 1),)  # of all other quantities
ASSUMED = {  # what is not asked of users: quantity -> its value, and how that is called
    "commutative operator": (1, "a commutative operator"),
    "built-in operator": (1, "an operator of MPI's own"),
    "in place": (0, "buffers that are not in place"),
    "equal blocks": (1, "blocks of one length"),
    "several threads": (0, "MPI without MPI_THREAD_MULTIPLE"),
    "intercommunicator": (0, "no intercommunicator"),
    "consecutive ranks": (1, "consecutive ranks on each node"),
    "registered buffers": (0, "buffers that are not registered"),
    "calls in one operation": (1, "one call at a time"),
    MEMORY: (0, "host memory"),
    ELEMENTS: (-1, f"elements of {PROBE_ELEMENT_BYTES} bytes"),
    HOLDS_BLOCKS: (-1, f"elements of {PROBE_ELEMENT_BYTES} bytes"),
}


class Caution(NamedTuple):
    """A caution about a line of a file."""

    line: int
    text: str


Report = Callable[[int, str], None]  # takes the line and what is wrong with it


@dataclass(frozen=True)
class FileRule:
    """One rule.

    collective  its name in the file
    runs        what the library runs, for people; "" for its own decision
    choice      the same as tables have it; None where they have no name for it
    path        where the rule is in the file, besides its line
    is_written  whether the file spells it out
    """

    line: int
    collective: str
    box: Box
    runs: str
    choice: AlgorithmChoice | None = None
    path: str = ""
    is_written: bool = True


@dataclass(frozen=True)
class AskedCall:
    """A call that is asked about; None stands for what was not given."""

    collective: Collective
    ranks: int | None = None
    nodes: int | None = None
    ppn: int | None = None
    nbytes: int | None = None

    def value(self, quantity: str) -> float | None:
        """Return the value of a quantity of this call; None where it does not follow."""
        if ASSUMED.get(quantity, (-1,))[0] >= 0:
            return ASSUMED[quantity][0]
        p, n = self.ranks, self.nbytes
        elements = None if n is None else n // PROBE_ELEMENT_BYTES
        told: dict[str, float | None] = {RANKS: p, NODES: self.nodes, PPN: self.ppn}
        told |= {BYTES: n if self.collective.has_data else 0, ELEMENTS: elements}
        told[ONE_NODE] = None if self.nodes is None else self.nodes == 1
        kind = "flat" if self.ppn == 1 else "parent"
        told[SUBCOMMUNICATOR] = None if self.ppn is None else KINDS.index(kind)
        if p is not None and n is not None and elements is not None:
            told[BLOCK_BYTES] = n // p if self.collective.moves_blocks else n
            told[SENT_BYTES] = n // self.collective.blocks(p)[0]
            told[HOLDS_BLOCKS] = elements >= 1 << (p.bit_length() - 1)
        if p is not None:
            told[POWER_OF_TWO] = p & (p - 1) == 0
        return told.get(quantity)


@dataclass
class FileRules:
    """The rules of a file in the order in which the library looks, and what is wrong with them.

    otherwise   what the library does where no rule is for a call
    before      returns what may decide a call before the file does, in a sentence, or ""
    """

    rules: list[FileRule] = field(default_factory=list)
    cautions: list[Caution] = field(default_factory=list)
    otherwise: str = "the library decides"
    before: Callable[[AskedCall], str] = lambda _: ""

    def report(self, line: int, text: str) -> None:
        """Add a caution."""
        self.cautions.append(Caution(line, text))

    def all_cautions(self) -> dict[str, list[int]]:
        """Return the cautions and those on rules that no call reaches, with their lines.

        Raises InputError where the rules are too many to be compared.
        """
        if len(self.rules) > MAX_RULES:
            raise InputError(f"more than {MAX_RULES} rules: give a part of the file")
        lines: dict[str, set[int]] = {}
        for line, text in sorted([*self.cautions, *unreached(self.rules)]):
            lines.setdefault(text, set()).add(line)
        return {text: sorted(told) for text, told in lines.items()}


def every(quantity: str) -> Ranges:
    """Return all values of a quantity."""
    return EVERY.get(quantity, YES_OR_NO)


def both(one: Ranges, other: Ranges) -> Ranges:
    """Return the numbers in both."""
    common = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return tuple((first, last) for first, last in common if first <= last)


def without(one: Ranges, other: Ranges) -> Ranges:
    """Return the numbers in `one` that are not in `other`."""
    for low, high in other:
        parts = (part for a, b in one for part in ((a, min(b, low - 1)), (max(a, high + 1), b)))
        one = tuple((first, last) for first, last in parts if first <= last and first < INF)
    return one


def narrowed(box: Box, quantity: str, ranges: Ranges) -> Box:
    """Return the calls of a box in which a quantity has these values."""
    return {**box, quantity: both(box.get(quantity, every(quantity)), ranges)}


def _remainder(box: Box, taken: Box) -> list[Box]:
    """Return the calls of a box that are not in another one, as boxes without common calls."""
    pieces, inside = list[Box](), dict(box)
    for quantity, ranges in taken.items():
        own = inside.get(quantity, every(quantity))
        if left := without(own, ranges):
            pieces.append({**inside, quantity: left})
        inside[quantity] = both(own, ranges)
        if not inside[quantity]:
            return [box]
    return pieces


def walked(bounds: Sequence[int]) -> list[Ranges]:
    """Return where each lower bound counts if the last one before a larger one than asked for does.

    The first counts below itself, too. Open MPI reads its classic files so, sorted or not
    (ompi_coll_tuned_get_com_rule_ptr in coll_tuned_dynamic_rules.c of v5.0.9).
    """
    starts = [0 if place == 0 else most for place, most in enumerate(accumulate(bounds, max))]
    ends = [*(bound - 1 for bound in bounds[1:]), INF][: len(bounds)]
    ends[:1] = [max(end, bounds[0] - 1) for end in ends[:1]]
    return [((first, last),) * (first <= last) for first, last in zip(starts, ends, strict=True)]


def deciding_rule(rules: Iterable[FileRule], call: AskedCall) -> FileRule | None:
    """Return the rule that decides a call; raises UsageError where more must be known of it."""
    return next((rule for rule in rules if _holds(rule, call)), None)


_OPTIONS = {  # quantity -> the options that tell it
    **dict.fromkeys((RANKS, POWER_OF_TWO), "--ranks"),
    **dict.fromkeys((NODES, ONE_NODE, PPN, SUBCOMMUNICATOR), "--nodes or --ppn, with --ranks"),
    **dict.fromkeys((BYTES, ELEMENTS), "--size"),
}


def _holds(rule: FileRule, call: AskedCall) -> bool:
    if rule.collective != call.collective or not all(rule.box.values()):
        return False
    asked = {one: ranges for one, ranges in rule.box.items() if ranges != every(one)}
    told = {quantity: call.value(quantity) for quantity in asked}
    if any(n is not None and not both(asked[one], ((n, n),)) for one, n in told.items()):
        return False
    if missing := [quantity for quantity, value in told.items() if value is None]:
        option = _OPTIONS.get(missing[0], "--ranks and --size")
        raise UsageError(f"line {rule.line} of the file decides by {missing[0]}: give {option}")
    return True


def describe(box: Box) -> str:
    """Return the calls of a box as `ranks 64 and more, bytes 0 to 4095`."""
    words = []
    for quantity, ranges in box.items():
        if every(quantity) == YES_OR_NO and len(ranges) == 1 and ranges != YES_OR_NO:
            words.append(f"{quantity}: {'yes' if ranges == YES else 'no'}")
        elif ranges != every(quantity):
            words.append(f"{quantity} {' or '.join(map(_describe_range, ranges))}")
    return ", ".join(words)


def _describe_range(bounds: tuple[float, float]) -> str:
    first, last = bounds
    if last == INF:
        return f"{first:.0f} and more"
    return f"{first:.0f}" if first == last else f"{first:.0f} to {last:.0f}"


def assumptions(rules: Iterable[FileRule], call: AskedCall) -> list[str]:
    """Return what is assumed of a call, of all that rules for its collective ask for."""
    asked = {
        quantity
        for rule in rules
        if rule.collective == call.collective
        for quantity, ranges in rule.box.items()
        if ranges != every(quantity)
    }
    return list(dict.fromkeys(name for key, (_, name) in ASSUMED.items() if key in asked))


def unreached(rules: Iterable[FileRule]) -> Iterator[Caution]:
    """Yield a caution for every rule that names an algorithm and decides no call."""
    groups: dict[str, dict[object, _Group]] = {}
    for place, rule in enumerate(rules):
        near, left = list[_Group](), list[Box]()
        if all(rule.box.values()):
            new, left = _Group.of(rule), [rule.box]
            known = groups.setdefault(rule.collective, {})
            near = [one for one in known.values() if _meet(one.ranks, new.ranks)]
            for group in reversed(near):  # the nearest rules usually take most
                left = [piece for box in left for piece in group.outside(box)]
            known.setdefault((new.axis, *new.rest.items()), new).add(place, rule)
        if not left and rule.runs:
            takers = _takers(rule, near)
            by = f": its calls are decided by {join_lines(takers)}" if takers else ""
            yield Caution(rule.line, f"no call reaches this rule{by}")


@dataclass
class _Group:
    """Rules of one collective whose boxes differ in the size alone.

    axis    how the size is counted
    rest    the box without it
    ranks   the first and the last of their numbers of ranks
    rules   the first and last size of each, its place in the file, and the rule itself
    taken   the sizes that any of them takes, ascending, with gaps between them
    """

    axis: str
    rest: Box
    ranks: tuple[float, float]
    rules: list[tuple[tuple[float, float], int, FileRule]] = field(default_factory=list)
    taken: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, rule: FileRule) -> _Group:
        """Return the group of a rule, still without it."""
        axis = next((one for one in SIZES if one in rule.box), BYTES)
        rest = {quantity: ranges for quantity, ranges in rule.box.items() if quantity != axis}
        return cls(axis, rest, _hull(rule.box, RANKS))

    def add(self, place: int, rule: FileRule) -> None:
        """Add the rule at a place of the file."""
        self.rules.append((_hull(rule.box, self.axis), place, rule))
        for low, high in rule.box.get(self.axis, every(self.axis)):
            known = self._near(low - 1, high + 1)
            ends = [bound for one in self.taken[known] for bound in one]
            self.taken[known] = [(min(low, *ends[:1], low), max(high, *ends[-1:], high))]

    def outside(self, box: Box) -> list[Box]:
        """Return the calls of a box that none of its rules takes."""
        if not _meet(self.ranks, _hull(box, RANKS)):
            return [box]
        near = self.taken[self._near(*_hull(box, self.axis))]
        return _remainder(box, {**self.rest, self.axis: tuple(near)})

    def _near(self, low: float, high: float) -> slice:
        first = bisect_left(self.taken, low, key=lambda one: one[1])
        return slice(first, bisect_right(self.taken, high, lo=first, key=lambda one: one[0]))


def _takers(rule: FileRule, groups: Iterable[_Group]) -> list[int]:
    """Return the lines of the rules that decide the calls of one which none reaches."""
    left, lines, near = [rule.box], list[int](), dict[int, FileRule]()
    for group in groups:
        low, high = _hull(rule.box, group.axis)
        near |= {n: taker for (a, b), n, taker in group.rules if a <= high and low <= b}
    for _, taker in sorted(near.items()):
        rest = [piece for box in left for piece in _remainder(box, taker.box)]
        lines += [taker.line] * (rest != left)
        left = rest
    return lines


def _hull(box: Box, quantity: str) -> tuple[float, float]:
    ranges = box.get(quantity, every(quantity))
    return ranges[0][0], ranges[-1][1]


def _meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def join_lines(lines: Iterable[int]) -> str:
    """Return `line 3`, `lines 3 and 5`, or the first of many."""
    known = sorted(set(lines))
    if len(known) == 1:
        return f"line {known[0]}"
    *first, last = map(str, known[:4])
    more = f" and {len(known) - 4} more" if len(known) > 4 else ""
    return f"lines {', '.join(first)}{', ' if more else ' and '}{last}{more}"
