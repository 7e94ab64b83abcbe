"""Proving a rules file in a real Open MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.collective import Collective
from tuner.errors import InputError
from tuner.export import watcher
from tuner.export.ladders import every_ladder
from tuner.export.openmpi.emitter import check
from tuner.export.openmpi.parser import parse
from tuner.export.openmpi.rules import first_of, render
from tuner.export.prove import (
    NO_SIZE,
    Answer,
    RuleProof,
    Starter,
    Trial,
    ask,
    item_of,
    require_unset,
    sizes_of,
)
from tuner.files import write_atomically
from tuner.libraries.openmpi import COLLECTIVE_IDS, choice_of, normal, redirected
from tuner.progress import Counted, quietly
from tuner.table import Choice, Key, Rule, TuningTable

SOURCE = Path(__file__).with_name("interpose.c")
WATCHED = (Collective.BCAST, Collective.ALLREDUCE)  # what the watcher stands before
FORCING = r"OMPI_MCA_coll_tuned_\w+_algorithm\w*"  # parameters that come before any file
IMPOSSIBLE = 99  # an algorithm number that Open MPI reads, but refuses when a call reaches it


def activation(rules_file: Path, han_file: Path | None = None) -> dict[str, str]:
    """MCA parameters under which Open MPI follows the file; on several nodes with han's file."""
    settings = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_dynamic_rules_filename": str(rules_file.resolve()),
    }
    if han_file is not None:
        settings["coll_han_use_dynamic_file_rules"] = "1"
        settings["coll_han_dynamic_rules_filename"] = str(han_file.resolve())
    return settings


def build_watcher(directory: Path) -> Path | None:
    """The compiled library to preload; None without a working C compiler."""
    return watcher.build(SOURCE, directory)


def prove(
    table: TuningTable,
    rules_file: Path,
    starter: Starter,
    directory: Path,
    *,
    han_file: Path | None = None,
    commutative_only: bool = False,
    watch: bool = True,
    progress: Counted = quietly,
) -> list[RuleProof]:
    """Run every rule that the file holds in the real library, in the order of the table.

    directory   where the watcher and the list of calls go; all hosts see it
    han_file    what gives calls on several nodes to the rules
    watch       False: use poisoned rows even where a watcher could be compiled

    Collectives that the watcher does not know are tried by poisoned rows.

    Raises InputError when the file is not that of the table, ProbeError when the ranks fail.
    """
    text = rules_file.read_text(encoding="utf-8")
    differences = check(table, text, commutative_only=commutative_only)
    if differences:
        raise InputError(f"{rules_file}: not the file of this table: {differences[0]}")
    require_unset(FORCING)
    ladders = every_ladder(table, "commutative" if commutative_only else "any")
    rules = [rule for ladder in ladders for rule in ladder]
    preloaded = build_watcher(directory) if watch else None
    watched = [rule for rule in rules if preloaded and rule.key.collective in WATCHED]
    proofs = dict[Rule, RuleProof]()
    if preloaded and watched:
        follow = activation(rules_file, han_file)
        seen_at_work = _by_watching(preloaded, follow, watched, starter, directory, progress)
        proofs |= zip(watched, seen_at_work, strict=True)
    others = [rule for rule in rules if rule not in proofs]
    poisoned = _by_poison(text, others, starter, directory, han_file, progress)
    proofs |= zip(others, poisoned, strict=True)
    return [proofs[rule] for rule in rules]


def _by_watching(
    preloaded: Path, follow: Mapping[str, str], rules: Sequence[Rule], starter: Starter,
    directory: Path, progress: Counted,
) -> list[RuleProof]:  # fmt: skip
    trials = [Trial(rule, nbytes) for rule in rules for nbytes in sizes_of(rule)]
    defaults = [trial for trial in trials if trial.rule.choice.is_default]
    total = len(trials) + len(defaults)

    def counting_from(done: int) -> Counted:
        return lambda calls, _: progress(done + calls, total)

    environment = {"LD_PRELOAD": str(preloaded)}
    with_file = ask(
        starter, trials, directory, settings=follow, environment=environment,
        progress=counting_from(0),
    )  # fmt: skip
    without = ask(
        starter, defaults, directory, settings={}, environment=environment,
        progress=counting_from(len(trials)),
    ) if defaults else {}  # fmt: skip
    own = {(t.rule.key, t.nbytes): seen(t.collective, without[i]) for i, t in enumerate(defaults)}
    ran = {(t.rule, t.nbytes): with_file[i] for i, t in enumerate(trials)}
    return [_judge(rule, {n: ran[rule, n] for n in sizes_of(rule)}, own) for rule in rules]


def seen(collective: Collective, answer: Answer) -> Choice | None:
    """The algorithm that a call ended in; None when no call of `coll/tuned` was seen."""
    if not answer.executed or answer.executed[0] != COLLECTIVE_IDS[collective]:
        return None
    _, asked, faninout, segment, ran = answer.executed
    if ran in (asked, -1):
        return choice_of(collective, asked, faninout, segment)
    return choice_of(collective, ran, 0, 0)


def _judge(
    rule: Rule, answers: dict[int, Answer], own: dict[tuple[Key, int], Choice | None]
) -> RuleProof:
    collective, executed, reasons = rule.key.collective, [], []
    for nbytes, answer in answers.items():
        ran = seen(collective, answer)
        wanted = (
            own[rule.key, nbytes] if rule.choice.is_default else normal(collective, rule.choice)
        )
        executed.append(ran or Choice())
        if answer.error:
            reasons.append(f"at {nbytes} bytes the call failed with MPI error {answer.error}")
        elif ran is None and wanted is not None:
            reasons.append(f"at {nbytes} bytes another component than coll/tuned answered the call")
        elif ran != wanted:
            reasons.append(
                redirected(collective, rule.choice, rule.key.p, nbytes, item_of(nbytes))
                or f"at {nbytes} bytes {ran} ran instead of {wanted}"
            )
    return RuleProof(rule, tuple(answers), tuple(executed), not reasons, "; ".join(reasons))


def _by_poison(
    text: str, rules: Sequence[Rule], starter: Starter, directory: Path, han_file: Path | None,
    progress: Counted,
) -> list[RuleProof]:  # fmt: skip
    """One launch for the n-th rules of all communicator sizes of a collective.

    Making a communicator calls collectives of all ranks: a spare one keeps them from the rules.
    """
    proofs: dict[Rule, RuleProof] = {}
    for collective in sorted({rule.key.collective for rule in rules}):
        mine = [rule for rule in rules if rule.key.collective is collective]
        trials = [Trial(rule, nbytes) for rule in mine for nbytes in sizes_of(rule)]
        poisoned = directory / "poisoned.conf"
        for position in range(max(_position(rule, mine) for rule in mine) + 1):
            starts = {r.key.p: first_of(r) for r in mine if _position(r, mine) == position}
            write_atomically(poisoned, _poisoned(text, collective, starts))
            settings = activation(poisoned, han_file)
            answers = ask(starter, trials, directory, settings=settings, spare=1)
            failed = {rule: set[int]() for rule in mine}
            for i, answer in answers.items():
                if answer.error:
                    failed[trials[i].rule].add(trials[i].nbytes)
            others = [r for r, sizes in failed.items() if sizes and _position(r, mine) != position]
            for rule in (rule for rule in mine if _position(rule, mine) == position):
                proofs[rule] = _poison_proof(rule, failed[rule], others)
            progress(len(proofs), len(rules))
    return [proofs[rule] for rule in rules]


def _poison_proof(rule: Rule, failed: set[int], others: list[Rule]) -> RuleProof:
    sizes = sizes_of(rule)
    reached = tuple(rule.choice if nbytes in failed else Choice() for nbytes in sizes)
    missed = [nbytes for nbytes in sizes if nbytes not in failed]
    reason = f"calls of {missed} bytes do not reach this rule" if missed else ""
    reason = reason if sizes else NO_SIZE
    if others and not reason:
        reason = f"calls that belong to the rule from {others[0].lo} bytes on reach it too"
    return RuleProof(rule, sizes, reached, not reason, reason)


def _position(rule: Rule, rules: Sequence[Rule]) -> int:
    return len({r.lo for r in rules if r.key.p == rule.key.p and r.lo < rule.lo})


def _poisoned(text: str, collective: Collective, starts: Mapping[int, int]) -> str:
    """The file with impossible rows that start where, by number of ranks."""
    rules, number = parse(text), COLLECTIVE_IDS[collective]
    entries = tuple(
        (ranks, tuple(
            replace(row, algorithm=IMPOSSIBLE) if row.size == starts.get(ranks) else row
            for row in rows
        ))
        for ranks, rows in rules.collectives[number]
    )  # fmt: skip
    return render(replace(rules, collectives={**rules.collectives, number: entries}))
