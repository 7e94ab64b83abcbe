"""Writing I_MPI_ADJUST_<COLLECTIVE>, and comparing such variables with their table.

The variables know neither the number of ranks nor the operator, so a file is for one number of
ranks. Nor can they name Intel MPI's own decision: preset 0 is another algorithm. A collective that
the table leaves to it altogether gets no variable; beside other rules it needs a stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.export import environment
from tuner.export.intelmpi.adjust import LARGEST, PREFIX, Entry, decide, parse
from tuner.export.ladders import by_ranks, describe, probe_sizes
from tuner.libraries.intelmpi import PER_RANK, PRESETS, preset_of
from tuner.table import Choice, Rule, TuningTable

Ladders = dict[Collective, tuple[Rule, ...]]


def otherwise_of(name: str) -> Choice | None:
    """A stand-in for Intel MPI's own decision, such as `preset_1`; None of "".

    Raises InputError for another name.
    """
    if not name:
        return None
    preset_of(Collective.ALLREDUCE, Choice(name))
    return Choice(name)


def ranks_of(table: TuningTable) -> tuple[int, ...]:
    """The numbers of ranks that the table knows, ascending."""
    return tuple(sorted({key.p for key in table.keys}))


def emit(
    table: TuningTable, ranks: int | None = None, *, otherwise: Choice | None = None,
    commutative_only: bool = False,
) -> str:  # fmt: skip
    """The variables for communicators of `ranks` ranks; None: the only ones in the table.

    otherwise   what runs where a ladder with other rules leaves the choice to Intel MPI

    Raises InputError when a rule cannot be expressed, and for a number of ranks that the table does
    not know.
    """
    ladders = _ladders(table, ranks, commutative_only)
    variables = {
        f"{PREFIX}{collective.upper()}": ";".join(_words(_entries(collective, ladder, otherwise)))
        for collective, ladder in ladders.items()
        if not all(rule.choice.is_default for rule in ladder)
    }
    p = next(iter(ladders.values()))[0].key.p
    text = environment.render(variables, f"{table.library}, communicators of {p} ranks")
    differences = check(table, text, ranks, otherwise=otherwise, commutative_only=commutative_only)
    if differences:
        raise InputError(f"the variables would not say what the table says: {differences[0]}")
    return text


def _ladders(table: TuningTable, ranks: int | None, commutative_only: bool) -> Ladders:
    known = ranks_of(table)
    if ranks is None and len(known) != 1:
        raise InputError(
            f"the variables are for one number of ranks, and the table has {list(known)}: choose"
            " one (--ranks)"
        )
    p = known[0] if ranks is None else ranks
    found = by_ranks(table, "commutative" if commutative_only else "any")
    ladders = {name: sizes[p] for name, sizes in found.items() if p in sizes}
    if not ladders:
        raise InputError(f"the table has no rules for {p} ranks, but for {list(known)}")
    return ladders


def _entries(
    collective: Collective, ladder: tuple[Rule, ...], otherwise: Choice | None
) -> Iterator[Entry]:
    """One per rule that some call falls under, the last without bound."""
    done = -1
    for rule in ladder:
        preset, p = _preset(rule, otherwise), rule.key.p
        if rule.hi == math.inf:
            yield Entry(preset)
            return
        # The last size below `hi` that is a whole number of bytes per rank.
        last = -(-int(rule.hi) // p) - 1 if collective in PER_RANK else int(rule.hi) - 1
        if last > LARGEST:
            raise InputError(f"{describe(rule)}: Intel MPI takes bounds up to {LARGEST} bytes")
        if last > done:
            yield Entry(preset, last)
            done = last


def _preset(rule: Rule, otherwise: Choice | None) -> int:
    key = rule.key
    if key.memory != "host":
        raise InputError(
            f"{describe(rule)}: Intel MPI's variables cannot be limited to {key.memory} memory"
        )
    choice = rule.choice
    if choice.is_default and otherwise is None:
        raise InputError(
            f"{describe(rule)}: beside other rules Intel MPI's own decision has no number (preset"
            " 0 is another algorithm): name a stand-in (--otherwise preset_1)"
        )
    try:
        return preset_of(key.collective, otherwise or choice if choice.is_default else choice)
    except InputError as reason:
        raise InputError(f"{describe(rule)}: {reason}") from None


def _words(entries: Iterator[Entry]) -> Iterator[str]:
    first = 0
    for entry in entries:
        if entry.last is None:
            yield str(entry.preset)
        else:
            yield f"{entry.preset}:{first}-{entry.last}"
            first = entry.last + 1


def check(
    table: TuningTable, text: str, ranks: int | None = None, *, otherwise: Choice | None = None,
    commutative_only: bool = False,
) -> list[str]:  # fmt: skip
    """Every call on `ranks` ranks for which the file decides otherwise than the table, one sentence
    each. Raises InputError when Intel MPI would not read the file as it stands.
    """
    found, differences = parse(text), list[str]()
    ladders = _ladders(table, ranks, commutative_only)
    p = next(iter(ladders.values()))[0].key.p
    for collective in PRESETS:
        ladder = ladders.get(collective, ())
        silent = all(rule.choice.is_default for rule in ladder)
        scale = p if collective in PER_RANK else 1
        edges = {(e.last + 1) * scale for e in found.get(collective, ()) if e.last is not None}
        sizes = sorted({n // scale * scale for n in probe_sizes(ladder, edges)}
                       | {-(-n // scale) * scale for n in probe_sizes(ladder, edges)})  # fmt: skip
        for nbytes in sizes:
            rule = next((r for r in ladder if r.lo <= nbytes < r.hi), None)
            wanted = rule.choice if rule else Choice()
            if wanted.is_default and not silent and otherwise:
                wanted = otherwise
            decided = decide(found, collective, p, nbytes)
            if decided != wanted:
                differences.append(
                    f"{collective} of {nbytes} bytes on {p} ranks: the table says {wanted}, the"
                    f" variables {decided}"
                )
    return differences
