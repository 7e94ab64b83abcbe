"""The published tables, kept in memory to answer the two most frequent requests.

A version never changes, so its representations and answers are made once. Which versions are
published is looked up several times a second, and at once when this process publishes one.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner import db
from tuner.api.native_formats import TUNER_FORMAT, RequestedFormat, render
from tuner.api.problems import Problem
from tuner.base.errors import shortened_repr
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, rule_record
from tuner.formats import mpich

log = logging.getLogger(__name__)
REFRESH_INTERVAL_S = 0.25  # seconds between two queries of the database
ETAG_DIGEST_DIGITS = 12  # digits of the digest in an ETag
_AnswersBySize = tuple[list[int], list[bytes]]  # lower bounds and the answer from each of them on


@dataclass(frozen=True)
class Representation:
    """A table in one format.

    The ETag is derived from the bytes, because a native format also depends on the program that
    wrote it and, for MPICH, on the installed library.
    """

    body: bytes
    media_type: str
    etag: str
    immutable: bool  # whether this version always has these bytes


@dataclass(frozen=True)
class TableVersion:
    """A version of a table with its precomputed answers."""

    version: int
    table: TuningTable
    answers: Mapping[RuleKey, _AnswersBySize]
    representations: dict[RequestedFormat, Representation] = field(default_factory=dict)

    @classmethod
    def load(cls, session: db.Session, version: int) -> TableVersion:
        """Load a version; raise NotFoundError or NewerVersionError."""
        table = db.load_table(session, version)
        return cls(version, table, _answers_by_key(version, table))

    def representation(
        self, form: RequestedFormat, generic: mpich.GenericTreeLoader
    ) -> Representation:
        """Return the table in this format, rendered on first use.

        Raises InputError where the format cannot express the table.
        """
        if form not in self.representations:
            body = render(self.table, form, generic)
            etag = f'"{self.version}-{hashlib.sha256(body).hexdigest()[:ETAG_DIGEST_DIGITS]}"'
            self.representations[form] = Representation(
                body, form.media_type, etag, form.format == TUNER_FORMAT
            )
        return self.representations[form]

    def answer_call(self, key: RuleKey, nbytes: int) -> bytes:
        """Return the answer for a call as JSON; the library default where the table has no rule."""
        lows, answers = self.answers.get(key) or _answers_by_size(
            self.version, [_default_rule(key)]
        )
        return answers[bisect.bisect_right(lows, nbytes) - 1]


def _answers_by_key(version: int, table: TuningTable) -> dict[RuleKey, _AnswersBySize]:
    """Return the answers per key; commutative operators fall back to the rules for any operator."""
    rule_lists = {key: _answers_by_size(version, table.rules_for(key)) for key in table.keys}
    for key in table.keys:
        rule_lists.setdefault(replace(key, operators="commutative"), rule_lists[key])
    return rule_lists


def _answers_by_size(version: int, rules: Sequence[Rule]) -> _AnswersBySize:
    return [rule.start_bytes for rule in rules], [_rule_json(version, rule) for rule in rules]


def _rule_json(version: int, rule: Rule) -> bytes:
    record = rule_record(rule)
    shown = {name: record[name] for name in ("start_bytes", "stop_bytes", "evidence")}
    return json.dumps({"version": version, **record["choice"], **shown}).encode()


def _default_rule(key: RuleKey) -> Rule:
    """Return the rule for calls for which the table has none."""
    return Rule(key, 0, math.inf, AlgorithmChoice(), Evidence("none"))


@dataclass(frozen=True)
class _Snapshot:
    """The publications at one moment, replaced as a whole so that each lookup is consistent."""

    newest_publication_id: int = -1  # id of the newest publication
    tables: Mapping[tuple[str, str], TableVersion] = field(
        default_factory=dict
    )  # by (cluster, library)
    cache: dict[tuple[str | None, str], TableVersion] = field(
        default_factory=dict
    )  # by the arguments of `find`

    def find(self, cluster: str | None, library: str) -> TableVersion:
        """Return the table for a cluster and library.

        An exact match of the library precedes one whose version was left out.
        """
        own = {key: entry for key, entry in self.tables.items() if cluster in (None, key[0])}
        fitting = {key: entry for key, entry in own.items() if key[1] == library} or {
            key: entry for key, entry in own.items() if key[1].partition(" ")[0] == library
        }
        if not fitting:
            where = "any cluster" if cluster is None else f"cluster {shortened_repr(cluster)}"
            raise Problem(404, f"no table is published for {shortened_repr(library)} on {where}")
        if len(fitting) > 1:
            names = ", ".join(f"{key[1]} on {key[0]}" for key in sorted(fitting))
            one, its = map(shortened_repr, min(fitting))
            raise Problem(
                409,
                f"several tables are published: say which one, such as cluster {one} and library"
                f" {its} (programs: --cluster or TUNER_CLUSTER); there are {names}",
            )
        return next(iter(fitting.values()))


class PublishedTables:
    """The published table for each (cluster, library)."""

    def __init__(self, engine: db.Engine) -> None:
        self._engine = engine
        self._snapshot = _Snapshot()
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Update from the database; on UnavailableError, which is raised, keep the current state.

        The current table of a cluster and library is also kept where this program cannot read the
        new one.
        """
        with self._refreshing, db.read_session(self._engine) as session:
            newest = db.newest_publication_id(session)
            if newest == self._snapshot.newest_publication_id:
                return
            entries = dict(self._snapshot.tables)
            known = {entry.version: entry for entry in entries.values()}
            for current in db.current_publications(session):
                try:
                    entry = known.get(current.version) or TableVersion.load(
                        session, current.version
                    )
                except db.NewerVersionError as reason:
                    log.warning("%s", reason)
                else:
                    entries[current.cluster, current.library] = entry
            self._snapshot = _Snapshot(newest, entries)

    def find(self, cluster: str | None, library: str) -> TableVersion:
        """Return the published table.

        cluster     name of the cluster; None if there is only one for the library
        library     name of the library, with or without its version

        Raises Problem: 404 where there is none, 409 where several match.
        """
        snapshot = self._snapshot
        entry = snapshot.cache.get((cluster, library))
        if entry is None:
            entry = snapshot.cache[cluster, library] = snapshot.find(cluster, library)
        return entry
