"""Proving a rules file in a real Open MPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import Counted, quietly
from tuner.core.collective import Collective
from tuner.core.table import Choice, Rule, TuningTable
from tuner.formats.openmpi.emitter import check
from tuner.formats.openmpi.parser import parse
from tuner.formats.openmpi.rules import first_of, render
from tuner.formats.rules_by_ranks import every_ladder
from tuner.mpi_libraries import require_unset
from tuner.mpi_libraries.openmpi import COLLECTIVE_IDS, DECIDING, normal, redirected
from tuner.validation.openmpi_trace import WATCHED, build_watcher, inside, seen, unseen
from tuner.validation.validation import (
    NO_SIZE,
    Answer,
    RuleProof,
    Starter,
    Trial,
    ask,
    item_of,
    sizes_of,
)

KEPT = "han keeps these calls, and nothing here sees what it runs"
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
    require_unset(DECIDING)
    ladders = every_ladder(table, "commutative" if commutative_only else "any")
    rules = [rule for ladder in ladders for rule in ladder]
    preloaded = build_watcher(directory) if watch else None
    watched = [rule for rule in rules if preloaded and rule.key.collective in WATCHED]
    proofs, follow = dict[Rule, RuleProof](), activation(rules_file, han_file)
    if preloaded and watched:
        seen_at_work = _by_watching(preloaded, follow, watched, starter, directory, progress)
        proofs |= zip(watched, seen_at_work, strict=True)
    kept = [rule for rule in rules if han_file and _left_to_han(rule) and rule not in proofs]
    proofs |= {rule: RuleProof.untried(rule, KEPT) for rule in kept}
    others = [rule for rule in rules if rule not in proofs]
    if others:
        broken = _failing(others, follow, starter, directory)
        poisoned = _by_poison(text, others, starter, directory, han_file, progress)
        proofs |= {
            rule: _unless_broken(proof, broken[rule])
            for rule, proof in zip(others, poisoned, strict=True)
        }
    return [proofs[rule] for rule in rules]


def _left_to_han(rule: Rule) -> bool:
    return rule.choice.is_default and rule.key.nodes > 1


def _by_watching(
    preloaded: Path,
    follow: Mapping[str, str],
    rules: Sequence[Rule],
    starter: Starter,
    directory: Path,
    progress: Counted,
) -> list[RuleProof]:
    trials = [trial for rule in rules for trial in _trials(rule)]
    defaults = [trial for trial in trials if trial.rule.choice.is_default]
    total = len(trials) + len(defaults)

    def counting_from(done: int) -> Counted:
        return lambda calls, _: progress(done + calls, total)

    environment = {"LD_PRELOAD": str(preloaded)}
    with_file = ask(
        starter,
        trials,
        directory,
        settings=follow,
        environment=environment,
        progress=counting_from(0),
    )
    alone = (
        ask(
            starter,
            defaults,
            directory,
            settings=_switched_off(follow),
            environment=environment,
            progress=counting_from(len(trials)),
        )
        if defaults
        else {}
    )
    without = {trial: alone[i] for i, trial in enumerate(defaults)}
    ran = {trial: with_file[i] for i, trial in enumerate(trials)}
    return [_judge(rule, {t: ran[t] for t in _trials(rule)}, without) for rule in rules]


def _trials(rule: Rule) -> list[Trial]:
    """Calls of a rule, of both kinds of operators where it is for both."""
    both = rule.key.collective.reduces and rule.key.operators == "any"
    return [
        Trial(rule, nbytes, commutative)
        for nbytes in sizes_of(rule)
        for commutative in ((True, False) if both else (True,))
    ]


def _switched_off(follow: Mapping[str, str]) -> dict[str, str]:
    """No file at all, whatever the environment or a file of parameters says."""
    return {name: "0" for name, switch in follow.items() if switch == "1"}


def _judge(
    rule: Rule, answers: Mapping[Trial, Answer], without: Mapping[Trial, Answer]
) -> RuleProof:
    executed, reasons = dict[int, Choice](), list[str]()
    for trial, answer in answers.items():
        ran = seen(trial.collective, answer)
        if trial.commutative:
            executed[trial.nbytes] = ran or Choice()
        where = f"at {trial.nbytes} bytes" + (
            "" if trial.commutative else ", with an operator that does not commute,"
        )
        if answer.error:
            reasons.append(f"{where} the call failed with MPI error {answer.error}")
        elif rule.choice.is_default:
            reasons += _not_as_without(where, trial, answer, without[trial])
        elif ran is None:
            reasons.append(f"{where} {unseen(answer)}")
        elif ran != normal(trial.collective, rule.choice):
            reasons.append(
                _redirected(trial)
                or f"{where} {ran} ran instead of {normal(trial.collective, rule.choice)}"
            )
    sizes, confirmed = tuple(executed), bool(executed) and not reasons
    told = "; ".join(dict.fromkeys(reasons)) if executed else NO_SIZE
    return RuleProof(rule, sizes, tuple(executed.values()), confirmed, told)


def _not_as_without(where: str, trial: Trial, answer: Answer, without: Answer) -> Iterator[str]:
    """In what a call that is left to the library differs from one without any file."""
    ran, wanted = seen(trial.collective, answer), seen(trial.collective, without)
    if ran is None and wanted is None and trial.rule.key.nodes == 1:
        yield f"{where} {unseen(answer)}, without the file, too"
    elif ran != wanted:
        yield f"{where} {ran or 'another component'} ran instead of {wanted or 'another component'}"
    elif changed := inside(answer) ^ inside(without):
        yield (
            f"{where} han keeps the call, but what it is made of follows the rules, too:"
            f" {', '.join(sorted(changed & inside(answer)) or ['nothing'])} instead of"
            f" {', '.join(sorted(changed & inside(without)) or ['nothing'])}"
        )


def _redirected(trial: Trial) -> str:
    rule = trial.rule
    item = item_of(trial.nbytes)
    return redirected(trial.collective, rule.choice, rule.key.p, trial.nbytes, item)


def _failing(
    rules: Sequence[Rule], follow: Mapping[str, str], starter: Starter, directory: Path
) -> dict[Rule, list[str]]:
    """What is wrong with calls of the rules under the file itself: errors, and what the library
    makes of them in silence.
    """
    trials = [trial for rule in rules for trial in _trials(rule)]
    answers = ask(starter, trials, directory, settings=follow, spare=1)
    found: dict[Rule, list[str]] = {rule: [] for rule in rules}
    for i, trial in enumerate(trials):
        if answers[i].error:
            found[trial.rule].append(
                f"at {trial.nbytes} bytes the call failed with MPI error {answers[i].error}"
            )
        elif reason := _redirected(trial):
            found[trial.rule].append(reason)
    return found


def _unless_broken(proof: RuleProof, reasons: Sequence[str]) -> RuleProof:
    """A rule that is reached is not proved yet where its calls fail or run something else."""
    if not proof.confirmed or not reasons:
        return proof
    return replace(proof, confirmed=False, reason="; ".join(dict.fromkeys(reasons)))


def _by_poison(
    text: str,
    rules: Sequence[Rule],
    starter: Starter,
    directory: Path,
    han_file: Path | None,
    progress: Counted,
) -> list[RuleProof]:
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
        (
            ranks,
            tuple(
                replace(row, algorithm=IMPOSSIBLE) if row.size == starts.get(ranks) else row
                for row in rows
            ),
        )
        for ranks, rows in rules.collectives[number]
    )
    return render(replace(rules, collectives={**rules.collectives, number: entries}))
