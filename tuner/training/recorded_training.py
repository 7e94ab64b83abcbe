"""Training as recorded: the steps of an iteration on other ranks, networks and algorithms.

    recorded: workload.txt
    topology: preset:summit
    ranks: 192
    batch: 2                        # optional
    groups: {TP: {size: 2}}         # optional

`recorded` is a file that `tuner.training.workload_files` reads. Each rank computes what the file
says; its calls are predicted. `batch` is the number of samples of an iteration over the number of
ranks, which may be a fraction; without it an iteration counts as one sample. `groups` gives the
number of ranks of groups of the file, and their distance as `stride`, whether the file does or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.machines import Machine
from tuner.topology import Placement
from tuner.training.call_times import AlgorithmPolicy, CallTimes
from tuner.training.groups import Call, Group, even_group
from tuner.training.published import PublishedResult
from tuner.training.recorded import COMPUTE, HOST, RecordedStep, RecordedWorkload
from tuner.training.timeline import CALL, COMPUTATION, WAIT, Timeline
from tuner.whatif.axes import GridPoint, apply_axes

MAX_NAMED = 8  # names of calls in a warning


@dataclass(frozen=True)
class RecordedTraining:
    """A recorded iteration, and the ranks, the machine and the algorithms to predict it for.

    batch       samples of an iteration over the number of ranks; 0 where nothing tells it
    ranks       numbers of ranks, ascending
    published   none: what is published of a recorded iteration is not known
    """

    name: str
    recorded: RecordedWorkload
    batch: float
    machine: Machine
    ranks: tuple[int, ...]
    ppn: int
    memory: str
    policy: AlgorithmPolicy
    published: tuple[PublishedResult, ...] = ()

    def samples(self, ranks: int) -> float:
        """Return the samples of an iteration on some number of ranks."""
        return self.batch * ranks if self.batch else 1.0

    def call_times(self, ranks: int) -> CallTimes:
        machine, placement = place_ranks(self.machine, self.ppn, ranks)
        return CallTimes(placement, machine.calibration, self.memory, self.policy)


def recording_warnings(training: RecordedTraining) -> Iterator[str]:
    """Yield a warning for all that the file does not have or that is not predicted as it says.

    Shares of bytes are those on the largest number of ranks.
    """
    recorded, p = training.recorded, training.ranks[-1]
    alone = "" if any(step.collective for step in recorded.steps) else "computation alone"
    if recorded.unread:
        names = ", ".join(recorded.unread[:MAX_NAMED]) + ", ..." * (
            len(recorded.unread) > MAX_NAMED
        )
        yield (
            f"caution: {recorded.name} has calls that cannot be read and are left out: {names}"
            + (alone and f"; {alone} is predicted")
        )
    elif alone:
        yield (
            f"caution: {recorded.name} has no collective calls, so that {alone} is predicted:"
            " record a rank of a distributed job"
        )
    spec = training.machine.spec
    if spec and spec.product and recorded.gpu and spec.product.lower() not in recorded.gpu.lower():
        yield (
            f"caution: {recorded.name} was recorded on {recorded.gpu}, and {training.machine.name}"
            f" has {spec.product}: computing is taken to last as long as recorded"
        )
    yield from (f"caution: {recorded.name}: {note}" for note in recorded.notes)
    moved = _bytes_by_group(recorded, p)
    for name, ranks in recorded.uneven.items():
        yield (
            f"caution: group {name} of {recorded.name} has the ranks {shortened_repr(list(ranks))},"
            " at unequal distances: it is predicted as one of ranks at equal distances on about as"
            f" many nodes, and has {moved[name] / max(1, moved.total()):.1%} of the bytes of calls"
        )


def _bytes_by_group(recorded: RecordedWorkload, p: int) -> Counter[str]:
    """Return the bytes of the calls of each group among p ranks."""
    sizes = {name: size or p for name, (size, _) in recorded.groups.items()}
    sizes |= {name: len(ranks) for name, ranks in recorded.uneven.items()}
    moved = Counter[str]()
    for step in recorded.steps:
        moved[step.group] += step.nbytes * (sizes.get(step.group, 1) if step.per_rank else 1)
    return moved


def place_ranks(
    machine: Machine, ppn: int, ranks: int, link_values: GridPoint | None = None
) -> tuple[Machine, Placement]:
    """Return the machine with the nodes that a number of ranks fill, and the ranks on them.

    link_values     latencies and bandwidths of the network that differ from the machine's, by axis
    """
    ppn = min(ppn, ranks)
    nodes = -(-ranks // ppn)
    machine = apply_axes(machine, {**(link_values or {}), "nodes": nodes})
    return machine, Placement.block(machine.topology, ppn, ranks)


def add_recorded_iteration(recorded: RecordedWorkload, times: CallTimes, timeline: Timeline) -> int:
    """Add all steps of a recorded iteration; return the operation after which all have ended.

    Calls of one group run one after the other, those of several groups side by side.

    Raises InputError for a group that does not fit the ranks, or whose ranks are not known.
    """
    recorded = recorded.with_groups(_even_groups(recorded, times.placement))
    numbers: list[int] = []
    for step in recorded.steps:
        after = [numbers[other] for other in step.after]
        if step.stream == COMPUTE:
            numbers.append(timeline.add(step.name, COMPUTE, COMPUTATION, step.seconds, after))
            continue
        if step.stream == HOST:
            numbers.append(timeline.add(step.name, HOST, WAIT, step.seconds, after))
            continue
        call = call_of(step, recorded, times.placement.p)
        stream = f"communication {step.group}"
        seconds = times.seconds(call)
        numbers.append(timeline.add(step.name, stream, CALL, seconds, after, call=call))
    bubble = recorded.bubble * timeline.end_of(COMPUTE)
    return timeline.add("wait", COMPUTE, WAIT, bubble, numbers)


def _even_groups(recorded: RecordedWorkload, placement: Placement) -> dict[str, tuple[int, int]]:
    """Return size and stride of groups that take the place of uneven ones; raises InputError."""
    found = {}
    for name, ranks in recorded.uneven.items():
        if max(ranks) >= placement.p:
            raise InputError(
                f"{recorded.name}: group {name} has rank {max(ranks)}, and the job has"
                f" {placement.p} ranks: give the number and the distance of its ranks with `groups`"
            )
        group = even_group(ranks, placement)
        found[name] = group.size, group.stride
    return found


def call_of(step: RecordedStep, recorded: RecordedWorkload, p: int) -> Call:
    """Return the call of a step among p ranks; raise InputError for a group of unknown ranks."""
    if step.group not in recorded.groups:
        raise InputError(
            f"{recorded.name}: the file does not say which ranks are in group {step.group}: add"
            f" `groups: {{{step.group}: {{size: 8, stride: 1}}}}` with their number and distance"
        )
    size, stride = recorded.groups[step.group]
    group = Group(size or p, stride)
    nbytes = step.nbytes * group.size if step.per_rank else step.nbytes
    return Call(step.collective, nbytes, group)
