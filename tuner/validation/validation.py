"""Showing which algorithm really runs under an emitted file, rule by rule.

Open MPI: a preloaded watcher reports what each call is told and which algorithm it enters; without
a C compiler, and for MPICH whose algorithms cannot be watched, a rule is poisoned instead (given
an impossible algorithm), so that exactly the calls which reach that rule fail. Intel MPI: a watcher
reports the functions that each call enters, which a launch with the preset alone must enter, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import LaunchTimeoutError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig, Rule
from tuner.launch.rank_program import rank_arguments

VALIDATION_PROGRAM = rank_arguments("tuner.rank_programs.validate")
PROBE_ELEMENT_BYTES = 4  # bytes of the elements it sends where the size allows, else 1
MAX_CALL_BYTES = 1 << 25  # bytes of the largest call of a proof
LAUNCH_TIMEOUT_S, CALL_TIMEOUT_S = (
    300.0,
    2.0,
)  # seconds of one launch, and more of them for each call
STARTUP_TIMEOUT_S = 60.0  # likewise, where ranks may die: to the first word
OBSERVATION_TIMEOUT_S = 10.0  # likewise, from one answer of theirs to the next
_STARTED_PREFIX, _OBSERVATION_PREFIX = '{"calls"', '{"call"'  # how the lines of PROVER begin
NO_CALL_SIZE = "no call has a size in this range"  # why a rule cannot be tried


class CompletedLaunch(Protocol):
    """What is left of a launch."""

    @property
    def returncode(self) -> int:
        """0 when every rank ended well."""

    @property
    def stderr(self) -> str:
        """What the ranks and their launcher wrote there."""


class RankStarter(Protocol):
    """Starts ranks of a real MPI library; `Launcher` and `MultiHostLauncher` of `tuner.launch`
    do.
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
        """Run `python ARGUMENTS` on that many ranks."""


@dataclass(frozen=True)
class RuleValidation:
    """What the library did with one rule; `executed[i]` at `sizes[i]` bytes.

    confirmed   at every size the rule's algorithm ran; for a default rule: the same as without
                the file
    reason      why not

    A rule without sizes was not tried.
    """

    rule: Rule
    sizes: tuple[int, ...]
    executed: tuple[AlgorithmConfig, ...]
    confirmed: bool
    reason: str = ""

    @classmethod
    def skipped(cls, rule: Rule, reason: str) -> RuleValidation:
        """Of a rule that nothing is known about, and why."""
        return cls(rule, (), (), False, reason)


@dataclass(frozen=True)
class ValidationCall:
    """One call that belongs to a rule."""

    rule: Rule
    nbytes: int
    commutative: bool = True

    @property
    def collective(self) -> Collective:
        """The collective called."""
        return self.rule.key.collective


@dataclass(frozen=True)
class Observation:
    """What the ranks said about a trial: MPI error class, and what a watcher saw.

    executed    the calls that Open MPI's watcher saw (`struct call` of openmpi_trace.c)
    entered     the functions that Intel MPI's watcher saw, by name
    """

    error_class: int
    traced_calls: tuple[tuple[int, ...], ...]
    entered_functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class CrashedRun:
    """How far ranks came that may die on the way.

    begun       whether their communicators were made
    done        calls that were answered
    stderr      what was written there
    """

    has_started: bool
    n_observed: int
    stderr: str


def validation_sizes(rule: Rule) -> tuple[int, ...]:
    """Bytes at which a rule is tried: its bounds and the probed sizes within.

    Buffers that are divided have as many bytes for each rank; a rule may hold for none of them.
    """
    p = rule.key.p if rule.key.collective.has_blocks else 1
    probed = [n for n in rule.evidence.nbytes if rule.lo <= n < rule.hi]
    last = [int(rule.hi) - 1] if rule.hi <= MAX_CALL_BYTES else []
    fallback = int(
        max(rule.lo, min(PROBE_ELEMENT_BYTES, rule.hi - 1))
    )  # a call without data runs nothing
    near = {m for n in (fallback, *probed, *last) for m in (n // p * p, -(-n // p) * p)}
    within = {n for n in near if rule.lo <= n < rule.hi}
    return tuple(sorted({n for n in within if 0 < n <= MAX_CALL_BYTES} or within - {0}))


def element_bytes_of(nbytes: int) -> int:
    """Bytes of the elements that a call of this size is made of."""
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
) -> dict[int, Observation]:
    """Let real ranks make the calls, all in one launch; answers by position in `calls`. No calls
    start no ranks.

    spare       ranks that take part in no call

    Raises ProbeError where a call has no answer.
    """
    answers: dict[int, Observation] = {}

    def note(line: str) -> None:
        if line.startswith(_OBSERVATION_PREFIX):
            record = json.loads(line)
            answers[record["call"]] = Observation(
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
            f"the ranks ended after {len(answers)} of {len(calls)} calls without a word: is"
            " --python an interpreter of the environment with the table's library?"
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
    """Let real ranks make the calls, which may die on the way.

    spare       as in `run_calls`

    Not every such launch ends: MPICH's mpiexec waits for ever after some deaths on several hosts,
    so it is ended when no answer comes any more.
    """
    begun, answered = list[str](), list[str]()

    def note(line: str) -> float | None:
        for kind, lines in ((_STARTED_PREFIX, begun), (_OBSERVATION_PREFIX, answered)):
            if line.startswith(kind):
                lines.append(line)
                return OBSERVATION_TIMEOUT_S
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
    except LaunchTimeoutError as late:
        return CrashedRun(bool(begun), len(answered), late.stderr)
    return CrashedRun(bool(begun), len(answered), run.stderr)


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
