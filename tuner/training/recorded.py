"""Recorded workloads: the steps of one iteration as a trace or a workload file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective, plain_name

COMPUTE, COMMUNICATION, HOST = "compute", "communication", "host"
WORLD = "world"
SEND = "send"
BARRIER = "barrier"
# A barrier counts as an allreduce of one float, as PyTorch carries it out with NCCL
# (ProcessGroupNCCL::barrier); traces give it no bytes.
BARRIER_BYTES = 4
_SPELLINGS = ((spelling, one) for one in Collective for spelling in one.spellings)
_OPERATIONS = {
    # traces have no counts, so that blocks are taken as equally long
    spelling: one.value
    for spelling, one in _SPELLINGS
    if not one.is_ragged
} | {BARRIER: Collective.ALLREDUCE.value, SEND: SEND, "recv": SEND}
_LONGEST_FIRST = sorted(_OPERATIONS, key=len, reverse=True)


def operation_of(name: str) -> str:
    """Return the operation whose name this name begins with; "" where there is none.

    Names are compared in lower case without separators.
    """
    plain = plain_name(name)
    return next((_OPERATIONS[each] for each in _LONGEST_FIRST if plain.startswith(each)), "")


@dataclass(frozen=True)
class RecordedStep:
    """A step of a recorded iteration: a computation or a collective call.

    stream          COMPUTE, COMMUNICATION, or HOST for what the CPU does beside a GPU; the steps of
                    a stream run one after the other
    seconds         duration of a computation; 0 for a call, whose time is predicted
    collective      the value of a `Collective` or SEND (one message to the next rank of the group);
                    "" for a computation
    nbytes          bytes of the buffer of the call, as `Collective` counts them
    group           name of the group of ranks that takes part: WORLD, or as the file has it
    after           numbers of earlier steps that must have ended before this one begins
    per_rank        whether nbytes are those of one rank, of a buffer as many times as large
    """

    name: str
    stream: str
    seconds: float = 0.0
    collective: str = ""
    nbytes: int = 0
    group: str = WORLD
    after: tuple[int, ...] = ()
    per_rank: bool = False


@dataclass(frozen=True)
class RecordedWorkload:
    """A recorded iteration of training.

    groups      number of ranks of each group that the steps name, and the distance between its
                neighbouring ranks; (0, 1) for all ranks of the job; files may not say it of all
    ranks       number of ranks of the job on which it was recorded, 0 where the file has none
    bubble      time in which a stage of a pipeline waits for others, over that of its own steps
    uneven      ranks of the other groups whose ranks are known, which are at unequal distances
    unread      names of calls in the file that cannot be read and have no step
    gpu         names of the GPUs on which it was recorded, "" where the file has none
    notes       sentences on what the file says and the prediction does not follow

    Raises InputError for a negative time or size and for a step that waits for a later one.
    """

    name: str
    steps: tuple[RecordedStep, ...]
    groups: dict[str, tuple[int, int]]
    ranks: int = 0
    bubble: float = 0.0
    uneven: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    gpu: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError(f"workload {self.name} needs one step or more")
        for number, step in enumerate(self.steps):
            if not (step.seconds >= 0 and step.nbytes >= 0):
                raise InputError(
                    f"workload {self.name}: step {step.name} has a negative time or size"
                )
            if any(not 0 <= other < number for other in step.after):
                raise InputError(
                    f"workload {self.name}: step {step.name} waits for one that is not before it"
                )

    def with_groups(self, given: Mapping[str, tuple[int, int]]) -> RecordedWorkload:
        """Return the workload with the given size and stride of groups, whatever the file says.

        Raises InputError for a group that no step has.
        """
        known = {*self.groups, *(step.group for step in self.steps if step.collective)}
        for name in given:
            if name not in known:
                raise InputError(
                    f"groups: {self.name} has no group {name}; it has"
                    f" {shortened_repr(sorted(known))}"
                )
        uneven = {name: ranks for name, ranks in self.uneven.items() if name not in given}
        return replace(self, groups={**self.groups, **given}, uneven=uneven)
