"""The communicator whose collectives follow a tuning table.

It is an mpi4py communicator of the class that it was made from, and inherits every method that is
not defined here. All ranks have the same table, so all choose the same algorithm. Where the table
has no rule, or a step fails, the library's own collective runs.
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

DERIVING_METHODS = (  # methods that derive a communicator, which follows the same table
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
    """The settings that a tuned communicator shares with those derived from it.

    make_request    makes the request for the table; None where there is nothing to refresh
    agreement       the table that the ranks agreed on
    memory          kind of memory whose rules are followed, `host` or `cuda`
    ring            records the time of each call; None where times are not recorded
    tally           counts the calls; None where they are not counted
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

    plain       the communicator that the program passed

    Returns an InputError, and does not raise it, where rank 0 asks for an unknown kind of memory.
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
    """A mixin that makes a communicator class of mpi4py follow a tuning table."""

    _terms = NO_TUNING
    _policy: AgreedRules | None = None  # None until all ranks have agreed on the rules
    _nodes: IntArray | None = None  # node of each rank; None where it is not known
    _backend: Backend | None = None
    _pool: DispatchPool | None = None  # for the duplicates of this communicator
    _lender: DispatchPool | None = None  # where `_lent` and its backend came from
    _lent: Dispatch | None = None
    _dispatch: Dispatch | None = None
    _installed: tuple[str, ...] = ()  # attributes that hold dispatch tables and methods

    @property
    def table(self) -> TuningTable | None:
        """The table that is followed; None when the library makes every call."""
        return self._terms.agreement.table

    def follow(self) -> Dispatch:
        """Agree on the rules again and prepare for calls; collective."""
        self._release_all()
        self._policy = None
        self._run_and_install(self.agree_on_rules)
        return self._dispatch or self._start_dispatch()

    def refresh(self) -> None:
        """Get the table again and follow its present version; collective.

        Communicators that were derived from this one before keep their table. Recorded times are
        posted when the version has changed.
        """
        self._release_all()
        if not self._run_and_install(
            self._refresh_table
        ):  # some ranks may have another table by now
            self._terms = replace(self._terms, agreement=NO_TABLE)

    def _run_and_install(self, step: Callable[[Consensus], None]) -> bool:
        """Run `step` and `install`; return whether both succeeded on all ranks. Collective."""

        def act(consensus: Consensus) -> None:
            step(consensus)
            self.install()

        _, failure = run_together(self.plain, act)
        self._log_failure(failure)
        if failure:
            self._reset_after_failure()
            attempt(self.install)  # if it fails, the first call builds its table
        return not failure

    def _reset_after_failure(self) -> None:
        """Discard state that may differ between ranks after a step that failed on one of them."""
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
            post_feedback(consensus, ring, terms.agreement)  # the times belong to the old table
            ring = CallRing()
        self._terms = replace(terms, agreement=agreed, ring=ring)
        self.agree_on_rules(consensus)
        self.log_status()

    def finalize(self) -> None:
        """Post recorded times and leave all further calls to the library; collective.

        Communicators derived from one another share one record of times and one count of calls:
        the first one that is finalized posts and logs them.
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
        attempt(self.install)  # if it fails, the first call builds its table

    def report(self) -> None:
        """Log how many calls followed which rule and reset the counts; not collective."""
        if self._terms.tally is not None:
            self._terms.tally.report()

    def _end(self, method: str) -> None:
        self._release_all()
        super()._end(method)
        self._terms, self._policy = NO_TUNING, NO_RULES

    def agree_on_rules(self, consensus: Consensus) -> None:
        """Determine which rules all ranks can follow; collective."""
        comm, table = self.plain, self._terms.agreement.table
        if table is not None and self._nodes is None:
            self._nodes = node_ids_of(consensus)
        self._backend = self._backend or Backend(comm, self._terms.tally)
        self._policy = agree_on_rules(
            consensus, table, self._terms.memory, self._nodes, self._backend
        )

    def log_status(self) -> None:
        """Log on rank 0 whether there are rules; not called for derived communicators."""
        log_status(self._policy or NO_RULES, self.table, self.plain)

    def _agreed_rules(self) -> AgreedRules:
        """Return the rules that are followed; the first call is collective."""
        if self._policy is None and self.table is not None:
            _, failure = run_together(self.plain, self.agree_on_rules)
            self._log_failure(failure)
            if failure:
                self._reset_after_failure()
        if self._policy is None:
            self._policy = NO_RULES
        return self._policy

    def install(self) -> Dispatch:
        """Build all dispatch tables, and the fast methods where they can be used."""
        own = self._dispatch is not self._lent  # a lent dispatch goes back to its pool
        dispatch = self._dispatch if self._dispatch and own else self._start_dispatch()
        ladders = {(c, op): dispatch.table_for(c, op) for c in METHODS for op in OPERATORS}
        found: dict[str, Any] = {_table_attribute(*key): ladder for key, ladder in ladders.items()}
        if self._simple:
            general = partial(TunedComm.Bcast, self), partial(TunedComm.Allreduce, self)
            short, _ = attempt(fast_path.fast_methods, self.plain, ladders, *general)
            found |= short or {}  # calls are slightly slower without them
        self._put(found)
        return dispatch

    @property
    def _simple(self) -> bool:
        """Return whether calls are neither timed nor counted nor of a derived class."""
        observed = self._terms.ring is not None or self._terms.tally is not None
        return not observed and type(self) is _CLASSES.get(self._kind)

    def _put(self, found: dict[str, Any]) -> None:
        """Store dispatch tables and methods as attributes of this communicator."""
        self.__dict__.update(found)
        self._installed = tuple(found)

    def _start_dispatch(self) -> Dispatch:
        policy, terms = self._agreed_rules(), self._terms
        if self._backend is None:
            self._backend = Backend(self.plain, terms.tally)
        self._dispatch = Dispatch(self.plain, policy, self._backend, terms.ring, terms.tally)
        return self._dispatch

    def tune_derived(self, made: MPI.Intracomm) -> Any:
        """Return a tuned communicator for one that was derived from this one.

        Collective over this one. It follows the same table; where it has the same ranks in the
        same order, it also takes over the rules agreed on here.
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
        """Give a duplicate a dispatch from the pool, if one is free; collective."""
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
        """Yield the functions that release the resources of this communicator's calls.

        They are collective where the release of the resource is.
        """
        if self._dispatch is not None and self._dispatch is not self._lent:
            yield self._dispatch.release
        if self._lender is not None:
            yield partial(self._lender.put_back, cast(Dispatch, self._lent))
        elif self._backend is not None:
            yield self._backend.release
        if self._pool is not None:
            yield self._pool.close

    def _log_failure(self, failure: str) -> None:
        """Log on rank 0 why the library's own collectives run."""
        if failure and self.plain.rank == 0:
            log.warn_once(f"tuner: the library's own collectives are used: {failure}")

    def __getattr__(self, name: str) -> Any:
        """Return a dispatch table of a derived communicator, built on demand.

        The first call builds only the table that it needs, since many communicators make only one
        call; the second call builds all tables.
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
    """Return the tuned subclass of a communicator class; created once per class."""
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
