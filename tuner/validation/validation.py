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
from tuner.base.errors import ProbeError, UnendedError
from tuner.base.progress import Counted, quietly
from tuner.core.collective import Collective
from tuner.core.table import Choice, Rule
from tuner.launch.rank_program import rank_program

PROVER = rank_program("tuner.rank_programs.validate")
ITEM = 4  # bytes of the elements it sends where the size allows, else 1
LARGEST = 1 << 25  # bytes of the largest call of a proof
TIMEOUT, EACH = 300.0, 2.0  # seconds of one launch, and more of them for each call
START = 60.0  # likewise, where ranks may die: to the first word
WORD = 10.0  # likewise, from one answer of theirs to the next
_BEGUN, _ANSWER = '{"calls"', '{"call"'  # how the lines of PROVER begin
NO_SIZE = "no call has a size in this range"  # why a rule cannot be tried


class Completed(Protocol):
    """What is left of a launch."""

    @property
    def returncode(self) -> int:
        """0 when every rank ended well."""

    @property
    def stderr(self) -> str:
        """What the ranks and their launcher wrote there."""


class Starter(Protocol):
    """Starts ranks of a real MPI library; `Launcher` and `Spread` of `tuner.launch` do."""

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
        patience: float | None = None,
        check: bool = True,
    ) -> Completed:
        """Run `python ARGUMENTS` on that many ranks."""


@dataclass(frozen=True)
class RuleProof:
    """What the library did with one rule; `executed[i]` at `sizes[i]` bytes.

    confirmed   at every size the rule's algorithm ran; for a default rule: the same as without
                the file
    reason      why not

    A rule without sizes was not tried.
    """

    rule: Rule
    sizes: tuple[int, ...]
    executed: tuple[Choice, ...]
    confirmed: bool
    reason: str = ""

    @classmethod
    def untried(cls, rule: Rule, reason: str) -> RuleProof:
        """Of a rule that nothing is known about, and why."""
        return cls(rule, (), (), False, reason)


@dataclass(frozen=True)
class Trial:
    """One call that belongs to a rule."""

    rule: Rule
    nbytes: int
    commutative: bool = True

    @property
    def collective(self) -> Collective:
        """The collective called."""
        return self.rule.key.collective


@dataclass(frozen=True)
class Answer:
    """What the ranks said about a trial: MPI error class, and what a watcher saw.

    executed    the calls that Open MPI's watcher saw (`struct call` of openmpi_trace.c)
    entered     the functions that Intel MPI's watcher saw, by name
    """

    error: int
    executed: tuple[tuple[int, ...], ...]
    entered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlived:
    """How far ranks came that may die on the way.

    begun       whether their communicators were made
    done        calls that were answered
    stderr      what was written there
    """

    begun: bool
    done: int
    stderr: str


def sizes_of(rule: Rule) -> tuple[int, ...]:
    """Bytes at which a rule is tried: its bounds and the probed sizes within.

    Buffers that are divided have as many bytes for each rank; a rule may hold for none of them.
    """
    p = rule.key.p if rule.key.collective.divided else 1
    probed = [n for n in rule.evidence.nbytes if rule.lo <= n < rule.hi]
    last = [int(rule.hi) - 1] if rule.hi <= LARGEST else []
    fallback = int(max(rule.lo, min(ITEM, rule.hi - 1)))  # a call without data runs nothing
    near = {m for n in (fallback, *probed, *last) for m in (n // p * p, -(-n // p) * p)}
    within = {n for n in near if rule.lo <= n < rule.hi}
    return tuple(sorted({n for n in within if 0 < n <= LARGEST} or within - {0}))


def item_of(nbytes: int) -> int:
    """Bytes of the elements that a call of this size is made of."""
    return ITEM if nbytes % ITEM == 0 else 1


def ask(
    starter: Starter,
    trials: Sequence[Trial],
    directory: Path,
    *,
    settings: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    progress: Counted = quietly,
    spare: int = 0,
) -> dict[int, Answer]:
    """Let real ranks make the calls, all in one launch; answers by position in `trials`. No calls
    start no ranks.

    spare       ranks that take part in no call

    Raises ProbeError where a call has no answer.
    """
    answers: dict[int, Answer] = {}

    def note(line: str) -> None:
        if line.startswith(_ANSWER):
            record = json.loads(line)
            answers[record["call"]] = Answer(
                record["error"], tuple(map(tuple, record["executed"])), tuple(record["entered"])
            )
            progress(len(answers), len(trials))

    if not trials:
        return answers
    starter.run(
        _ranks(trials) + spare,
        _program(trials, directory),
        settings=settings,
        environment=environment,
        on_line=note,
        timeout=TIMEOUT + EACH * len(trials),
    )
    if len(answers) < len(trials):
        raise ProbeError(
            f"the ranks ended after {len(answers)} of {len(trials)} calls without a word: is"
            " --python an interpreter of the environment with the table's library?"
        )
    return answers


def outlived(
    starter: Starter,
    trials: Sequence[Trial],
    directory: Path,
    *,
    settings: Mapping[str, str],
    spare: int = 0,
) -> Outlived:
    """Let real ranks make the calls, which may die on the way.

    spare       as in `ask`

    Not every such launch ends: MPICH's mpiexec waits for ever after some deaths on several hosts,
    so it is ended when no answer comes any more.
    """
    begun, answered = list[str](), list[str]()

    def note(line: str) -> float | None:
        for kind, lines in ((_BEGUN, begun), (_ANSWER, answered)):
            if line.startswith(kind):
                lines.append(line)
                return WORD
        return None

    try:
        run = starter.run(
            _ranks(trials) + spare,
            _program(trials, directory),
            settings=settings,
            on_line=note,
            timeout=START + EACH * len(trials),
            patience=START,
            check=False,
        )
    except UnendedError as late:
        return Outlived(bool(begun), len(answered), late.stderr)
    return Outlived(bool(begun), len(answered), run.stderr)


def _ranks(trials: Sequence[Trial]) -> int:
    return max(trial.rule.key.p for trial in trials)


def _program(trials: Sequence[Trial], directory: Path) -> list[str]:
    path = directory / "calls.json"
    write_atomically(path, json.dumps([_record(trial) for trial in trials]))
    return [*PROVER, str(path)]


def _record(trial: Trial) -> dict[str, str | int | bool]:
    key = trial.rule.key
    return {
        "collective": str(trial.collective),
        "nodes": key.nodes,
        "ppn": key.ppn,
        "nbytes": trial.nbytes,
        "commutative": trial.commutative,
    }
