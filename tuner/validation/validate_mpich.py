"""Start a real MPICH under collective selection files, and validate them by fault injection.

The prebuilt library does not report what it runs. But a leaf that names another collective's
algorithm aborts the program with a message, so one launch per rule shows that exactly its calls
reach its leaf. A rule's leaf is in the MPIR layer's file. Where the device layer has a file, too,
faults for default rules are injected there, since that layer answers them first. Ranks may also die
for other reasons, which would prove nothing: one launch before these shows that all calls succeed
under the files themselves.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats.mpich import device, emitter
from tuner.formats.mpich.branches import RuleToLeaf, is_restricted, merge_into_generic
from tuner.formats.mpich.default_algorithms import find_default_algorithms
from tuner.formats.mpich.emitter import drop_inexpressible
from tuner.formats.mpich.generic import GenericTrees, read_generic_trees
from tuner.formats.mpich.layers import DEVICE, MPIR
from tuner.formats.mpich.selection import CselCall, Leaf, Tree
from tuner.formats.registry import ExportOptions
from tuner.formats.rules_by_ranks import all_rule_lists
from tuner.launch import Launcher, MultiHostLauncher, loaded_libmpi
from tuner.mpi_libraries import require_no_override
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, PlacedCollective
from tuner.mpi_libraries.mpich import DECIDED_ALGORITHMS, DEVICE_COLLECTIVES, OVERRIDING_PATTERN
from tuner.mpi_libraries.products import MPICH
from tuner.mpi_libraries.profiles import PROFILES
from tuner.topology import CUDA
from tuner.validation.timing import LaunchOptions
from tuner.validation.validation import (
    NO_CALL_SIZE,
    RankStarter,
    RuleValidation,
    ValidationCall,
    element_bytes_of,
    empty_call_failures,
    run_calls,
    run_until_crash,
    validation_sizes,
)

# The message of a rank that reaches an algorithm of another collective (mpir_coll.c of 5.0.2,
# the collective's own file in 3.4), or a composition of one (ch4_coll.h of both).
FAULT_MESSAGE = re.compile(
    r"Assertion failed in file \S*src/(mpi/coll/\S+\.c|mpid/ch4/src/ch4_coll\.h) at line \d+: 0\b"
)
# Number of calls on a communicator before the device layer uses shared memory. Until then it sends
# its own calls through the MPIR layer, where they would reach a faulty leaf although no rule handed
# them on. Setting up shared memory takes calls of the library's own, which also ask the device
# layer.
SHARED_MEMORY_THRESHOLD_VARIABLE = "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD"
NO_THRESHOLD, MAX_THRESHOLD = "0", "2147483647"
UNEXPLAINED = (
    "the ranks ended or fell silent, and MPICH did not say that it was at an impossible leaf"
)
MAX_LAUNCHES = 3  # to get two with the same outcome
LARGE_CALL_BYTES = 4096  # more than MPICH itself sends while it creates a communicator
INCONSISTENT = "three launches under the same file ended differently"
DEVICE_LAYER_DISABLED = (
    f"this MPICH has no device layer that reads a tuning file ({DEVICE.variable}):"
    f" its table is used with {DEVICE_COLLECTIVES}=none, which switches such a layer off for all"
    " calls, also those without rules"
)
FAILED_IN_SETUP = "the ranks end while their communicator is made, before the rule's own call"


def activation(tuning_file: Path, device_file: Path | None = None) -> dict[str, str]:
    """Return the control variables under which MPICH follows the MPIR layer's file.

    device_file     file of the device layer; None where the library reads none: the device layer,
                    which would answer first, is then switched off
    """
    first = (
        {DEVICE_COLLECTIVES: "none"}
        if device_file is None
        else {DEVICE.variable: str(device_file.resolve())}
    )
    return {**first, MPIR.variable: str(tuning_file.resolve())}


class Mpich:
    """MPICH as a library that follows tables; see `tuner/validation/libraries.py`."""

    profile = PROFILES[MPICH]

    def unsupported_reason(self, library: str) -> str:
        return ""

    def validate(
        self,
        table: TuningTable,
        file: Path,
        starter: Launcher | MultiHostLauncher,
        directory: Path,
        options: ExportOptions,
        progress: ProgressCallback,
    ) -> list[RuleValidation]:
        kept, _ = drop_inexpressible(table)
        trees = self._trees(starter.python)
        beside = _existing_device_file(file)
        made = validate(
            kept, file, trees, starter, directory, device_file=beside, progress=progress
        )
        return [validation for validation in made if validation.rule in table.rules]

    def write_further_file(
        self, table: TuningTable, file: Path, python: Path, *, commutative_only: bool = False
    ) -> None:
        own = self._trees(python).device
        beside = device.device_file_path(file)
        if own is None:
            beside.unlink(missing_ok=True)
            return
        kept, _ = drop_inexpressible(table.held_by_files())
        write_atomically(beside, device.emit(kept, own))

    def activation(self, file: Path) -> LaunchOptions:
        return LaunchOptions(environment=activation(file, _existing_device_file(file)))

    def limitation(self, python: Path) -> str:
        return "" if self._trees(python).device is not None else DEVICE_LAYER_DISABLED

    def find_defaults(
        self, starter: MultiHostLauncher, calls: Sequence[PlacedCollective], max_bytes: int
    ) -> tuple[DefaultAlgorithms, ...]:
        return find_default_algorithms(self._trees(starter.python), calls, max_bytes)

    def default_choices(
        self, launcher: Launcher, key: RuleKey, sizes: Sequence[int]
    ) -> Iterator[AlgorithmChoice | None]:
        """Read the rules in the library; its choices for buffers in GPU memory are not known."""
        call = (key.collective, key.nodes, key.ppn, key.placement)
        known = key.collective in DECIDED_ALGORITHMS and key.memory != CUDA
        found = _own_algorithms(launcher.libmpi(), call) if known else None
        return (found.choice_at(nbytes) if found else None for nbytes in sizes)

    def decides_alike(self, library: str, installed: str, nodes: int) -> bool:
        return library == installed

    def _trees(self, python: Path) -> GenericTrees:
        return read_generic_trees(loaded_libmpi(self.profile.name, python))


LIBRARY = Mpich()
_generic_trees = lru_cache(read_generic_trees)


@cache
def _own_algorithms(libmpi: Path, call: PlacedCollective) -> DefaultAlgorithms:
    """Return what a library runs by itself in calls of any size."""
    (found,) = find_default_algorithms(_generic_trees(libmpi), [call], sys.maxsize)
    return found


def _existing_device_file(file: Path) -> Path | None:
    beside = device.device_file_path(file)
    return beside if beside.is_file() else None


def validate(
    table: TuningTable,
    tuning_file: Path,
    trees: GenericTrees,
    starter: RankStarter,
    directory: Path,
    *,
    device_file: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> list[RuleValidation]:
    """Run every rule of the table in the real library.

    trees           the library's own
    device_file     file of the device layer; None: that layer is switched off

    There is one launch under the files themselves, then one for each rule, on one of the shapes
    that have the same number of ranks and so share a leaf. Each launch has its own timeout
    (`run_calls`, `run_until_crash`). Where ranks fail for a reason other than the injected fault,
    the remaining rules are not confirmed, and say so.

    Raises InputError when a file is not that of the table or a variable overrides it, ProbeError
    when the ranks do not survive the files themselves.
    """
    require_no_override(OVERRIDING_PATTERN)
    trees = trees if device_file is not None else replace(trees, device=None)
    _require_same_file(tuning_file, table, trees.mpir, emitter.check)
    if device_file is not None and trees.device is not None:
        _require_same_file(device_file, table, trees.device, device.check)
    trials, lost = _all_calls(table), ""
    poisons = _FaultInjector(table, tuning_file, device_file, trees, starter, directory)
    failed = poisons.failing_rules(trials)
    rules = [rule for rule_list in _all_rule_lists(table) for rule in rule_list]
    validations = list[RuleValidation]()
    for rule in rules:
        alike = _same_leaf(rule, (validation.rule for validation in validations))
        if not validation_sizes(rule):
            validations.append(RuleValidation.skipped(rule, NO_CALL_SIZE))
        elif rule in failed:
            validations.append(failed[rule])
        elif alike:
            validations.append(replace(validations[rules.index(alike[0])], rule=rule))
        elif lost:
            validations.append(RuleValidation.skipped(rule, lost))
        else:
            validation, lost = _try_rule(rule, trials, poisons)
            validations.append(validation)
        progress(len(validations), len(rules))
    return validations


def _try_rule(
    rule: Rule, trials: Sequence[ValidationCall], injector: _FaultInjector
) -> tuple[RuleValidation, str]:
    """Return the validation of a rule, and why those after it cannot be tried, or empty."""
    try:
        return _validate_rule(rule, trials, injector), ""
    except ProbeError as reason:
        lost = f"not tried: {reason}"
        return RuleValidation.skipped(rule, lost), lost


def _require_same_file(
    file: Path,
    table: TuningTable,
    generic: Tree,
    check: Callable[[TuningTable, str, Tree], list[str]],
) -> None:
    differences = check(table, file.read_text(encoding="utf-8"), generic)
    if differences:
        raise InputError(f"{file}: not the file of this table: {differences[0]}")


def _all_calls(table: TuningTable) -> list[ValidationCall]:
    """Return calls for the rules of every key, with an operator that each rule list is for."""
    commutative = list(all_rule_lists(table, "commutative"))
    return [
        ValidationCall(rule, nbytes, rule_list in commutative)
        for rule_list in _all_rule_lists(table)
        for rule in rule_list
        for nbytes in validation_sizes(rule)
    ]


def _all_rule_lists(table: TuningTable) -> list[tuple[Rule, ...]]:
    """Return the rule lists for both classes of operators, without duplicates."""
    return list(dict.fromkeys([*all_rule_lists(table), *all_rule_lists(table, "commutative")]))


def _same_leaf(rule: Rule, rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules for the same number of ranks, which the file does not tell apart."""

    def place(one: Rule) -> tuple[object, ...]:
        return one.key.collective, one.key.p, one.key.operators, one.start_bytes

    return [one for one in rules if place(one) == place(rule)]


def _representative_call(rule: Rule, all_calls: Sequence[ValidationCall]) -> ValidationCall:
    """Return a call that the rule applies to.

    The rule's restrictions may leave calls of small counts to the library.
    """
    mine = [t for t in all_calls if t.rule == rule]
    calls = ((t, CselCall(rule.key.p, t.nbytes, element_bytes_of(t.nbytes))) for t in mine)
    return next((t for t, call in calls if not is_restricted(rule, call)), mine[0])


def _enlarge(own: ValidationCall) -> ValidationCall:
    """Return the call with more bytes than the library's own calls have, if the rule allows it."""
    rule, large = own.rule, int(min(own.rule.stop_bytes - 1, LARGE_CALL_BYTES))
    call = CselCall(rule.key.p, large, element_bytes_of(large))
    return own if large < own.nbytes or is_restricted(rule, call) else replace(own, nbytes=large)


@dataclass(frozen=True)
class _FaultOutcome:
    """The outcome of a launch with faults.

    has_started     whether its communicators were made
    n_answered      number of calls that were answered
    n_calls         number of calls that were to be made
    fault_reported  whether MPICH reported that it reached a faulty leaf
    """

    has_started: bool
    n_answered: int
    n_calls: int
    fault_reported: bool

    @property
    def is_unexplained(self) -> bool:
        """Return whether it ended early for an unknown reason."""
        return self.n_answered < self.n_calls and not self.fault_reported

    @property
    def failed_in_setup(self) -> bool:
        """Return whether the library reached the fault while it created a communicator."""
        return self.fault_reported and not self.has_started

    @property
    def is_early(self) -> bool:
        """Return whether a call before the last one reached the fault."""
        return self.fault_reported and self.has_started and self.n_answered < self.n_calls - 1


@dataclass(frozen=True)
class _FaultInjector:
    """Starts launches under the files as they are, and with faults injected.

    The library calls collectives on all ranks while it starts. A spare rank makes their number
    differ from that of the rules.
    """

    table: TuningTable
    tuning_file: Path
    device_file: Path | None
    trees: GenericTrees
    starter: RankStarter
    directory: Path

    def failing_rules(self, calls: Sequence[ValidationCall]) -> Mapping[Rule, RuleValidation]:
        """Return the rules whose calls fail under the files themselves.

        Raises ProbeError where ranks die in calls with data.
        """
        settings = activation(self.tuning_file, self.device_file)
        answers = run_calls(self.starter, calls, self.directory, settings=settings, spare_ranks=1)
        rules = dict.fromkeys(trial.rule for trial in calls)
        empty = empty_call_failures(self.starter, rules, self.directory, settings=settings)
        return {
            **{rule: RuleValidation(rule, (0,), (), False, why) for rule, why in empty.items()},
            **{
                trial.rule: RuleValidation(
                    trial.rule,
                    (trial.nbytes,),
                    (),
                    False,
                    f"a call of {trial.nbytes} bytes fails with MPI error class"
                    f" {answers[n].error_class}",
                )
                for n, trial in enumerate(calls)
                if answers[n].error_class
            },
        }

    def run_with_faults(
        self,
        faulty: Collection[Rule],
        calls: Sequence[ValidationCall],
        only_bytes: int | None = None,
    ) -> _FaultOutcome:
        """Return the outcome of a launch with these calls.

        faulty      rules into which the fault is injected
        only_bytes  size of the calls for which it is injected; None for all sizes of the rules
        """
        table = self.table
        if only_bytes is not None:
            cut = {rule: _split_at(rule, only_bytes) for rule in faulty}
            rules = tuple(piece for rule in table.rules for piece in cut.get(rule, [rule]))
            table = TuningTable(table.cluster, table.library, rules)
            faulty = [
                piece
                for pieces in cut.values()
                for piece in pieces
                if piece.start_bytes == only_bytes
            ]
        settings = self._inject_faults(table, faulty)
        met = run_until_crash(self.starter, calls, self.directory, settings=settings, spare_ranks=1)
        said = FAULT_MESSAGE.search(met.stderr) is not None
        return _FaultOutcome(met.has_started, met.n_answered, len(calls), said)

    def _inject_faults(self, table: TuningTable, faulty: Collection[Rule]) -> dict[str, str]:
        """Write files with faults in these rules; return the settings that activate them."""
        path, own = self.directory / "poisoned.json", self.trees.device
        left = [rule for rule in faulty if own is not None and rule.choice.is_default]
        named = [rule for rule in faulty if rule not in left]
        leaf_of = _with_fault(emitter.leaf_for_rule, emitter.FAULT_LEAF, named)
        write_atomically(path, json.dumps(merge_into_generic(table, self.trees.mpir, leaf_of)))
        if own is None:
            return activation(path)
        leaf_of = _with_fault(device.rule_to_leaf(own), device.FAULT_LEAF, left)
        write_atomically(
            device.device_file_path(path), json.dumps(merge_into_generic(table, own, leaf_of))
        )
        before = MAX_THRESHOLD if left else NO_THRESHOLD
        return {
            **activation(path, device.device_file_path(path)),
            SHARED_MEMORY_THRESHOLD_VARIABLE: before,
        }


def _with_fault(leaf_of: RuleToLeaf, fault: Leaf, faulty: Collection[Rule]) -> RuleToLeaf:
    return lambda rule: fault if rule in faulty else leaf_of(rule)


def _split_at(rule: Rule, nbytes: int) -> list[Rule]:
    """Return the rule in pieces, one of which is for exactly `nbytes`."""
    edges = sorted({rule.start_bytes, nbytes, nbytes + 1, rule.stop_bytes})
    return [replace(rule, start_bytes=int(lo), stop_bytes=hi) for lo, hi in pairwise(edges)]


def _validate_rule(
    rule: Rule, all_calls: Sequence[ValidationCall], injector: _FaultInjector
) -> RuleValidation:
    here = [t for t in all_calls if t.rule.key.p == rule.key.p]
    alike = _same_leaf(rule, (t.rule for t in here))
    neighbours = [t for t in here if t.rule not in alike]
    own = _representative_call(rule, all_calls)
    calls = [*neighbours, own]
    expected = _FaultOutcome(True, len(neighbours), len(calls), True)
    ended = _reproducible_outcome(expected, lambda: injector.run_with_faults(alike, calls))
    if ended is None:
        return RuleValidation.skipped(rule, INCONSISTENT)
    if ended.failed_in_setup or (ended.is_early and injector.trees.device is not None):
        # Creating a communicator or setting up its shared memory reaches this rule, too: inject the
        # fault only for the size of the rule's own call.
        own = _enlarge(own)
        calls = [*neighbours, own]
        ended = _reproducible_outcome(
            expected, lambda: injector.run_with_faults(alike, calls, own.nbytes)
        )
        if ended is None:
            return RuleValidation.skipped(rule, INCONSISTENT)
    if ended.failed_in_setup:
        return RuleValidation.skipped(rule, FAILED_IN_SETUP)
    if ended.is_unexplained:
        injector.failing_rules([own])  # raises ProbeError if the file is not the reason
        return RuleValidation.skipped(rule, UNEXPLAINED)
    reason = _misrouted_call(ended, neighbours, own)
    executed = AlgorithmChoice() if reason else rule.choice
    return RuleValidation(rule, (own.nbytes,), (executed,), not reason, reason)


def _reproducible_outcome(
    expected: _FaultOutcome, launch: Callable[[], _FaultOutcome]
) -> _FaultOutcome | None:
    """Return the expected outcome once it occurs, else the first that occurs twice.

    None if no outcome does. A lost or busy host ends a launch early, too, but rarely twice in the
    same way.
    """
    seen: list[_FaultOutcome] = []
    while len(seen) < MAX_LAUNCHES:
        ended = launch()
        if ended in [*seen, expected]:
            return ended
        seen.append(ended)
    return None


def _misrouted_call(
    ended: _FaultOutcome, neighbours: Sequence[ValidationCall], own: ValidationCall
) -> str:
    """Return which call did not go where it should under the rule's fault; "" if all did."""
    if ended.n_answered > len(neighbours):
        return f"a call of {own.nbytes} bytes does not reach this rule"
    if ended.n_answered < len(neighbours):
        stray = neighbours[ended.n_answered]
        return (
            f"a call of {stray.nbytes} bytes, which belongs to the rule from"
            f" {stray.rule.start_bytes} bytes on, reaches this rule too"
        )
    return ""
