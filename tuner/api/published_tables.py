"""The published tables, in memory: what the two most frequent questions are answered from.

A version of a table never changes, so its bodies and answers are made once. Which versions are
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
from tuner.api.native_formats import TUNER, Wanted, render
from tuner.api.problems import Problem
from tuner.base.errors import quoted
from tuner.core.table import Choice, Evidence, Key, Rule, TuningTable, rule_record
from tuner.formats import mpich

log = logging.getLogger(__name__)
REFRESHED = 0.25  # seconds between two looks at the database
DIGITS = 12  # of the digest in an ETag
_Ladder = tuple[list[int], list[bytes]]  # lower bounds, the answer from each of them on


@dataclass(frozen=True)
class Rendition:
    """A table in one form. Its ETag is that of the very bytes: what a library reads also depends on
    the program that wrote it, and for MPICH on the library that is here.
    """

    body: bytes
    media_type: str
    etag: str
    lasting: bool  # whether the same version will always be these bytes


@dataclass(frozen=True)
class Entry:
    """One version of a table, ready to be asked."""

    version: int
    table: TuningTable
    ladders: Mapping[Key, _Ladder]
    renditions: dict[Wanted, Rendition] = field(default_factory=dict)

    @classmethod
    def load(cls, session: db.Session, version: int) -> Entry:
        """Raises NotFoundError, NewerError."""
        table = db.load_table(session, version)
        return cls(version, table, _ladders(version, table))

    def rendition(self, form: Wanted, generic: mpich.Generic) -> Rendition:
        """Made at the first demand. Raises InputError where the form cannot say the table."""
        if form not in self.renditions:
            body = render(self.table, form, generic)
            etag = f'"{self.version}-{hashlib.sha256(body).hexdigest()[:DIGITS]}"'
            self.renditions[form] = Rendition(body, form.media_type, etag, form.format == TUNER)
        return self.renditions[form]

    def answer(self, key: Key, nbytes: int) -> bytes:
        """What the table says about a call, as JSON; where it says nothing, the default."""
        lows, answers = self.ladders.get(key) or _ladder(self.version, [_silence(key)])
        return answers[bisect.bisect_right(lows, nbytes) - 1]


def _ladders(version: int, table: TuningTable) -> dict[Key, _Ladder]:
    """A commutative operator falls back to the rules for any."""
    ladders = {key: _ladder(version, table.ladder(key)) for key in table.keys}
    for key in table.keys:
        ladders.setdefault(replace(key, operators="commutative"), ladders[key])
    return ladders


def _ladder(version: int, rules: Sequence[Rule]) -> _Ladder:
    return [rule.lo for rule in rules], [_answer(version, rule) for rule in rules]


def _answer(version: int, rule: Rule) -> bytes:
    record = rule_record(rule)
    shown = {name: record[name] for name in ("lo", "hi", "evidence")}
    return json.dumps({"version": version, **record["choice"], **shown}).encode()


def _silence(key: Key) -> Rule:
    """What a table without rules for these calls says of them."""
    return Rule(key, 0, math.inf, Choice(), Evidence("none"))


@dataclass(frozen=True)
class _Snapshot:
    """What was published at one moment; replaced whole, so that no question sees two moments."""

    newest: int = -1  # id of the newest publication
    entries: Mapping[tuple[str, str], Entry] = field(default_factory=dict)  # (cluster, library) ->
    found: dict[tuple[str | None, str], Entry] = field(default_factory=dict)  # questions answered

    def find(self, cluster: str | None, library: str) -> Entry:
        """An exact library goes before one whose version was left out."""
        own = {key: entry for key, entry in self.entries.items() if cluster in (None, key[0])}
        fitting = {key: entry for key, entry in own.items() if key[1] == library} or {
            key: entry for key, entry in own.items() if key[1].partition(" ")[0] == library
        }
        if not fitting:
            where = "any cluster" if cluster is None else f"cluster {quoted(cluster)}"
            raise Problem(404, f"no table is published for {quoted(library)} on {where}")
        if len(fitting) > 1:
            names = ", ".join(f"{key[1]} on {key[0]}" for key in sorted(fitting))
            one, its = map(quoted, min(fitting))
            raise Problem(
                409,
                f"several tables are published ({names}): say which one, such as cluster {one} and"
                f" library {its}",
            )
        return next(iter(fitting.values()))


class Published:
    """Which table is published for each (cluster, library)."""

    def __init__(self, engine: db.Engine) -> None:
        self._engine = engine
        self._snapshot = _Snapshot()
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Look at the database; raises UnavailableError, and then keeps what it has.

        So it does for a cluster and library whose new table this program cannot read.
        """
        with self._refreshing, db.reading(self._engine) as session:
            newest = db.newest_publication(session)
            if newest == self._snapshot.newest:
                return
            entries = dict(self._snapshot.entries)
            known = {entry.version: entry for entry in entries.values()}
            for current in db.current_publications(session):
                try:
                    entry = known.get(current.version) or Entry.load(session, current.version)
                except db.NewerError as reason:
                    log.warning("%s", reason)
                else:
                    entries[current.cluster, current.library] = entry
            self._snapshot = _Snapshot(newest, entries)

    def find(self, cluster: str | None, library: str) -> Entry:
        """The published table. `library` may lack its version, `cluster` be left out.

        Raises Problem: 404 when there is none, 409 when several answer to what was given.
        """
        snapshot = self._snapshot
        entry = snapshot.found.get((cluster, library))
        if entry is None:
            entry = snapshot.found[cluster, library] = snapshot.find(cluster, library)
        return entry
