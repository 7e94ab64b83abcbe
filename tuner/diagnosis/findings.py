"""The findings and problems of a diagnosis, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A topic, such as `launcher`, and the lines about it."""

    topic: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SetupProblem:
    """A problem, and what to type or do about it.

    fatal   whether nothing can be measured because of it
    """

    text: str
    remedy: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


@dataclass(frozen=True)
class CheckResult:
    """The findings and problems of one check."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[SetupProblem, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """The findings and problems of all checks."""

    findings: tuple[Finding, ...]
    problems: tuple[SetupProblem, ...]

    @property
    def is_usable(self) -> bool:
        return not any(problem.fatal for problem in self.problems)

    @classmethod
    def combine(cls, parts: Iterable[CheckResult]) -> Diagnosis:
        """Return the findings and problems of several checks, in their order."""
        listed = list(parts)
        return cls(
            tuple(finding for part in listed for finding in part.findings),
            tuple(problem for part in listed for problem in part.problems),
        )

    def to_record(self) -> dict[str, Any]:
        return {
            "able": self.is_usable,
            "findings": {one.topic: list(one.lines) for one in self.findings},
            "problems": [asdict(problem) for problem in self.problems],
        }


def make_finding(topic: str, *lines: str) -> Finding:
    """Return a finding of the lines that are not empty."""
    return Finding(topic, tuple(filter(None, lines)))
