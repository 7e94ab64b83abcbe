"""Following a table on one communicator: who makes the call that a rule asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from tuner import libraries
from tuner.algorithms import build
from tuner.collective import Collective
from tuner.errors import TunerError
from tuner.libraries.products import base_of
from tuner.locality import CUDA
from tuner.runtime.agreement import library_name
from tuner.runtime.alone import VARIABLES
from tuner.runtime.devices import cuda, cuda_aware
from tuner.runtime.feedback import Ring
from tuner.runtime.forced import Forced
from tuner.runtime.forcing import Forcing
from tuner.runtime.ladders import METHODS, Action, Ladder, RecordingLadder
from tuner.runtime.layout import layout_of
from tuner.runtime.memory import HOST_MEMORY, DeviceMemory
from tuner.runtime.nccl import Cannot, Nccl, action_of, connect, objection_of
from tuner.runtime.once import warn_once
from tuner.runtime.private import give_back, hold
from tuner.runtime.scheduled import Scheduled
from tuner.runtime.space import Spaces
from tuner.table import LIBRARY, NCCL, OPERATORS, SCHEDULE, Choice, Evidence, Key, Rule, TuningTable

Rules = Mapping[Key, tuple[Rule, ...]]
LONGEST = 1 << 31  # bytes, of what is counted in them; Open MPI counts in C's int


class Following:
    """What a communicator does under a table; made and released by all its ranks together.

    comm        plain, the user's: its own methods are the library's collectives
    memory      whose rules are followed, `host` or `cuda`; the same on every rank
    """

    def __init__(
        self, comm: MPI.Intracomm, table: TuningTable | None, memory: str, ring: Ring | None
    ) -> None:
        self._comm, self._ring = comm, ring
        self.device_memory = DeviceMemory()
        self._on_host, self._on_device = Spaces(HOST_MEMORY), Spaces(self.device_memory)
        self._private = MPI.Intracomm(MPI.COMM_NULL)
        self._forcing: Forcing | None = None
        self._nccl: Nccl | Cannot | None = None
        rules = {} if table is None else applicable(table, comm, memory)
        if any(not rule.choice.is_default for ladder in rules.values() for rule in ladder):
            self._private = hold(comm)
            rules = {} if self._private == MPI.COMM_NULL else self._agreed(rules)
        self._ladders = {
            (key.collective, key.operators): self._ladder(key.collective, ladder)
            for key, ladder in rules.items()
        }

    def ladder(self, collective: Collective, operators: str = "any") -> Ladder:
        """The rules for these calls; where there are none, the library decides."""
        for wanted in (operators, "any"):
            if (collective, wanted) in self._ladders:
                return self._ladders[collective, wanted]
        method: Action = getattr(self._comm, METHODS[collective])
        return Ladder([0], [method], [_direct(method)])

    def announce(self, table: TuningTable | None) -> None:
        """One line of the log of rank 0: whether these ranks have rules."""
        if table is None or self._comm.rank != 0:
            return
        import logging  # not among what `import tuner.runtime` may take time for

        log, size = logging.getLogger("tuner"), self._comm.size
        if self._ladders:
            log.info("tuner: %d ranks follow the table of %s", size, table.cluster.name)
        else:
            log.warning(
                "tuner: the library's own collectives are used: the table has no rules for these"
                " %d ranks", size,
            )  # fmt: skip

    def release(self) -> None:
        """Free requests, their memory and communicators; nothing leads to them any more."""
        for (collective, _), ladder in self._ladders.items():
            method: Action = getattr(self._comm, METHODS[collective])
            ladder.leave(method, _direct(method))
        for spaces in (self._on_host, self._on_device):
            spaces.release()
        if isinstance(self._nccl, Nccl):
            self._nccl.release()
        if self._forcing is not None:
            self._forcing.release()
        give_back(self._private)

    def _agreed(self, rules: Rules) -> Rules:
        """The rules that every rank can follow; the others leave the choice to the library."""
        listed = [rule for ladder in rules.values() for rule in ladder]
        if any(rule.choice.via == NCCL for rule in listed):
            self._nccl = connect(self._private)
        with VARIABLES:
            reasons = [self._objection(rule) for rule in listed]
        able = np.array([not reason for reason in reasons])
        self._private.Allreduce(MPI.IN_PLACE, able, MPI.LAND)
        if not able.all():
            first = int(np.argmin(able))
            told = self._private.gather(reasons[first])
            _tell(told, listed[first], int((~able).sum()))
        left = {id(rule) for rule, kept in zip(listed, able, strict=True) if not kept}
        return {
            key: tuple(replace(r, choice=Choice()) if id(r) in left else r for r in ladder)
            for key, ladder in rules.items()
        }

    def _objection(self, rule: Rule) -> str:
        """Why this rank cannot follow a rule; "" when it can."""
        key, choice = rule.key, rule.choice
        try:
            if choice.via == NCCL:
                return objection_of(self._nccl, key.collective)
            if choice.via == SCHEDULE:
                build(key.collective, choice.algorithm, key.p, nbytes=rule.lo, params=choice.params)
                if key.memory == CUDA and cuda_aware():
                    cuda()  # who has device buffers must be able to reduce them
            elif not choice.is_default:
                if not pays(rule.evidence, self._force.cost):
                    return "it saves less time than forcing it takes"
                return self._library_objection(key, choice)
        except TunerError as reason:
            return str(reason)
        return ""

    def _library_objection(self, key: Key, choice: Choice) -> str:
        library, force = libraries.named(library_name()), self._force
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
            self._forcing = Forcing(base_of(library_name()), self._private)
        return self._forcing

    def _ladder(self, collective: Collective, rules: tuple[Rule, ...]) -> Ladder:
        made = {choice: self._actions(collective, choice) for choice in {r.choice for r in rules}}
        ladder = Ladder(
            [rule.lo for rule in rules],
            [made[rule.choice][0] for rule in rules],
            [made[rule.choice][1] for rule in rules],
        )
        return ladder if self._ring is None else RecordingLadder(ladder, rules, self._ring)

    def _actions(self, collective: Collective, choice: Choice) -> tuple[Action, Action | None]:
        """What a choice means for buffers of the host, and for buffers of a device."""
        method: Action = getattr(self._comm, METHODS[collective])
        if choice.via == NCCL:
            assert isinstance(self._nccl, Nccl)
            act = action_of(self._nccl, collective, method)
            return act, act
        if choice.via == SCHEDULE:
            kinds = [self._on_host]
            if cuda_aware() and not self._staged(collective, choice):
                kinds.append(self._on_device)
            made = [
                Scheduled(self._private, method, collective, choice, spaces) for spaces in kinds
            ]
            return made[0].call, made[1].call if len(made) > 1 else None
        if choice.is_default:
            return method, _direct(method)
        settings = libraries.named(library_name()).settings(collective, choice)
        forced = Forced(self._force, settings, collective)
        return forced, _direct(forced)

    def _staged(self, collective: Collective, choice: Choice) -> bool:
        """Whether device buffers are to go through the host though MPI would take them."""
        return build(collective, choice.algorithm, self._comm.size, params=choice.params).staged


def pays(evidence: Evidence, cost: float) -> bool:
    """Whether a choice saves more than `cost` seconds at every size that speaks for it."""
    times = zip(evidence.default_s, evidence.chosen_s, strict=True)
    return all(default - chosen > cost for default, chosen in times) or cost == 0.0


def applicable(table: TuningTable, comm: MPI.Intracomm, memory: str) -> Rules:
    """The ladders for a communicator of this shape and placement; collective."""
    layout = layout_of(comm)
    if layout is None:
        return {}
    keys = (
        Key(collective, layout.nodes, layout.ppn, memory, operators, layout.placement)
        for collective in Collective
        for operators in OPERATORS
    )
    ladders = {key: table.ladder(key) for key in keys}
    return {
        key: tuple(part for rule in ladder for part in countable(rule))
        for key, ladder in ladders.items() if ladder
    }  # fmt: skip


def countable(rule: Rule) -> tuple[Rule, ...]:
    """The rule, and the library's choice from `LONGEST` on where it would count bytes."""
    choice = rule.choice
    forced = choice.via == LIBRARY and not choice.is_default
    in_bytes = choice.via == SCHEDULE or (forced and not rule.key.collective.reduces)
    if not in_bytes or rule.hi <= LONGEST:
        return (rule,)
    beyond = replace(rule, lo=max(rule.lo, LONGEST), choice=Choice())
    return (replace(rule, hi=LONGEST), beyond) if rule.lo < LONGEST else (beyond,)


def _direct(act: Action) -> Action | None:
    """The library's own code for device buffers: the same, where it takes them."""
    return act if cuda_aware() else None


def _tell(reasons: list[str] | None, rule: Rule, number: int) -> None:
    """One line in the log of rank 0: which rules are not followed, and why the first is not."""
    if reasons is None:
        return
    rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason)
    warn_once(
        f"tuner: {number} rules are left to the library; the first of them,"
        f" {rule.key.collective} {rule.choice}: rank {rank}: {reason}"
    )
