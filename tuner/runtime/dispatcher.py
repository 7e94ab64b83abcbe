"""The communicator whose collectives follow a tuning table.

It is a communicator of mpi4py like the one it was made from, and every method that is not named
here is mpi4py's own. All ranks have the same table, so all choose alike; where the table says
nothing, and wherever anything is in doubt, the library's own collective runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from mpi4py import MPI

from tuner.base.arrays import IntArray
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA, HOST
from tuner.core.table import OPERATORS, TuningTable
from tuner.runtime import fast_path, log
from tuner.runtime.agreement import NO_TABLE, TableAgreement, agree_on_table, library_name
from tuner.runtime.backend import Backend
from tuner.runtime.comm_layout import node_ids_of, node_ids_within
from tuner.runtime.comm_types import CommAlias, cast_comm
from tuner.runtime.consensus import Consensus, attempt, attempt_all, run_together
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.dispatch_pool import DispatchPool
from tuner.runtime.dispatch_table import METHODS
from tuner.runtime.feedback import CallRing, post_feedback
from tuner.runtime.methods import CollectiveMethods
from tuner.runtime.table_binding import NO_RULES, AgreedRules, agree_on_rules, log_status
from tuner.runtime.table_source import TableRequest, resolve_request, working_directory
from tuner.runtime.tally import CallTally

DERIVING_METHODS = (  # what makes a communicator of this one; it follows the same table
    "Dup",
    "Dup_with_info",
    "Clone",
    "Split",
    "Split_type",
    "Create",
    "Create_group",
    "Create_cart",
    "Create_graph",
    "Create_dist_graph",
    "Create_dist_graph_adjacent",
    "Sub",
)


@dataclass(frozen=True)
class TuningContext:
    """What a tuned communicator hands on to those that are derived from it.

    source      asks for the table again
    ring        for the times of calls; None where nobody wants them
    tally       for their numbers, likewise
    """

    make_request: Callable[[], TableRequest] | None = None
    agreement: TableAgreement = NO_TABLE
    memory: str = HOST
    ring: CallRing | None = None
    tally: CallTally | None = None


NO_TUNING = TuningContext()


def make_tuned_comm(
    consensus: Consensus,
    plain: MPI.Intracomm,
    table: TuningTable | Path | str | None,
    service: str | None,
    cluster: str | None,
    token: str | None,
    memory: str,
    *,
    feedback: bool | None,
    verbose: bool,
) -> Any:
    """Return the tuned communicator that `tuner.runtime.tune` describes; collective.

    plain       the object that the program gave

    An InputError is returned where rank 0 wants an unknown kind of memory.
    """
    directory = working_directory()

    def source() -> TableRequest:
        return resolve_request(library_name(), table, service, cluster, token, directory=directory)

    agreed = agree_on_table(consensus, source)
    known = isinstance(memory, str) and memory in (HOST, CUDA)
    wanted = os.environ.get("TUNER_FEEDBACK", "") not in ("", "0") if feedback is None else feedback
    said = (memory if known else shortened_repr(memory), bool(wanted))
    consensus.check()
    memory, recorded = consensus.comm.bcast(said)
    if memory not in (HOST, CUDA):
        return InputError(f"memory is {HOST!r} or {CUDA!r}, not {memory}")
    ring = CallRing() if recorded else None
    tally = CallTally(plain.rank, to_stderr=verbose) if verbose or log.is_info_enabled() else None
    terms = TuningContext(source, agreed, memory, ring, tally)
    made = _make_comm(plain, terms)
    made.agree_on_rules(consensus)
    made.log_status()
    made.install()
    return made


class TunedComm(CollectiveMethods, CommAlias):
    """What a tuned communicator does differently; mixed into mpi4py's own class."""

    _terms = NO_TUNING
    _policy: AgreedRules | None = None  # None until all ranks have looked at the rules
    _nodes: IntArray | None = None  # of the ranks, where they are known
    _backend: Backend | None = None
    _pool: DispatchPool | None = None  # for the duplicates of this communicator
    _lender: DispatchPool | None = None  # where `_lent` and its backend came from
    _lent: Dispatch | None = None
    _dispatch: Dispatch | None = None
    _installed: tuple[str, ...] = ()  # attributes that stand for ladders and methods

    @property
    def table(self) -> TuningTable | None:
        """The table that is followed; None when every call is the library's own."""
        return self._terms.agreement.table

    def follow(self) -> Dispatch:
        """Look at the rules again and make everything ready for calls; collective."""
        self._release_all()
        self._policy = None
        self._run_and_install(self.agree_on_rules)
        return self._dispatch or self._start_dispatch()

    def refresh(self) -> None:
        """Get the table again and follow what is found; collective.

        Communicators that were derived from this one before keep what they have. What was
        recorded is posted when there is another table.
        """
        self._release_all()
        if not self._run_and_install(
            self._refresh_table
        ):  # some ranks may have another table by now
            self._terms = replace(self._terms, agreement=NO_TABLE)

    def _run_and_install(self, step: Callable[[Consensus], None]) -> bool:
        """Take a step after which calls are ready; return whether all ranks could. Collective."""

        def act(consensus: Consensus) -> None:
            step(consensus)
            self.install()

        _, failure = run_together(self.plain, act)
        self._log_failure(failure)
        if failure:
            self._reset_after_failure()
            attempt(self.install)  # else calls make what they need
        return not failure

    def _reset_after_failure(self) -> None:
        """Forget what the ranks may know differently after a step that failed on one of them."""
        self._uninstall()
        self._policy, self._nodes, self._dispatch = NO_RULES, None, None
        if self._backend is not None:
            self._backend.discard_comms()

    def _refresh_table(self, consensus: Consensus) -> None:
        terms = self._terms
        if terms.make_request is None:
            return
        agreed, ring = agree_on_table(consensus, terms.make_request), terms.ring
        if ring is not None and agreed.version != terms.agreement.version:
            post_feedback(
                consensus, ring, terms.agreement
            )  # those times say nothing of another table
            ring = CallRing()
        self._terms = replace(terms, agreement=agreed, ring=ring)
        self.agree_on_rules(consensus)
        self.log_status()

    def finalize(self) -> None:
        """Post what was recorded and leave all further calls to the library; collective.

        What these ranks recorded on communicators that one was derived from the other is posted by
        whichever is finalized first, and so are the numbers of calls logged.
        """
        terms = self._terms
        if terms.ring is not None:
            _, failure = run_together(
                self.plain, partial(post_feedback, ring=terms.ring, agreed=terms.agreement)
            )
            self._log_failure(failure)
        self.report()
        self._release_all()
        self._terms, self._policy = NO_TUNING, NO_RULES
        attempt(self.install)  # else calls make what they need

    def report(self) -> None:
        """Write how many calls followed which rule, and begin to count anew; not collective."""
        if self._terms.tally is not None:
            self._terms.tally.report()

    def _end(self, method: str) -> None:
        self._release_all()
        super()._end(method)
        self._terms, self._policy = NO_TUNING, NO_RULES

    def agree_on_rules(self, consensus: Consensus) -> None:
        """Find out which rules all ranks can follow; collective."""
        comm, table = self.plain, self._terms.agreement.table
        if table is not None and self._nodes is None:
            self._nodes = node_ids_of(consensus)
        self._backend = self._backend or Backend(comm, self._terms.tally)
        self._policy = agree_on_rules(
            consensus, table, self._terms.memory, self._nodes, self._backend
        )

    def log_status(self) -> None:
        """Write in the log of rank 0 whether there are rules; not for derived communicators."""
        log_status(self._policy or NO_RULES, self.table, self.plain)

    def _agreed_rules(self) -> AgreedRules:
        """The rules that are followed; collective for the first time."""
        if self._policy is None and self.table is not None:
            _, failure = run_together(self.plain, self.agree_on_rules)
            self._log_failure(failure)
            if failure:
                self._reset_after_failure()
        if self._policy is None:
            self._policy = NO_RULES
        return self._policy

    def install(self) -> Dispatch:
        """Make all ladders, and the short ways to them where there are any."""
        own = self._dispatch is not self._lent  # others will use what was lent to it
        dispatch = self._dispatch if self._dispatch and own else self._start_dispatch()
        ladders = {(c, op): dispatch.table_for(c, op) for c in METHODS for op in OPERATORS}
        found: dict[str, Any] = {_table_attribute(*key): ladder for key, ladder in ladders.items()}
        if self._simple:
            general = partial(TunedComm.Bcast, self), partial(TunedComm.Allreduce, self)
            short, _ = attempt(fast_path.fast_methods, self.plain, ladders, *general)
            found |= short or {}  # without them calls take a little longer
        self._put(found)
        return dispatch

    @property
    def _simple(self) -> bool:
        """Return whether nobody looks at the calls, and the class is mpi4py's own."""
        observed = self._terms.ring is not None or self._terms.tally is not None
        return not observed and type(self) is _CLASSES.get(self._kind)

    def _put(self, found: dict[str, Any]) -> None:
        """Have attributes of this communicator stand for ladders and methods."""
        self.__dict__.update(found)
        self._installed = tuple(found)

    def _start_dispatch(self) -> Dispatch:
        policy, terms = self._agreed_rules(), self._terms
        if self._backend is None:
            self._backend = Backend(self.plain, terms.tally)
        self._dispatch = Dispatch(self.plain, policy, self._backend, terms.ring, terms.tally)
        return self._dispatch

    def tune_derived(self, made: MPI.Intracomm) -> Any:
        """Return a communicator that was made of this one as one that follows the same table.

        Collective over this one. Where the ranks are the same, in the same order, the rules are
        those that were agreed on here.
        """
        comm = _make_comm(made, self._terms)
        if self.table is None:
            return comm
        if MPI.Comm.Compare(self.plain, made) == MPI.CONGRUENT:
            comm._policy, comm._nodes = self._agreed_rules(), self._nodes
            if comm._policy.has_tuned_rule:
                self._lend(comm, made)
            elif comm._simple:
                comm._put(fast_path.library_methods(made))
        elif self._nodes is not None:
            comm._nodes = node_ids_within(self.plain, made, self._nodes)
        return comm

    def _lend(self, comm: Any, made: MPI.Intracomm) -> None:
        """Give a duplicate what an earlier one has left; collective."""
        if self._pool is None:
            terms = self._terms
            self._pool = DispatchPool(self.plain, self._agreed_rules(), terms.ring, terms.tally)
        lent = self._pool.acquire(made)
        if lent is not None:
            comm._lender, comm._lent, comm._backend = self._pool, lent, lent.backend

    def _uninstall(self) -> None:
        for name in self._installed:
            self.__dict__.pop(name, None)
        self._installed = ()

    def _release_all(self) -> None:
        self._uninstall()
        self._log_failure(attempt_all(self._releases()))
        self._dispatch = self._backend = self._lender = self._lent = self._pool = None

    def _releases(self) -> Iterator[Callable[[], None]]:
        """Yield what gives back all that calls needed; each is collective where that is."""
        if self._dispatch is not None and self._dispatch is not self._lent:
            yield self._dispatch.release
        if self._lender is not None:
            yield partial(self._lender.put_back, cast(Dispatch, self._lent))
        elif self._backend is not None:
            yield self._backend.release
        if self._pool is not None:
            yield self._pool.close

    def _log_failure(self, failure: str) -> None:
        """Write in the log of rank 0 why the library's own collectives run."""
        if failure and self.plain.rank == 0:
            log.warn_once(f"tuner: the library's own collectives are used: {failure}")

    def __getattr__(self, name: str) -> Any:
        """Return the ladders of a derived communicator, which its first calls ask for.

        The first call takes what it needs alone: many communicators see no other.
        """
        if name not in _TABLE_KEYS:
            return super().__getattr__(name)
        if self._dispatch is None:
            self._dispatch = self._lent or self._start_dispatch()
            return self._dispatch.table_for(*_TABLE_KEYS[name])
        self.install()
        return self.__dict__[name]


def _table_attribute(collective: Collective, operators: str) -> str:
    return f"_{collective.value}_{operators}"


_CLASSES: dict[type[MPI.Intracomm], type[Any]] = {}
_TABLE_KEYS = {
    _table_attribute(collective, operators): (collective, operators)
    for collective in METHODS
    for operators in OPERATORS
}


def _tuned_class(kind: type[MPI.Intracomm]) -> type[Any]:
    """`kind` of communicator with our methods before its own; made once."""
    if kind not in _CLASSES:
        derive = {name: _deriving_method(name) for name in DERIVING_METHODS if hasattr(kind, name)}
        body = {"__doc__": TunedComm.__doc__, "_kind": kind, **derive}
        _CLASSES[kind] = type(f"Tuned{kind.__name__}", (TunedComm, kind), body)
    return _CLASSES[kind]


def _deriving_method(name: str) -> Callable[..., Any]:
    def derive(self: TunedComm, *arguments: Any, **named: Any) -> Any:
        made = getattr(self.plain, name)(*arguments, **named)
        if not isinstance(made, MPI.Intracomm) or made == MPI.COMM_NULL:
            return made
        return self.tune_derived(made)

    derive.__name__ = name
    derive.__doc__ = f"As `{name}` of mpi4py; the communicator it makes follows the same table."
    return derive


def _make_comm(plain: MPI.Intracomm, context: TuningContext) -> Any:
    made = cast_comm(_tuned_class(type(plain)), plain)
    made.plain, made._terms = plain, context
    return made
