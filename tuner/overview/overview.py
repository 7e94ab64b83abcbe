"""The overview of a file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.importers import BenchmarkResult
from tuner.machines import Machine


@dataclass(frozen=True)
class Command:
    """A command that takes a file, and what it is for."""

    purpose: str
    text: str


def command(purpose: str, *words: str | Path) -> Command:
    """Return the command of these words, quoted as a shell needs it."""
    return Command(purpose, shlex.join(map(str, words)))


@dataclass(frozen=True)
class Overview:
    """The contents of a file in a few sentences.

    source      the file, or the name of a machine
    kind        what it is, such as `results of osu`
    facts       sentences on its contents
    slow        sentences on what is slow in it, the worst first
    commands    commands that take it
    results     the benchmark results in it
    unknown     what the file does not say of its results: `ranks`, `nodes`
    machine     the machine in it
    libraries   libraries that read the rules in it
    """

    source: str
    kind: str
    facts: Sequence[str] = ()
    slow: Sequence[str] = ()
    commands: Sequence[Command] = ()
    results: Sequence[BenchmarkResult] = ()
    unknown: Sequence[str] = ()
    machine: Machine | None = None
    libraries: Sequence[str] = ()

    @property
    def measured(self) -> datetime | None:
        """Return when the last result was measured; None where the file does not say."""
        return max((one.measured for one in self.results if one.measured), default=None)

    def record(self) -> dict[str, Any]:
        """Return the overview as JSON data."""
        commands = [asdict(each) for each in self.commands]
        about = {"file": self.source, "kind": self.kind, "facts": [*self.facts]}
        return {**about, "slow": [*self.slow], "commands": commands}
