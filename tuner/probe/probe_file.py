"""The measurements file of a probe from outside the ranks: resumed, continued, finished."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.units import format_time
from tuner.core.measurement import (
    WANTED,
    Cluster,
    Measurement,
    end_line,
    excluded_parts,
    header_line,
    read_partial,
    series_line,
    unreadable,
)
from tuner.mpi_libraries.default_algorithms import DEFAULT_RUNS
from tuner.probe.all_pairs import outliers
from tuner.probe.monitor import Watch
from tuner.probe.probe_plan import Plan
from tuner.probe.sentinels import verdict

BEGAN, SPENT = "began", "spent"  # of a run: seconds since the epoch; seconds taken before that
UNDERWAY = (BEGAN, SPENT)  # what the first line of a file says until the run has ended
TUNING = "tuning"  # the run of `tuner tune` that a file belongs to, until that has ended
KEPT = (DEFAULT_RUNS, WANTED, BEGAN, TUNING)  # what a run says anew, whatever earlier ones said
SHOWN = 6  # points that a sentence names
LEFT_OUT = "left out for want of time: "


class ProbeFile:
    """Between two launches.

    about       provenance: what is known beforehand, with `plan`, `budget` (s) and, where chosen
                points were added to a plan, `rounds`; where it was found out, `default_runs`
    anew        whether the budget is that of this run alone, and then whether what earlier runs
                left out is measured now; None: it is that of all runs together, and a larger one
                measures what earlier runs left out
    ended       nothing is left to measure
    left_out    keys of points for which an earlier run had no time
    lacking     keys of points of which it found that there is nothing to measure
    seconds     of measuring to deal out over what is left
    spent       seconds that earlier runs took of the budget
    """

    def __init__(
        self,
        path: Path,
        cluster: Cluster,
        version: str,
        plan: Plan,
        about: dict[str, Any],
        anew: bool | None = None,
    ) -> None:
        self.path, self.cluster, self.version = path, cluster, version
        self.plan, self.about = plan, about
        self.ended = False
        self.left_out: list[list[Any]] = []
        self.lacking: list[list[Any]] = []
        self.seconds: float = about["budget"]
        self.spent = 0.0
        self._anew = anew
        self._mine = False
        self._interrupted = 0.0

    def check(self) -> None:
        """Raises InputError for a file of another probe; changes nothing."""
        header, series = self._content()
        if header is not None and (series or self.ended):
            self._require_same(header)

    def resume(self) -> Plan:
        """What is left to measure; an unfinished file then holds just its finished points.

        The first time the file is replaced even if nothing in it changes: ranks of a killed run
        that are still there then notice, and no longer write.
        """
        header, series = self._content()
        whole = self.ended
        if header is not None and (series or self.ended) and not self._mine:
            self._require_same(header)
            self._continue(header["provenance"])
        kept = series if whole else self.plan.complete(series)
        left = self.plan.without(kept).less([*self.left_out, *self.lacking])
        if self.ended:
            return left
        if not self._mine or len(kept) < len(series) or not self._whole():
            self._write(kept, ended=False)
        self._mine = True
        return left

    def finish(self, watch: Watch) -> None:
        """Write what is known now about the whole probe, and the last line."""
        _, series, _ = read_partial(self.path)
        cluster = watch.facts.pop("cluster", None)
        if cluster and self.plan.hosts:
            self.cluster = replace(self.cluster, **cluster)
        unmeasured = [list(point.key) for point in self.plan.without(series).points]
        left_out = [key for key in unmeasured if key in [*self.left_out, *watch.left_out]]
        why = {**_reasons(self.about.get("excluded", [])), **watch.why}
        self.about = {
            **self.about,
            **watch.facts,
            "excluded": self.plan.less(left_out).excluded(series, why),
            "seconds": round(watch.elapsed + self._interrupted + self.about.get("seconds", 0.0), 1),
        }
        for name in UNDERWAY:
            self.about.pop(name, None)
        notes = self._notes(series, watch, left_out)
        if self.plan.hosts or notes:
            self.about["notes"] = notes
        lacking = [key for key in unmeasured if key not in left_out]
        for name, keys in {"left_out": left_out, "lacking": lacking}.items():
            if keys:
                self.about[name] = keys
        self._write(series, ended=True)

    def _continue(self, before: dict[str, Any]) -> None:
        """Go on with what `before` says of the file."""
        rounds = self.about.get("rounds", [])
        told = {name: self.about[name] for name in KEPT if name in self.about}
        added = rounds != before.get("rounds", [])
        known: list[list[Any]] = before.get("left_out", [])
        budget = self.about["budget"]
        larger = budget > before.get("budget", budget) if self._anew is None else self._anew
        more = self.ended and not added and bool(known) and larger
        taken = 0.0 if self.ended else seconds_taken(self.path, before)
        self._interrupted = min(taken, before.get("budget", budget))
        if self._anew is None and not added:
            self.spent = self._interrupted + before.get("seconds", 0.0)
            self.seconds = max(budget - self.spent, 0.0)
        if self.ended and (added or more):
            self.ended = False
        self.left_out, self.lacking = [] if more else known, before.get("lacking", [])
        used = budget if more or added else before.get("budget", budget)
        self.about = {**before, **told, "budget": used, SPENT: self._interrupted}
        if more:  # also for who resumes this run, should it be killed
            self.about.pop("left_out", None)
        if rounds:
            self.about["rounds"] = rounds

    def _notes(
        self, series: Sequence[Measurement], watch: Watch, left_out: list[list[Any]]
    ) -> list[str]:
        told = [note for note in self.about.get("notes", []) if not note.startswith(LEFT_OUT)]
        names = [str(q) for q in self.plan.points if list(q.key) in left_out]
        found = [*told, *watch.notes, *verdict(series), *outliers(series, self.plan.hosts)]
        if names:
            larger = " with a larger --budget" if self._anew is None else ""
            shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
            found.append(
                f"{LEFT_OUT}{len(names)} of {len(self.plan.points)} points did not fit into"
                f" {format_time(self.about['budget'])} ({shown}); the same command{larger} measures"
                " them"
            )
        return list(dict.fromkeys(found))

    def _content(self) -> tuple[dict[str, Any] | None, list[Measurement]]:
        if not self.path.exists():
            return None, []
        try:
            header, series, ended = read_partial(self.path)
        except (OSError, UnicodeDecodeError) as reason:
            raise unreadable(self.path, reason) from None
        self.ended = ended
        return header, series

    def _whole(self) -> bool:
        return self.path.read_bytes().endswith(b"\n")

    def _require_same(self, header: dict[str, Any]) -> None:
        here, there = asdict(self.cluster), header["cluster"]
        names = ("name", "nodes") if self.plan.hosts else tuple(here)  # who asks may run elsewhere
        same = all(here[name] == there.get(name) for name in names)
        theirs = (header["library"], header["provenance"].get("plan"))
        if not same or theirs != (self.version, self.about["plan"]):
            plan = "plan, of other ranks, hosts, sizes, algorithms or parts"
            other = "cluster" if not same else "library" if theirs[0] != self.version else plan
            raise InputError(
                f"{self.path} holds a probe of another {other} (its cluster is called"
                f" {there.get('name')!r}, its library {header['library']}): choose another file or"
                " delete it"
            )

    def _write(self, series: Sequence[Measurement], *, ended: bool) -> None:
        lines = [header_line(self.cluster, self.version, self.about), *map(series_line, series)]
        if ended:
            lines.append(end_line(len(series)))
        write_atomically(self.path, "".join(line + "\n" for line in lines))


def seconds_taken(path: Path, run: Mapping[str, Any]) -> float:
    """Return the seconds that a run took before it was interrupted, as far as they left anything in
    the file: until its last point was written.

    run     what the first line says of it: `BEGAN`, and the `SPENT` of what it went on with
    """
    until = path.stat().st_mtime
    began, spent = run.get(BEGAN, until), run.get(SPENT, 0.0)
    known = all(isinstance(one, int | float) for one in (began, spent))
    return max(spent, 0.0) + max(until - began, 0.0) if known else 0.0


def forget(path: Path, name: str) -> None:
    """Take an entry out of the provenance in the first line of a file of measurements."""
    first, end, rest = path.read_text(encoding="utf-8").partition("\n")
    header = json.loads(first)
    if header["provenance"].pop(name, None) is not None:
        write_atomically(path, json.dumps(header) + end + rest)


def _reasons(excluded: Sequence[str]) -> dict[str, str]:
    """Point, or point and algorithm -> why there is nothing of it, from the sentences of a file."""
    parts = map(excluded_parts, excluded)
    return {f"{call}: {arm}" if arm else call: why for call, arm, why in parts}
