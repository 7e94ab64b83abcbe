"""Observe which algorithm really runs under an emitted file, rule by rule.

Open MPI: a preloaded tracer reports the arguments of each call and the algorithm that it enters.
Without a C compiler, and for MPICH, whose algorithms cannot be traced, a fault is injected into a
rule instead (an impossible algorithm), so that exactly the calls which reach that rule fail. Intel
MPI: a tracer reports the functions that each call enters, which must be the same as in a launch
with only the preset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import LaunchTimeoutError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import OPERATORS, AlgorithmChoice, Rule
from tuner.launch.rank_program import rank_arguments

VALIDATION_PROGRAM = rank_arguments("tuner.rank_programs.validate")
MAX_CALL_BYTES = 1 << 25  # largest call of a validation
LAUNCH_TIMEOUT_S = 300.0  # of a launch, besides its calls
CALL_TIMEOUT_S = 2.0  # of each call
STARTUP_TIMEOUT_S = 60.0  # where ranks may die: until the first line
ANSWER_TIMEOUT_S = 10.0  # where ranks may die: from one observation to the next
_STARTED_PREFIX, _ANSWER_PREFIX = '{"calls"', '{"call"'  # lines of VALIDATION_PROGRAM
NO_CALL_SIZE = "no call has a size in this range"  # reason why a rule cannot be tried


class CompletedLaunch(Protocol):
    """The result of a launch."""

    @property
    def returncode(self) -> int:
        """Return 0 when every rank ended normally."""

    @property
    def stderr(self) -> str: ...


class RankStarter(Protocol):
    """Starts ranks of a real MPI library, as the launchers of `tuner.launch` do.

    These are `Launcher` and `MultiHostLauncher`.
    """

    @property
    def library(self) -> str:
        """`openmpi`, `mpich` or `intelmpi`."""

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
    ) -> CompletedLaunch:
        """Run `python ARGUMENTS` on `ranks` ranks."""


@dataclass(frozen=True)
class RuleValidation:
    """The observed behaviour of the library under one rule.

    sizes       message sizes tried, in bytes; empty where the rule was not tried
    executed    the algorithm that ran at each of them
    confirmed   whether the rule's algorithm ran at every size; for a default rule, whether the same
                ran as without the file
    reason      why the rule is not confirmed
    """

    rule: Rule
    sizes: tuple[int, ...]
    executed: tuple[AlgorithmChoice, ...]
    confirmed: bool
    reason: str = ""

    @classmethod
    def skipped(cls, rule: Rule, reason: str) -> RuleValidation:
        """Return the validation of a rule that was not tried, with the reason."""
        return cls(rule, (), (), False, reason)


@dataclass(frozen=True)
class ValidationCall:
    """One call that belongs to a rule."""

    rule: Rule
    nbytes: int
    commutative: bool = True

    @property
    def collective(self) -> Collective:
        return self.rule.key.collective


@dataclass(frozen=True)
class CallOutcome:
    """The ranks' report on one call.

    error_class         MPI error class, 0 for success
    traced_calls        the calls that Open MPI's tracer saw (`struct call` of openmpi_trace.c)
    entered_functions   the functions that Intel MPI's tracer saw, by name
    """

    error_class: int
    traced_calls: tuple[tuple[int, ...], ...]
    entered_functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class CrashedRun:
    """The progress of ranks that may have died.

    has_started     whether their communicators were made
    error_classes   MPI error classes of the calls that were answered
    stderr          their standard error
    """

    has_started: bool
    error_classes: tuple[int, ...]
    stderr: str

    @property
    def n_answered(self) -> int:
        return len(self.error_classes)


def validation_sizes(rule: Rule) -> tuple[int, ...]:
    """Return the bytes at which a rule is tried: its bounds and the probed sizes within.

    Sizes of collectives with a block for each rank are multiples of the number of ranks; a rule's
    range may contain none.
    """
    p = rule.key.p if rule.key.collective.has_blocks else 1
    probed = [n for n in rule.evidence.nbytes if rule.start_bytes <= n < rule.stop_bytes]
    last = [int(rule.stop_bytes) - 1] if rule.stop_bytes <= MAX_CALL_BYTES else []
    fallback = int(
        max(rule.start_bytes, min(PROBE_ELEMENT_BYTES, rule.stop_bytes - 1))
    )  # at least one byte: a call without data runs no algorithm
    near = {m for n in (fallback, *probed, *last) for m in (n // p * p, -(-n // p) * p)}
    within = {n for n in near if rule.start_bytes <= n < rule.stop_bytes}
    return tuple(sorted({n for n in within if 0 < n <= MAX_CALL_BYTES} or within - {0}))


def element_bytes_of(nbytes: int) -> int:
    """Return the size of the elements in a call of this many bytes."""
    return PROBE_ELEMENT_BYTES if nbytes % PROBE_ELEMENT_BYTES == 0 else 1


def run_calls(
    starter: RankStarter,
    calls: Sequence[ValidationCall],
    directory: Path,
    *,
    settings: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    progress: ProgressCallback = no_progress,
    spare_ranks: int = 0,
) -> dict[int, CallOutcome]:
    """Run the calls on real ranks, all in one launch; without calls no ranks are started.

    spare_ranks     number of extra ranks that take part in no call

    Returns observations by position in `calls`. Raises ProbeError where a call has none.
    """
    answers: dict[int, CallOutcome] = {}

    def note(line: str) -> None:
        if line.startswith(_ANSWER_PREFIX):
            record = json.loads(line)
            answers[record["call"]] = CallOutcome(
                record["error"], tuple(map(tuple, record["executed"])), tuple(record["entered"])
            )
            progress(len(answers), len(calls))

    if not calls:
        return answers
    starter.run(
        _ranks(calls) + spare_ranks,
        _program(calls, directory),
        settings=settings,
        environment=environment,
        on_line=note,
        timeout=LAUNCH_TIMEOUT_S + CALL_TIMEOUT_S * len(calls),
    )
    if len(answers) < len(calls):
        raise ProbeError(
            f"the ranks ended after {len(answers)} of {len(calls)} calls without an error message:"
            " is --python an interpreter of the environment with the table's library?"
        )
    return answers


def run_until_crash(
    starter: RankStarter,
    calls: Sequence[ValidationCall],
    directory: Path,
    *,
    settings: Mapping[str, str],
    spare_ranks: int = 0,
) -> CrashedRun:
    """Run the calls on real ranks, which may die on the way.

    spare_ranks     as in `run_calls`

    Some of these launches never end: MPICH's mpiexec waits forever after some crashes on several
    hosts, so a launch is ended when no more observations come.
    """
    begun, answered = list[str](), list[str]()

    def note(line: str) -> float | None:
        for kind, lines in ((_STARTED_PREFIX, begun), (_ANSWER_PREFIX, answered)):
            if line.startswith(kind):
                lines.append(line)
                return ANSWER_TIMEOUT_S
        return None

    try:
        run = starter.run(
            _ranks(calls) + spare_ranks,
            _program(calls, directory),
            settings=settings,
            on_line=note,
            timeout=STARTUP_TIMEOUT_S + CALL_TIMEOUT_S * len(calls),
            silence_timeout=STARTUP_TIMEOUT_S,
            check=False,
        )
        stderr = run.stderr
    except LaunchTimeoutError as late:
        stderr = late.stderr
    return CrashedRun(bool(begun), tuple(json.loads(one)["error"] for one in answered), stderr)


def empty_call_failures(
    starter: RankStarter, rules: Iterable[Rule], directory: Path, *, settings: Mapping[str, str]
) -> dict[Rule, str]:
    """Return the rules that fail for calls without data, with the reason.

    Whatever a file has for 0 bytes is called with a count of 0 and with a datatype of size 0, for
    each of `rules` that begins there and names an algorithm. What ends the program or hangs does so
    twice. Raises ProbeError where the ranks of any launch end before their first call, which is no
    evidence against a rule.
    """
    left = [
        ValidationCall(rule, 0, rule.key.operators == OPERATORS[1])
        for rule in rules
        if rule.start_bytes == 0 and not rule.choice.is_default
    ]
    failed = dict[Rule, str]()
    while left:
        met = _run_from_first_call(starter, left, directory, settings)
        for trial, error in zip(left, met.error_classes, strict=False):
            if error:
                failed[trial.rule] = f"a call without data fails with MPI error {error}"
        suspects, left = left[met.n_answered :][:1], left[met.n_answered + 1 :]
        if suspects and not _run_from_first_call(starter, suspects, directory, settings).n_answered:
            failed[suspects[0].rule] = "a call without data ends the program or never returns"
    return failed


def _run_from_first_call(
    starter: RankStarter,
    calls: Sequence[ValidationCall],
    directory: Path,
    settings: Mapping[str, str],
) -> CrashedRun:
    """Run the calls as `run_until_crash` does; raises ProbeError where the first is not reached."""
    met = run_until_crash(starter, calls, directory, settings=settings)
    if not met.has_started:
        raise ProbeError(f"the ranks end before their first call: {_last_line(met.stderr)}")
    return met


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip(" -")), "no message")


def _ranks(calls: Sequence[ValidationCall]) -> int:
    return max(trial.rule.key.p for trial in calls)


def _program(calls: Sequence[ValidationCall], directory: Path) -> list[str]:
    path = directory / "calls.json"
    write_atomically(path, json.dumps([_record(trial) for trial in calls]))
    return [*VALIDATION_PROGRAM, str(path)]


def _record(call: ValidationCall) -> dict[str, str | int | bool]:
    key = call.rule.key
    return {
        "collective": str(call.collective),
        "nodes": key.nodes,
        "ppn": key.ppn,
        "nbytes": call.nbytes,
        "commutative": call.commutative,
    }
