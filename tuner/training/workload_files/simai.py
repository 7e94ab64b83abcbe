"""Workloads of SimAI and ASTRA-sim as text: what one rank of a transformer does in an iteration.

The first line has the kind of parallelism and its degrees, the second one the number of operations,
each further line an operation with twelve fields: name, dependency (not used), then for the forward
pass, the gradient of the input and the gradient of the weights each a compute time in nanoseconds,
a collective and its bytes, and at last the time of an update (not used).

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 16 pp: 12 vpp: 8 ga: 24
        all_gpus: 9216 checkpoints: 0 checkpoint_initiates: 0 pp_comm 50331648   (one line)
    1789
    attention_row -1 1750840 REDUCESCATTER 50331648 875420 ALLGATHER 50331648 875420 NONE 0 100

The forward pass goes through all lines, the backward pass back through them; a line is there once
for each micro-batch. A collective of the forward pass or of an input's gradient is waited for, one
of the weights' gradient overlaps with what follows. Without a suffix a collective is among the
tensor-parallel ranks (TP) in these two and among the data-parallel ones (DP) in the third; the
suffixes _EP and _DP_EP name the ranks that hold other experts, and those that hold the same. Bytes
are those of the whole buffer. Groups are laid out as by Megatron: TP innermost, then EP, DP, PP.

A stage of a pipeline of `pp` stages sends 2 `vpp` `ga` messages of `pp_comm` bytes and waits for
the others (pp - 1) / (ga vpp) of its time, as SimAI's analytical mode counts. Times of 1 ns are
placeholders of a generator without measured times.

Source: astra-sim-alibabacloud/astra-sim/workload and system/MockNcclGroup.cc of
github.com/aliyun/SimAI
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.base.errors import InputError, shortened_repr
from tuner.importers.text import parse_float, parse_int
from tuner.training.recorded import (
    COMMUNICATION,
    COMPUTE,
    SEND,
    RecordedStep,
    RecordedWorkload,
    operation_of,
)

KINDS = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
NANOSECONDS = 1e9  # in a second
MAX_OPERATIONS = 200_000
MAX_MESSAGES = 100_000  # of a pipeline
MAX_DEGREE = 1 << 24
_FIELDS = 12
_NONE = "NONE"
KINDS_OF_CALLS = ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
_DEGREES = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus")


def is_simai_workload(lines: Sequence[str]) -> bool:
    """Return whether the first line names a kind of parallelism."""
    return lines[0].split(" ")[0] in KINDS


@dataclass(frozen=True)
class ParallelDegrees:
    """The numbers of the first line."""

    tensor: int
    expert: int
    stages: int
    chunks: int
    micro_batches: int
    ranks: int
    message: int

    def groups(self) -> dict[str, tuple[int, int]]:
        """Return size and stride of each group; raise InputError where they do not fit the job."""
        data, rest = divmod(self.ranks, self.tensor * self.stages)
        if rest or data % self.expert:
            raise InputError(
                f"line 1: {self.ranks} GPUs cannot be divided by {self.tensor} tensor-parallel"
                f" ranks, {self.stages} stages and {self.expert} expert-parallel ranks"
            )
        tensor, expert = self.tensor, self.expert
        return {
            "TP": (tensor, 1),
            "EP": (expert, tensor),
            "DP": (data, tensor),
            "DP_EP": (data // expert, tensor * expert),
            "PP": (self.stages, self.ranks // self.stages),
        }


@dataclass
class StepList:
    """Steps in the order of execution."""

    steps: list[RecordedStep] = field(default_factory=list)
    waits: tuple[int, ...] = ()  # what the next computation waits for

    def compute(self, name: str, seconds: float) -> None:
        """Add a computation, after what has to be waited for."""
        self.steps.append(RecordedStep(name, COMPUTE, seconds, after=self.waits))
        self.waits = ()

    def call(self, name: str, collective: str, nbytes: int, group: str, *, blocks: bool) -> None:
        """Add a call after the last step that computes; `blocks`: what follows waits for it."""
        after = self.waits or (len(self.steps) - 1,)
        number = len(self.steps)
        self.steps.append(RecordedStep(name, COMMUNICATION, 0.0, collective, nbytes, group, after))
        if blocks:
            self.waits = (number,)


def parse_simai_workload(lines: Sequence[str], name: str) -> RecordedWorkload:
    """Return an iteration of a workload; raise InputError naming the line."""
    degrees = _degrees(lines[0])
    groups = degrees.groups()
    if degrees.stages > 1 and 2 * degrees.chunks * degrees.micro_batches > MAX_MESSAGES:
        raise InputError(f"line 1: vpp and ga give more than {MAX_MESSAGES} messages")
    rows = _rows(lines)
    done = StepList()
    for line, row in rows:
        _add(done, row, 2, "forward", "TP", line)
    _add_messages(done, degrees)
    for line, row in reversed(rows):
        _add(done, row, 5, "input gradient", "TP", line)
        _add(done, row, 8, "weight gradient", "DP", line)
    _add_messages(done, degrees)
    bubble = (degrees.stages - 1) / (degrees.micro_batches * degrees.chunks)
    return RecordedWorkload(name, tuple(done.steps), groups, degrees.ranks, bubble)


def _degrees(text: str) -> ParallelDegrees:
    words = text.split()
    found = {word.rstrip(":"): value for word, value in zip(words, [*words[1:], ""], strict=True)}
    for key in _DEGREES:
        if key not in found:
            raise InputError(f"line 1: {key} is missing: write it like {key}: 1")
    for key in ("checkpoints", "checkpoint_initiates"):
        if found.get(key, "0") != "0":
            raise InputError(f"line 1: {key} are not read: generate it without recomputation")
    message = parse_int(found.get("pp_comm", "0"), "pp_comm", 1)
    numbers = [parse_int(found[key], key, 1, minimum=1) for key in _DEGREES]
    tensor, expert, stages, chunks, micro_batches, ranks = numbers
    if max(numbers) > MAX_DEGREE:
        raise InputError(f"line 1: a degree is larger than {MAX_DEGREE}")
    return ParallelDegrees(tensor, expert, stages, chunks, micro_batches, ranks, message)


def _rows(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return the lines of operations with their numbers."""
    if len(lines) < 2:
        raise InputError("line 1: expected the number of operations below")
    count = parse_int(lines[1].strip(), "the number of operations", 2, minimum=1)
    rows = [(line, text.split()) for line, text in enumerate(lines[2:], 3) if text.strip()]
    if len(rows) > MAX_OPERATIONS:
        raise InputError(f"line 2: more than {MAX_OPERATIONS} operations")
    if len(rows) != count:
        raise InputError(
            f"line 2: {count} operations are announced and {len(rows)} there: the file is cut off"
            " or damaged"
        )
    for line, row in rows:
        if len(row) != _FIELDS:
            raise InputError(f"line {line}: {len(row)} fields, expected {_FIELDS}")
    return rows


def _add(done: StepList, row: list[str], at: int, phase: str, group: str, line: int) -> None:
    """Add the computation and the collective in three fields of an operation."""
    seconds = parse_float(row[at], f"the time of the {phase}", line) / NANOSECONDS
    done.compute(f"{row[0]} {phase}", seconds)
    kind, _, suffix = row[at + 1].partition("_")
    if kind == _NONE:
        return
    if kind not in KINDS_OF_CALLS or suffix not in ("", "EP", "DP_EP"):
        raise InputError(
            f"line {line}: unknown collective {shortened_repr(row[at + 1])}; known: NONE and"
            f" {', '.join(KINDS_OF_CALLS)}, with _EP or _DP_EP"
        )
    nbytes = parse_int(row[at + 2], "the number of bytes", line)
    if nbytes:
        collective = operation_of(kind)
        blocks = phase != "weight gradient"
        done.call(f"{row[0]} {kind}", collective, nbytes, suffix or group, blocks=blocks)


def _add_messages(done: StepList, degrees: ParallelDegrees) -> None:
    """Add the messages to the next stage that one pass sends for all micro-batches."""
    if degrees.stages == 1 or not degrees.message:
        return
    for _ in range(degrees.chunks * degrees.micro_batches):
        done.call("to the next stage", SEND, degrees.message, "PP", blocks=True)
