"""Keep finished pairs of launches in a file, so that an interrupted check goes on from there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.field.calls import Call
from tests.field.launches import Launch
from tests.field.tables import CheckError, Library

FAR = 2.0  # cores that are so many times as far apart make another machine


@dataclass(frozen=True)
class Pair:
    """One launch of either arm, next to each other in time.

    The distances of the cores (ns) were measured before, between and after the launches; there
    are none where there is one core.
    """

    library: str
    ranks: int
    number: int
    default: Launch
    tuned: Launch
    distances: tuple[float, ...] = ()

    @property
    def distance(self) -> float | None:
        return median(self.distances) if self.distances else None

    @property
    def steady(self) -> bool:
        """Return whether the cores were the same distance apart all the time."""
        return not self.distances or max(self.distances) <= FAR * min(self.distances)

    def to_json(self) -> dict[str, Any]:
        return {
            "library": self.library,
            "ranks": self.ranks,
            "number": self.number,
            "distances": self.distances,
            "default": self.default.to_json(),
            "tuned": self.tuned.to_json(),
        }

    @classmethod
    def from_json(cls, entry: Any) -> Pair:
        return cls(
            entry["library"],
            entry["ranks"],
            entry["number"],
            Launch.from_json(entry["default"]),
            Launch.from_json(entry["tuned"]),
            tuple(entry["distances"]),
        )


class Record:
    """A file with a JSON line for each finished pair.

    Lines of other plans stay in the file and are not read: checks of one library, or with other
    options, do not cost what an earlier check has measured.
    """

    def __init__(self, path: Path, plans: dict[str, str], fresh: bool = False) -> None:
        self.path = path
        self.plans = plans
        self.pairs: dict[tuple[str, int, int], Pair] = {}
        entries = self._entries()
        if fresh:
            kept = [entry for entry in entries if not self._is_planned(entry)]
            self._write("w", kept)
            return
        for entry in entries:
            if self._is_planned(entry):
                self._keep(self._pair(entry))

    def add(self, pair: Pair) -> None:
        self._keep(pair)
        self._write("a", [{"plan": self.plans[pair.library], **pair.to_json()}])

    def _keep(self, pair: Pair) -> None:
        self.pairs[pair.library, pair.ranks, pair.number] = pair

    def _is_planned(self, entry: Any) -> bool:
        return entry["plan"] in self.plans.values()

    def _pair(self, entry: Any) -> Pair:
        try:
            return Pair.from_json(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckError(f"{self.path} is damaged ({error!r}): delete it") from error

    def _entries(self) -> list[Any]:
        """Return the complete lines; drop a last one that an interruption has cut."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise CheckError(f"{self.path} cannot be read: {error}") from error
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self.path.write_text(whole)
        try:
            entries = [json.loads(line) for line in whole.splitlines()]
        except json.JSONDecodeError as error:
            raise CheckError(f"{self.path} is damaged ({error}): delete it") from error
        if not all(isinstance(entry, dict) and "plan" in entry for entry in entries):
            raise CheckError(f"{self.path} is damaged (a line without a plan): delete it")
        return entries

    def _write(self, mode: str, entries: list[Any]) -> None:
        try:
            with self.path.open(mode) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)
        except OSError as error:
            raise CheckError(f"{self.path} cannot be written: {error}") from error


def plan_digest(library: Library, calls: list[Call], seconds: float) -> str:
    """Return what tells one plan from another: the tuning, the calls and the time for each."""
    content = repr((library.name, library.version, library.digest, calls, seconds))
    return hashlib.sha256(content.encode()).hexdigest()[:16]
