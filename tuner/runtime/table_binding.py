"""The selection of the rules of a table that all ranks of a communicator can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from mpi4py import MPI

from tuner import mpi_libraries
from tuner.algorithms import build
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA
from tuner.core.table import NCCL, OPERATORS, SCHEDULE, AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.mpi_libraries.followed_rules import default_seconds, is_worth_forcing, split_at_limits
from tuner.mpi_libraries.products import base_of
from tuner.runtime.accesses import TUNED_COLLECTIVES
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import AlgorithmControl
from tuner.runtime.backend import Backend
from tuner.runtime.collective_lock import VARIABLES_LOCK
from tuner.runtime.comm_layout import CommLayout, NodePlaces
from tuner.runtime.consensus import Consensus, error_message
from tuner.runtime.cuda_support import cuda_device, has_cuda_messages
from tuner.runtime.log import inform, warn, warn_once
from tuner.runtime.nccl import NcclComm, Unavailable, unsupported_reason

RulesByKey = Mapping[RuleKey, tuple[Rule, ...]]
THREADS_REASON = (
    "its variables would apply to the calls of all threads, and MPI was started for several"
    " (MPI_THREAD_MULTIPLE): where one thread at a time calls MPI, start the program with"
    " MPI4PY_RC_THREAD_LEVEL=serialized, or by `python -m tuner.run --thread-level serialized`"
)


@dataclass(frozen=True, eq=False)
class SizeRules:
    """The rules of one key in ascending size.

    bounds          first size of each rule, bytes, ascending from 0
    choices         the distinct algorithm choices
    choice_indices  index into `choices` for each rule
    rules           the rules themselves; empty for the library default
    """

    bounds: list[int]
    choices: list[AlgorithmChoice]
    choice_indices: list[int]
    rules: tuple[Rule, ...]

    @classmethod
    def from_rules(cls, rules: tuple[Rule, ...]) -> SizeRules:
        numbers: dict[AlgorithmChoice, int] = {}
        places = [numbers.setdefault(rule.choice, len(numbers)) for rule in rules]
        return cls([rule.start_bytes for rule in rules], list(numbers), places, rules)

    @cached_property
    def left_to_library(self) -> SizeRules:
        """The same ranges of sizes with the library default for each."""
        return SizeRules.from_rules(
            tuple(replace(rule, choice=AlgorithmChoice()) for rule in self.rules)
        )

    @cached_property
    def library_seconds(self) -> list[float]:
        """The least time in seconds that the library takes for a call of each rule.

        It is 0 where the rule leaves the call to the library.
        """
        return [0.0 if rule.choice.is_default else default_seconds(rule) for rule in self.rules]


@dataclass(frozen=True)
class AgreedRules:
    """The rules that all ranks of a group follow, for every communicator of that group."""

    by_call: Mapping[tuple[Collective, str], SizeRules] = field(default_factory=dict)

    def rules_for(self, collective: Collective, operators: str) -> SizeRules | None:
        """Return the rules for these calls; None where the library decides.

        operators   `commutative` or `any`; rules for `any` operator also hold for commutative ones
        """
        return self.by_call.get((collective, operators)) or self.by_call.get((collective, "any"))

    @classmethod
    def from_rules(cls, rules: RulesByKey) -> AgreedRules:
        return cls(
            {
                (key.collective, key.operators): SizeRules.from_rules(kept)
                for key, kept in rules.items()
            }
        )

    @cached_property
    def has_tuned_rule(self) -> bool:
        """Return whether any rule names an algorithm choice other than the library default."""
        return any(
            not choice.is_default for steps in self.by_call.values() for choice in steps.choices
        )


class ShapeRules:
    """The rules of a table for the communicators that derive from one, by their layout.

    memory      kind of memory whose rules are followed, `host` or `cuda`; the same on every rank
    places      the nodes of the ranks
    """

    def __init__(self, table: TuningTable, memory: str, places: NodePlaces) -> None:
        self._table, self._memory, self.places = table, memory, places
        self.tuned_sizes = {  # numbers of ranks for which some rule departs from the library
            rule.key.p
            for rule in table.rules
            if replace(rule.key, memory=memory) == rule.key and not rule.choice.is_default
        }
        self._candidates: dict[CommLayout | None, AgreedRules] = {None: NO_RULES}

    def matching(self, comm: MPI.Intracomm) -> RulesByKey:
        """Return the rules for the layout of a communicator. Local."""
        layout = self.places.layout(comm)
        return {} if layout is None else matching_rules(self._table, layout, self._memory)

    def candidates(self, comm: MPI.Intracomm) -> AgreedRules:
        """Return the same, kept for each layout: those that hold unless a rank objects. Local."""
        layout = self.places.layout(comm)
        if layout not in self._candidates:
            self._candidates[layout] = AgreedRules.from_rules(self.matching(comm))
        return self._candidates[layout]


NO_RULES = AgreedRules()


def agree_on_rules(consensus: Consensus, rules: RulesByKey, backend: Backend) -> AgreedRules:
    """Return the rules for a communicator that all its ranks can follow; collective.

    rules       the rules for the layout of the communicator, the same on every rank
    backend     runs the algorithm choices for this communicator
    """
    if any(not rule.choice.is_default for rule_list in rules.values() for rule in rule_list):
        rules = _RuleChecker(consensus, backend).agree(rules)
    return AgreedRules.from_rules(rules)


def log_status(rules: AgreedRules, table: TuningTable | None, comm: MPI.Intracomm) -> None:
    """Log on rank 0, in one line, whether the table has rules for these ranks."""
    if table is None or comm.rank != 0:
        return
    if rules.by_call:
        inform(f"tuner: {comm.size} ranks follow the table of {table.cluster.name}")
    else:
        warn(
            "tuner: the library's own collectives are used: the table has no rules for these"
            f" {comm.size} ranks"
        )


class _RuleChecker:
    """A collective check of which rules every rank can follow."""

    def __init__(self, consensus: Consensus, backend: Backend) -> None:
        self._consensus, self._backend = consensus, backend
        self._nccl: NcclComm | Unavailable | None = None
        self._cached_control: AlgorithmControl | None = None

    def agree(self, rules: RulesByKey) -> RulesByKey:
        """Return the rules, with the library default where some rank cannot follow; collective."""
        listed = [rule for rule_list in rules.values() for rule in rule_list]
        if any(rule.choice.runner == NCCL for rule in listed):
            self._nccl = self._backend.connect_nccl(self._consensus)
        with VARIABLES_LOCK:
            reasons = [self._objection(rule) for rule in listed]
        left = {id(rule) for rule in self._rejected_rules(listed, reasons)}
        return {
            key: tuple(
                replace(r, choice=AlgorithmChoice()) if id(r) in left else r for r in rule_list
            )
            for key, rule_list in rules.items()
        }

    def _rejected_rules(self, rules: Sequence[Rule], reasons: Sequence[str]) -> list[Rule]:
        """Return the rules to which any rank objects and log the first reason; collective."""
        comm, able = self._consensus.comm, np.array([not reason for reason in reasons])
        self._consensus.check()
        comm.Allreduce(MPI.IN_PLACE, able, MPI.LAND)
        if able.all():
            return []
        first = int(np.argmin(able))
        told = comm.gather(reasons[first])
        _log_rejected(told, rules[first], int((~able).sum()))
        return [rule for rule, kept in zip(rules, able, strict=True) if not kept]

    def _objection(self, rule: Rule) -> str:
        """Return why this rank cannot follow a rule; "" when it can."""
        key, choice = rule.key, rule.choice
        try:
            if choice.runner == NCCL:
                return unsupported_reason(self._nccl, key.collective)
            if choice.runner == SCHEDULE:
                build(
                    key.collective,
                    choice.algorithm,
                    key.p,
                    nbytes=rule.start_bytes,
                    params=choice.params,
                )
                if key.memory == CUDA and has_cuda_messages():
                    cuda_device()  # raises where device buffers cannot be reduced
            elif not choice.is_default:
                if not is_worth_forcing(rule.evidence, self._control.call_overhead_s):
                    return "it saves less time than forcing it takes"
                return self._library_objection(key, choice)
        except Exception as failure:  # noqa: BLE001 - such a rule is left to the library
            return error_message(failure)
        return ""

    def _library_objection(self, key: RuleKey, choice: AlgorithmChoice) -> str:
        library, force = mpi_libraries.library_module(library_name()), self._control
        if key.operators == "any" and not library.preserves_operand_order(key.collective, choice):
            return "this algorithm is for operators that commute"
        settings = library.settings(key.collective, choice)
        if force.writes_at_calls(settings) and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            return THREADS_REASON
        for guard in library.guards(key.collective):
            reason: str = guard.objection(force.read_variable(guard.variable))
            if reason:
                return reason
        force.check_settings(settings)
        return ""

    @property
    def _control(self) -> AlgorithmControl:
        if self._cached_control is None:
            self._cached_control = AlgorithmControl(base_of(library_name()), self._consensus.comm)
        return self._cached_control


def matching_rules(table: TuningTable, layout: CommLayout, memory: str) -> RulesByKey:
    """Return the rules by key for a communicator of this shape and placement."""
    keys = (
        RuleKey(collective, layout.nodes, layout.ppn, memory, operators, layout.placement)
        for collective in TUNED_COLLECTIVES
        for operators in OPERATORS
    )
    rule_lists = {key: table.rules_for(key) for key in keys}
    return {
        key: tuple(part for rule in rule_list for part in split_at_limits(rule, table.library))
        for key, rule_list in rule_lists.items()
        if rule_list
    }


def _log_rejected(reasons: list[str] | None, rule: Rule, n_rejected: int) -> None:
    """Log on rank 0, in one line, how many rules are not followed and why the first is not.

    reasons     objection of each rank to the first rule; None on other ranks than rank 0
    """
    if reasons is None:
        return
    rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason)
    warn_once(
        f"tuner: {n_rejected} rules are left to the library; the first of them,"
        f" {rule.key.collective} {rule.choice}: rank {rank}: {reason}"
    )
