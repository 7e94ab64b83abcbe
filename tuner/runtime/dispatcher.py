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

import numpy as np
from mpi4py import MPI

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import placed
from tuner.base.units import parse_duration
from tuner.core.collective import Collective
from tuner.core.path_classes import CUDA, HOST
from tuner.core.table import OPERATORS, TuningTable
from tuner.runtime import fast_path, log
from tuner.runtime.accesses import TUNED_COLLECTIVES
from tuner.runtime.agreement import NO_TABLE, TableAgreement, agree_on_table, library_name
from tuner.runtime.backend import Backend
from tuner.runtime.comm_layout import NodePlaces
from tuner.runtime.comm_types import CommAlias, cast_comm
from tuner.runtime.consensus import Consensus, attempt, attempt_all, run_together
from tuner.runtime.derived_communicators import DerivedComm, TrialDispatch, first_call_method
from tuner.runtime.deriving_methods import DERIVING_METHODS
from tuner.runtime.dispatch import Dispatch
from tuner.runtime.feedback import CallRing, post_feedback
from tuner.runtime.methods import CollectiveMethods, table_attribute
from tuner.runtime.nvidia import has_driver
from tuner.runtime.table_binding import (
    NO_RULES,
    AgreedRules,
    ShapeRules,
    agree_on_rules,
    log_status,
)
from tuner.runtime.table_source import (
    TUNE_AFTER_VARIABLE,
    TableRequest,
    resolve_request,
    working_directory,
)
from tuner.runtime.tally import CallTally

DEFAULT_TUNE_AFTER = "1s"  # tuning takes 2.3 ms on two ranks (tests/bench/derived.py)


@dataclass(frozen=True)
class TuningContext:
    """The settings that a tuned communicator shares with those derived from it.

    make_request    makes the request for the table; None where there is nothing to refresh
    agreement       the table that the ranks agreed on
    memory          kind of memory whose rules are followed, `host` or `cuda`
    tune_after_s    seconds of calls that rules would change, after which a derived communicator is
                    tuned
    shapes          the rules of the table by layout; None without a table
    ring            records the time of each call; None where times are not recorded
    tally           counts the calls; None where they are not counted
    library_first   whether the library makes the first call of a derived communicator; the same on
                    all ranks, since the calls after it count
    """

    make_request: Callable[[], TableRequest] | None = None
    agreement: TableAgreement = NO_TABLE
    memory: str = HOST
    tune_after_s: float = 0.0
    shapes: ShapeRules | None = None
    ring: CallRing | None = None
    tally: CallTally | None = None
    library_first: bool = False

    @property
    def is_observed(self) -> bool:
        """Return whether calls are timed or counted."""
        return self.ring is not None or self.tally is not None


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
    after = placed(parse_duration)(
        TUNE_AFTER_VARIABLE, os.environ.get(TUNE_AFTER_VARIABLE) or DEFAULT_TUNE_AFTER
    )
    said = (memory if known else shortened_repr(memory), bool(wanted), after)
    consensus.check()
    memory, recorded, after = consensus.comm.bcast(said)
    if memory not in (HOST, CUDA):
        return InputError(f"memory is {HOST!r} or {CUDA!r}, not {memory}")
    ring = CallRing() if recorded else None
    tally = CallTally(plain.rank, to_stderr=verbose) if verbose or log.is_info_enabled() else None
    shapes = _shapes(consensus, agreed.table, memory, None)
    terms = TuningContext(source, agreed, memory, after, shapes, ring, tally)
    # Every call takes us where calls are observed, or buffers may be on a device.
    needed = np.array([terms.is_observed or has_driver() or not after])
    consensus.check()
    consensus.comm.Allreduce(MPI.IN_PLACE, needed, MPI.LOR)
    terms = replace(terms, library_first=not needed[0])
    made = _make_comm(plain, terms)
    made.agree_on_rules(consensus)
    made.log_status()
    made.install()
    return made


def _shapes(
    consensus: Consensus, table: TuningTable | None, memory: str, known: ShapeRules | None
) -> ShapeRules | None:
    """Return the rules of a table by layout, None without a table; collective.

    known       rules of another table for ranks whose nodes are known; None for none
    """
    if table is None:
        return None
    return ShapeRules(table, memory, known.places if known else NodePlaces.gather(consensus))


class TunedComm(CollectiveMethods, CommAlias):
    """A mixin that makes a communicator class of mpi4py follow a tuning table."""

    _terms = NO_TUNING
    _policy: AgreedRules | None = None  # None until all ranks have agreed on the rules
    _backend: Backend | None = None
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
            self._terms = replace(self._terms, agreement=NO_TABLE, shapes=None)

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
        self._policy, self._dispatch = NO_RULES, None
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
        shapes = _shapes(consensus, agreed.table, terms.memory, terms.shapes)
        self._terms = replace(terms, agreement=agreed, shapes=shapes, ring=ring)
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
        if self._backend is not None:
            self._release_all()
        else:  # nothing but Python objects, which would refer to one another
            self._uninstall()
            self._dispatch = None
        super()._end(method)
        self._terms, self._policy = NO_TUNING, NO_RULES

    def agree_on_rules(self, consensus: Consensus) -> None:
        """Determine which rules all ranks can follow; collective."""
        shapes = self._terms.shapes
        self._backend = self._backend or Backend(self.plain, self._terms.tally)
        rules = {} if shapes is None else shapes.matching(self.plain)
        self._policy = agree_on_rules(consensus, rules, self._backend)

    def log_status(self) -> None:
        """Log on rank 0 whether there are rules; not called for derived communicators."""
        log_status(self._policy or NO_RULES, self.table, self.plain)

    def install(self) -> Dispatch:
        """Build all dispatch tables, and the fast methods where they can be used."""
        for collective in TUNED_COLLECTIVES:
            self.prepare(collective)
        return self._dispatch or self._start_dispatch()

    def prepare(self, collective: Collective) -> None:
        """Build the dispatch tables of a collective, and its fast method where it can be used."""
        dispatch = self._dispatch or self._start_dispatch()
        tables = [dispatch.table_for(collective, operators) for operators in OPERATORS]
        names = (table_attribute(collective, operators) for operators in OPERATORS)
        self._put(dict(zip(names, tables, strict=True)))
        if self._simple:
            general = partial(getattr(TunedComm, collective.spec.mpi), self)
            short, _ = attempt(fast_path.fast_method, collective, self.plain, tables, general)
            if short:  # calls are slightly slower without it
                self._put(dict.fromkeys(collective.methods, short))

    @property
    def _simple(self) -> bool:
        """Return whether calls are neither timed nor counted nor of a derived class."""
        return not self._terms.is_observed and type(self) is _tuned_class(self._kind)

    def _put(self, found: dict[str, Any]) -> None:
        """Store dispatch tables and methods as attributes of this communicator."""
        self.__dict__.update(found)
        self._installed += tuple(found)

    def _start_dispatch(self) -> Dispatch:
        terms, shapes = self._terms, self._terms.shapes
        if self._policy is None and shapes is not None:
            candidates = shapes.candidates(self.plain)
            if candidates.has_tuned_rule:
                self._dispatch = TrialDispatch(
                    self.plain, candidates, terms.ring, terms.tally, terms.tune_after_s, self._tuned
                )
                return self._dispatch
            self._policy = candidates
        if self._backend is None:
            self._backend = Backend(self.plain, terms.tally)
        rules = self._policy or NO_RULES
        self._dispatch = Dispatch(self.plain, rules, self._backend, terms.ring, terms.tally)
        return self._dispatch

    def _tuned(self) -> Any:
        """Return this communicator after it was tuned; collective."""
        self.follow()
        return self

    def tune_derived(self, made: MPI.Intracomm) -> Any:
        """Return a tuned communicator for one that was derived from this one, without messages.

        It follows the same table as soon as that pays (`tuner.runtime.derived_communicators`).
        """
        return _derive(self._terms, made)

    def _uninstall(self) -> None:
        for name in self._installed:
            self.__dict__.pop(name, None)
        self._installed = ()

    def _release_all(self) -> None:
        self._uninstall()
        self._log_failure(attempt_all(self._releases()))
        self._dispatch = self._backend = None

    def _releases(self) -> Iterator[Callable[[], None]]:
        """Yield the functions that release the resources of this communicator's calls.

        They are collective where the release of the resource is.
        """
        if self._dispatch is not None:
            yield self._dispatch.release
        if self._backend is not None:
            yield self._backend.release

    def _log_failure(self, failure: str) -> None:
        """Log on rank 0 why the library's own collectives run."""
        if failure and self.plain.rank == 0:
            log.warn_once(f"tuner: the library's own collectives are used: {failure}")


class _TableOnDemand:
    """A descriptor that builds the dispatch tables of a collective for a derived communicator."""

    def __init__(self, collective: Collective, operators: str) -> None:
        self._collective = collective
        self._name = table_attribute(collective, operators)

    def __get__(self, comm: TunedComm | None, owner: type[Any]) -> Any:
        if comm is None:
            return self
        comm.prepare(self._collective)
        return comm.__dict__[self._name]


for _collective in TUNED_COLLECTIVES:
    for _operators in OPERATORS:
        _table = _TableOnDemand(_collective, _operators)
        setattr(TunedComm, table_attribute(_collective, _operators), _table)


# Subclasses of the classes of communicators: tuned, derived where no rule applies, and derived
# where a rule may change calls
_TUNED: dict[type[MPI.Intracomm], type[Any]] = {}
_DERIVED: dict[type[MPI.Intracomm], type[Any]] = {}
_WAITING: dict[type[MPI.Intracomm], type[Any]] = {}


def _tuned_class(kind: type[MPI.Intracomm]) -> type[Any]:
    if kind not in _TUNED:
        body = {"__doc__": TunedComm.__doc__, "_kind": kind, **_deriving_methods(kind)}
        _TUNED[kind] = type(f"Tuned{kind.__name__}", (TunedComm, kind), body)
    return _TUNED[kind]


def _derived_class(kind: type[MPI.Intracomm]) -> type[Any]:
    if kind not in _DERIVED:
        body = {"_kind": kind, "_tuned_class": _tuned_class(kind), "_terms": NO_TUNING}
        body |= _deriving_methods(kind)
        _DERIVED[kind] = type(f"Derived{kind.__name__}", (DerivedComm, kind), body)
    return _DERIVED[kind]


def _waiting_class(kind: type[MPI.Intracomm]) -> type[Any]:
    if kind not in _WAITING:
        body = {
            name: first_call_method(kind, name)
            for each in TUNED_COLLECTIVES
            for name in each.methods
        }
        _WAITING[kind] = type(f"Waiting{kind.__name__}", (_derived_class(kind),), body)
    return _WAITING[kind]


def _deriving_methods(kind: type[MPI.Intracomm]) -> dict[str, Any]:
    return {name: _deriving_method(kind, name) for name in DERIVING_METHODS if hasattr(kind, name)}


def _deriving_method(kind: type[MPI.Intracomm], name: str) -> Callable[..., Any]:
    library = getattr(kind, name)

    def derive(self: Any, *arguments: Any, **named: Any) -> Any:
        made = library(self.__dict__.get("plain", self), *arguments, **named)
        return _derive(self._terms, made) if made and isinstance(made, MPI.Intracomm) else made

    derive.__name__ = name
    derive.__doc__ = f"As `{name}` of mpi4py; the communicator it makes follows the same table."
    return derive


def _derive(terms: TuningContext, made: MPI.Intracomm) -> Any:
    """Return an object for a derived communicator. Local."""
    if not terms.library_first:
        return _make_comm(made, terms)
    shapes, comm = terms.shapes, cast(Any, made)
    if not isinstance(made, DerivedComm):  # a duplicate of one is of the same class
        waits = shapes is not None and made.size in shapes.tuned_sizes
        comm = cast_comm((_waiting_class if waits else _derived_class)(type(made)), made)
    comm._terms, comm._called = terms, False  # attributes of the program's class are copied
    return comm


def _make_comm(plain: MPI.Intracomm, context: TuningContext) -> Any:
    made = cast_comm(_tuned_class(type(plain)), plain)
    made.plain, made._terms = plain, context
    return made
