"""Launches of the programs of tests/mpi, and a launcher that leaves out the rules file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import patience
from tuner.launch import CompletedRun, Launcher

ROOT = Path(__file__).resolve().parents[2]


def lines_of(launcher: Launcher, ranks: int, library: str, program: str, *given: str) -> list[str]:
    """Return the lines that a program of tests/mpi prints."""
    run = launcher.run(
        ranks,
        [str(ROOT / "tests" / "mpi" / program), *given],
        timeout=patience(30),
        environment={"PYTHONPATH": str(ROOT)},
    )
    return run.stdout.splitlines()


@dataclass(frozen=True)
class Untuned:
    """Starts ranks that do not get the rules file."""

    launcher: Launcher

    @property
    def library(self) -> str:
        return self.launcher.library

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        check: bool = True,
    ) -> CompletedRun:
        return self.launcher.run(
            ranks,
            arguments,
            environment=environment,
            on_line=on_line,
            timeout=timeout,
            silence_timeout=silence_timeout,
            check=check,
        )
