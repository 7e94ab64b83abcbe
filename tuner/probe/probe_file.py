"""Manage the measurements file of a probe, outside the ranks: resume, extend and finish it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.core.measurement import (
    REQUESTED_CALLS_KEY,
    Cluster,
    Measurement,
    end_line,
    header_line,
    parse_exclusion,
    read_partial,
    series_line,
    unreadable_file_error,
)
from tuner.mpi_libraries.default_algorithms import DEFAULT_ALGORITHMS_KEY
from tuner.probe.all_pairs import describe_slow_pairs
from tuner.probe.monitor import ProbeMonitor
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.sentinels import describe_instability

BEGAN_KEY = "began"  # of a run: its start, in seconds since the epoch
SPENT_KEY = "spent"  # of a run: the seconds taken before
UNFINISHED_KEYS = (BEGAN_KEY, SPENT_KEY)  # entries of the first line until the run has ended
TUNING_KEY = "tuning"  # the run of `tuner tune` that a file belongs to, until it has ended
# Entries that replace those of earlier runs.
OVERRIDING_KEYS = (DEFAULT_ALGORITHMS_KEY, REQUESTED_CALLS_KEY, BEGAN_KEY, TUNING_KEY)
MAX_SHOWN_POINTS = 6  # points that a note names
SKIPPED_NOTE_PREFIX = "left out for want of time: "


class ProbeFile:
    """The measurements file of a probe, between two launches.

    provenance      what is known beforehand, with `plan`, `budget` (s) and, if known,
                    `default_runs`; also `rounds` if batches of chosen points were added to the plan
    retry_skipped   whether what earlier runs left out is measured now; the budget is then that of
                    this run alone. None: the budget is that of all runs together, and a larger one
                    measures what earlier runs left out
    is_finished     whether nothing is left to measure
    skipped_keys    keys of points for which an earlier run had no time
    unmeasurable_keys   keys of points that an earlier run found impossible to measure
    remaining_seconds   seconds of measuring for what is left
    spent_seconds   seconds of the budget that earlier runs took
    """

    def __init__(
        self,
        path: Path,
        cluster: Cluster,
        version: str,
        plan: ProbePlan,
        provenance: dict[str, Any],
        retry_skipped: bool | None = None,
    ) -> None:
        self.path, self.cluster, self.version = path, cluster, version
        self.plan, self.provenance = plan, provenance
        self.is_finished = False
        self.skipped_keys: list[list[Any]] = []
        self.unmeasurable_keys: list[list[Any]] = []
        self.remaining_seconds: float = provenance["budget"]
        self.spent_seconds = 0.0
        self._retry_skipped = retry_skipped
        self._is_taken_over = False
        self._interrupted_seconds = 0.0

    def check_same_probe(self) -> None:
        """Raise InputError for a file of another probe; change nothing."""
        header, series = self._read()
        if header is not None and (series or self.is_finished):
            self._require_same(header)

    def resume(self) -> ProbePlan:
        """Return what is left to measure; reduce an unfinished file to its finished points.

        The first time the file is replaced even if nothing in it changes: ranks of a killed run
        that are still alive then notice, and stop writing.
        """
        header, series = self._read()
        whole = self.is_finished
        if header is not None and (series or self.is_finished) and not self._is_taken_over:
            self._require_same(header)
            self._resume_from(header["provenance"])
        kept = series if whole else self.plan.select_finished(series)
        left = self.plan.drop_measured(kept).drop_points(
            [*self.skipped_keys, *self.unmeasurable_keys]
        )
        if self.is_finished:
            return left
        if not self._is_taken_over or len(kept) < len(series) or not self._ends_with_newline():
            self._write(kept, ended=False)
        self._is_taken_over = True
        return left

    def finish(self, monitor: ProbeMonitor) -> None:
        """Write what is now known about the whole probe, and the last line."""
        _, series, _ = read_partial(self.path)
        cluster = monitor.environment.pop("cluster", None)
        if cluster and self.plan.hosts:
            self.cluster = replace(self.cluster, **cluster)
        unmeasured = [list(point.key) for point in self.plan.drop_measured(series).points]
        left_out = [key for key in unmeasured if key in [*self.skipped_keys, *monitor.skipped_keys]]
        why = {**_parse_reasons(self.provenance.get("excluded", [])), **monitor.reasons}
        self.provenance = {
            **self.provenance,
            **monitor.environment,
            "excluded": self.plan.drop_points(left_out).list_exclusions(series, why),
            "seconds": round(
                monitor.elapsed + self._interrupted_seconds + self.provenance.get("seconds", 0.0), 1
            ),
        }
        for name in UNFINISHED_KEYS:
            self.provenance.pop(name, None)
        notes = self._make_notes(series, monitor, left_out)
        if self.plan.hosts or notes:
            self.provenance["notes"] = notes
        lacking = [key for key in unmeasured if key not in left_out]
        for name, keys in {"left_out": left_out, "lacking": lacking}.items():
            if keys:
                self.provenance[name] = keys
        self._write(series, ended=True)

    def _resume_from(self, before: dict[str, Any]) -> None:
        """Continue the run that the provenance `before` of the file describes."""
        rounds = self.provenance.get("rounds", [])
        told = {name: self.provenance[name] for name in OVERRIDING_KEYS if name in self.provenance}
        added = rounds != before.get("rounds", [])
        known: list[list[Any]] = before.get("left_out", [])
        budget = self.provenance["budget"]
        larger = (
            budget > before.get("budget", budget)
            if self._retry_skipped is None
            else self._retry_skipped
        )
        more = self.is_finished and not added and bool(known) and larger
        taken = 0.0 if self.is_finished else interrupted_seconds(self.path, before)
        self._interrupted_seconds = min(taken, before.get("budget", budget))
        if self._retry_skipped is None and not added:
            self.spent_seconds = self._interrupted_seconds + before.get("seconds", 0.0)
            self.remaining_seconds = max(budget - self.spent_seconds, 0.0)
        if self.is_finished and (added or more):
            self.is_finished = False
        self.skipped_keys, self.unmeasurable_keys = [] if more else known, before.get("lacking", [])
        used = budget if more or added else before.get("budget", budget)
        self.provenance = {**before, **told, "budget": used, SPENT_KEY: self._interrupted_seconds}
        if more:  # also if this run is killed and resumed
            self.provenance.pop("left_out", None)
        if rounds:
            self.provenance["rounds"] = rounds

    def _make_notes(
        self, series: Sequence[Measurement], monitor: ProbeMonitor, left_out: list[list[Any]]
    ) -> list[str]:
        told = [
            note
            for note in self.provenance.get("notes", [])
            if not note.startswith(SKIPPED_NOTE_PREFIX)
        ]
        names = [str(q) for q in self.plan.points if list(q.key) in left_out]
        found = [
            *told,
            *monitor.notes,
            *describe_instability(series),
            *describe_slow_pairs(series, self.plan.hosts),
        ]
        if names:
            fixed = self._retry_skipped is None or not self.plan.hosts
            larger = " with a larger --budget" if fixed else ""
            shown = ", ".join(names[:MAX_SHOWN_POINTS]) + (
                " ..." if len(names) > MAX_SHOWN_POINTS else ""
            )
            found.append(
                f"{SKIPPED_NOTE_PREFIX}{len(names)} of {len(self.plan.points)} points ({shown});"
                f" the same command{larger} measures them"
            )
        return list(dict.fromkeys(found))

    def _read(self) -> tuple[dict[str, Any] | None, list[Measurement]]:
        if not self.path.exists():
            return None, []
        try:
            header, series, ended = read_partial(self.path)
        except (OSError, UnicodeDecodeError) as reason:
            raise unreadable_file_error(self.path, reason) from None
        self.is_finished = ended
        return header, series

    def _ends_with_newline(self) -> bool:
        return self.path.read_bytes().endswith(b"\n")

    def _require_same(self, header: dict[str, Any]) -> None:
        here, there = asdict(self.cluster), header["cluster"]
        names = ("name", "nodes") if self.plan.hosts else tuple(here)  # may run on another host
        same = all(here[name] == there.get(name) for name in names)
        theirs = (header["library"], header["provenance"].get("plan"))
        if not same or theirs != (self.version, self.provenance["plan"]):
            plan = "plan, of other ranks, hosts, sizes, algorithms or parts"
            other = "cluster" if not same else "library" if theirs[0] != self.version else plan
            raise InputError(
                f"{self.path} holds a probe of another {other} (its cluster is called"
                f" {there.get('name')!r}, its library {header['library']}): choose another file or"
                " delete it"
            )

    def _write(self, series: Sequence[Measurement], *, ended: bool) -> None:
        lines = [
            header_line(self.cluster, self.version, self.provenance),
            *map(series_line, series),
        ]
        if ended:
            lines.append(end_line(len(series)))
        write_atomically(self.path, "".join(line + "\n" for line in lines))


def interrupted_seconds(path: Path, run: Mapping[str, Any]) -> float:
    """Return the seconds that a run took until its last point was written before an interruption.

    run     provenance from the first line of the file, with `BEGAN_KEY` and the `SPENT_KEY` of the
            run that it continued
    """
    until = path.stat().st_mtime
    began, spent = run.get(BEGAN_KEY, until), run.get(SPENT_KEY, 0.0)
    known = all(isinstance(one, int | float) for one in (began, spent))
    return max(spent, 0.0) + max(until - began, 0.0) if known else 0.0


def remove_provenance(path: Path, name: str) -> None:
    """Remove an entry from the provenance in the first line of a measurements file."""
    first, end, rest = path.read_text(encoding="utf-8").partition("\n")
    header = json.loads(first)
    if header["provenance"].pop(name, None) is not None:
        write_atomically(path, json.dumps(header) + end + rest)


def _parse_reasons(excluded: Sequence[str]) -> dict[str, str]:
    """Map each point, or point and algorithm, of a file's exclusions to its reason."""
    parts = map(parse_exclusion, excluded)
    return {f"{call}: {candidate}" if candidate else call: why for call, candidate, why in parts}
