"""Which rules of a table the ranks of a communicator follow: all of them the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from tuner import mpi_libraries
from tuner.algorithms import build
from tuner.base.arrays import IntArray
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA
from tuner.core.table import (
    LIBRARY,
    NCCL,
    OPERATORS,
    SCHEDULE,
    Choice,
    Evidence,
    Key,
    Rule,
    TuningTable,
)
from tuner.mpi_libraries.products import base_of
from tuner.runtime.agreement import library_name
from tuner.runtime.algorithm_control import Forcing
from tuner.runtime.backend import Backend
from tuner.runtime.collective_lock import VARIABLES
from tuner.runtime.comm_layout import Layout, layout_on
from tuner.runtime.consensus import Consensus, reason_of
from tuner.runtime.device_protocol import cuda, cuda_messages
from tuner.runtime.log import inform, warn, warn_once
from tuner.runtime.nccl import Cannot, Nccl, objection_of

Rules = Mapping[Key, tuple[Rule, ...]]
LONGEST = 1 << 31  # bytes, of what is counted in them; Open MPI counts in C's int


class Steps(NamedTuple):
    """The rules of one key in ascending size.

    bounds      where each rule begins, bytes, ascending from 0
    choices     different ones
    places      of each rule's choice among them
    """

    bounds: list[int]
    choices: list[Choice]
    places: list[int]
    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, rules: tuple[Rule, ...]) -> Steps:
        """Number the choices of the rules."""
        numbers: dict[Choice, int] = {}
        places = [numbers.setdefault(rule.choice, len(numbers)) for rule in rules]
        return cls([rule.lo for rule in rules], list(numbers), places, rules)


@dataclass(frozen=True)
class Policy:
    """The rules that all ranks of a group follow, for every communicator of that group."""

    steps: Mapping[tuple[Collective, str], Steps] = field(default_factory=dict)

    def steps_of(self, collective: Collective, operators: str) -> Steps | None:
        """Return the rules for these calls; None where the library decides."""
        return self.steps.get((collective, operators)) or self.steps.get((collective, "any"))

    @cached_property
    def departs(self) -> bool:
        """Whether any rule asks for something else than the library's own choice."""
        return any(
            not choice.is_default for steps in self.steps.values() for choice in steps.choices
        )


NO_RULES = Policy()


def judge(
    consensus: Consensus,
    table: TuningTable | None,
    memory: str,
    nodes: IntArray | None,
    backend: Backend,
) -> Policy:
    """Return the rules for a communicator that all its ranks can follow; collective.

    memory      whose rules are followed, `host` or `cuda`; the same on every rank
    nodes       of its ranks, see `nodes_of`; None for no table
    backend     what carries out the rules for this communicator
    """
    layout = None if nodes is None else layout_on(nodes)
    if table is None or layout is None:
        return NO_RULES
    rules = applicable(table, layout, memory)
    if any(not rule.choice.is_default for ladder in rules.values() for rule in ladder):
        rules = _Judge(consensus, backend).agreed(rules)
    return Policy({(key.collective, key.operators): Steps.of(kept) for key, kept in rules.items()})


def announce(policy: Policy, table: TuningTable | None, comm: MPI.Intracomm) -> None:
    """Write one line in the log of rank 0: whether these ranks have rules."""
    if table is None or comm.rank != 0:
        return
    if policy.steps:
        inform(f"tuner: {comm.size} ranks follow the table of {table.cluster.name}")
    else:
        warn(
            "tuner: the library's own collectives are used: the table has no rules for these"
            f" {comm.size} ranks"
        )


class _Judge:
    """Finds out which rules every rank can follow."""

    def __init__(self, consensus: Consensus, backend: Backend) -> None:
        self._consensus, self._backend = consensus, backend
        self._nccl: Nccl | Cannot | None = None
        self._forcing: Forcing | None = None

    def agreed(self, rules: Rules) -> Rules:
        """Return the rules, those that some rank cannot follow left to the library; collective."""
        listed = [rule for ladder in rules.values() for rule in ladder]
        if any(rule.choice.via == NCCL for rule in listed):
            self._nccl = self._backend.connected(self._consensus)
        with VARIABLES:
            reasons = [self._objection(rule) for rule in listed]
        left = {id(rule) for rule in self._refused(listed, reasons)}
        return {
            key: tuple(replace(r, choice=Choice()) if id(r) in left else r for r in ladder)
            for key, ladder in rules.items()
        }

    def _refused(self, listed: Sequence[Rule], reasons: Sequence[str]) -> list[Rule]:
        """The rules against which any rank has a reason."""
        comm, able = self._consensus.comm, np.array([not reason for reason in reasons])
        self._consensus.check()
        comm.Allreduce(MPI.IN_PLACE, able, MPI.LAND)
        if able.all():
            return []
        first = int(np.argmin(able))
        told = comm.gather(reasons[first])
        _tell(told, listed[first], int((~able).sum()))
        return [rule for rule, kept in zip(listed, able, strict=True) if not kept]

    def _objection(self, rule: Rule) -> str:
        """Why this rank cannot follow a rule; "" when it can."""
        key, choice = rule.key, rule.choice
        try:
            if choice.via == NCCL:
                return objection_of(self._nccl, key.collective)
            if choice.via == SCHEDULE:
                build(key.collective, choice.algorithm, key.p, nbytes=rule.lo, params=choice.params)
                if key.memory == CUDA and cuda_messages():
                    cuda()  # who has device buffers must be able to reduce them
            elif not choice.is_default:
                if not pays(rule.evidence, self._force.cost):
                    return "it saves less time than forcing it takes"
                return self._library_objection(key, choice)
        except Exception as failure:  # noqa: BLE001 - such a rule is left to the library
            return reason_of(failure)
        return ""

    def _library_objection(self, key: Key, choice: Choice) -> str:
        library, force = mpi_libraries.named(library_name()), self._force
        if key.operators == "any" and not library.order_safe(key.collective, choice):
            return "this algorithm is for operators that commute"
        reason: str = library.decided_elsewhere(key.collective, force.read)
        if reason:
            return reason
        force.try_out(library.settings(key.collective, choice))
        return ""

    @property
    def _force(self) -> Forcing:
        if self._forcing is None:
            self._forcing = Forcing(base_of(library_name()), self._consensus.comm)
        return self._forcing


def pays(evidence: Evidence, cost: float) -> bool:
    """Whether a choice saves more than `cost` seconds at every size that speaks for it."""
    times = zip(evidence.default_s, evidence.chosen_s, strict=True)
    return all(default - chosen > cost for default, chosen in times) or cost == 0.0


def applicable(table: TuningTable, layout: Layout, memory: str) -> Rules:
    """Return the ladders for a communicator of this shape and placement."""
    keys = (
        Key(collective, layout.nodes, layout.ppn, memory, operators, layout.placement)
        for collective in Collective
        for operators in OPERATORS
    )
    ladders = {key: table.ladder(key) for key in keys}
    return {
        key: tuple(part for rule in ladder for part in countable(rule))
        for key, ladder in ladders.items()
        if ladder
    }


def countable(rule: Rule) -> tuple[Rule, ...]:
    """The rule, and the library's choice from `LONGEST` on where it would count bytes."""
    choice = rule.choice
    forced = choice.via == LIBRARY and not choice.is_default
    in_bytes = choice.via == SCHEDULE or (forced and not rule.key.collective.reduces)
    if not in_bytes or rule.hi <= LONGEST:
        return (rule,)
    beyond = replace(rule, lo=max(rule.lo, LONGEST), choice=Choice())
    return (replace(rule, hi=LONGEST), beyond) if rule.lo < LONGEST else (beyond,)


def _tell(reasons: list[str] | None, rule: Rule, number: int) -> None:
    """One line in the log of rank 0: which rules are not followed, and why the first is not."""
    if reasons is None:
        return
    rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason)
    warn_once(
        f"tuner: {number} rules are left to the library; the first of them,"
        f" {rule.key.collective} {rule.choice}: rank {rank}: {reason}"
    )
