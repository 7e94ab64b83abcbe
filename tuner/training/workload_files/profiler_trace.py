"""Traces of PyTorch's profiler (`torch.profiler`, Chrome JSON) as recorded iterations.

    with profile(activities=[...], schedule=..., record_shapes=True) as profiler: ...
    profiler.export_chrome_trace("trace.json.gz")

The last `ProfilerStep#N` is the iteration; without any the whole trace is one. On a GPU its kernels
are those that were launched during the step, and those of NCCL are the calls. On a CPU the
operators of all threads compute, and the events of gloo are the calls; these do not name their
group, so that all ranks take part.

Annotations of other backends, calls whose operation is not known, and whatever else shows calls
where none was found, are named as unread. Calls of NCCL without any kernels are refused: operators
of the host then only launch what computes.

What waits for what is not recorded. A call waits for what was computed before it was issued. A gap
between computations in which a call ended, of at least MIN_WAIT, was spent waiting for it; other
gaps are time of the host and belong to the computation.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import plural
from tuner.training.recorded import COMMUNICATION, COMPUTE, WORLD, RecordedStep, RecordedWorkload
from tuner.training.workload_files.chakra import check_other_form
from tuner.training.workload_files.trace_calls import (
    NAME,
    PARAMETERS,
    ProcessGroups,
    TracedCall,
    call_names,
    call_of_annotation,
    call_of_fields,
    group_ranks,
    operation_of_event,
)

MICROSECONDS = 1e6  # in a second
MIN_WAIT = 20.0  # microseconds; gaps between the launches of kernels are shorter
MAX_EVENTS = 4_000_000
MAX_MOMENT = 1e18  # microseconds
STEP = "ProfilerStep#"
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_KERNEL = re.compile(r"(void )?[nr]ccl", re.IGNORECASE)  # of NCCL or RCCL


@dataclass(frozen=True)
class TraceEvent:
    """An event with its times in microseconds."""

    name: str
    category: str
    thread: str
    start: float
    end: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class TimedTraceCall:
    """A call: when it was issued, when it ran, in microseconds, and what it does."""

    name: str
    issued: float
    start: float
    end: float
    call: TracedCall


IterationParts = tuple[list[TraceEvent], list[TimedTraceCall], list[str]]


def is_profiler_trace(data: bytes) -> bool:
    """Return whether these are the bytes of JSON."""
    return data.lstrip()[:1] in (b"{", b"[")


def parse_profiler_trace(data: bytes, name: str) -> RecordedWorkload:
    """Return the last iteration of a trace; raise InputError for a malformed one."""
    record = _parse_json(data)
    if not isinstance(record, dict) or not isinstance(record.get("traceEvents"), list):
        check_other_form(data)
        raise InputError("expected a trace of PyTorch's profiler, with a list traceEvents")
    if len(record["traceEvents"]) > MAX_EVENTS:
        raise InputError(f"more than {MAX_EVENTS} events: record fewer iterations")
    events = list(_events(record["traceEvents"]))
    groups = _groups(record, events)
    start, end = _iteration(events)
    device = [one for one in events if one.category in _DEVICE]
    found = _of_device(events, device, start, end) if device else _of_host(events, start, end)
    busy, calls, unknown = found
    here = (one.name for one in events if start <= one.start <= end and "gpu" not in one.category)
    unread = (
        *_unread(call_names(here), ("nccl:" if device else "gloo:") if calls else ""),
        *(f"{one} ({plural(number, 'call')})" for one, number in Counter(unknown).items()),
    )
    if device and busy:
        start = min([busy[0].start, *(one.start for one in calls)])
        end = max([*(one.end for one in busy), *(one.end for one in calls)])
    steps = tuple(_steps(busy, sorted(calls, key=lambda one: one.start), start, end, groups))
    known = sorted({step.group for step in steps} - {WORLD})
    shapes = {one: shape for one in known if (shape := groups.shape(one))}
    uneven = {one: ranks for one in known if (ranks := groups.uneven_ranks(one))}
    return RecordedWorkload(
        name,
        steps,
        {WORLD: (0, 1)} | shapes,
        groups.world,
        uneven=uneven,
        unread=unread,
        gpu=_gpu(record.get("deviceProperties")),
        notes=tuple(_notes(calls)),
    )


def _gpu(devices: Any) -> str:
    """Return the names of the GPUs of a trace, "" where it has none."""
    listed = devices if isinstance(devices, list) else []
    names = (one.get("name") for one in listed if isinstance(one, dict))
    return " and ".join(dict.fromkeys(one for one in names if isinstance(one, str) and one))


def _notes(calls: Sequence[TimedTraceCall]) -> Iterator[str]:
    """Yield a sentence on calls whose blocks have different lengths."""
    uneven = [one.call.largest for one in calls if one.call.largest > 1]
    if uneven:
        yield (
            f"{plural(len(uneven), 'call')} with blocks of unequal lengths, up to {max(uneven):.3g}"
            " times their mean: predicted with equal ones, which take less time"
        )


def _parse_json(data: bytes) -> Any:
    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError):
        check_other_form(data)
        raise InputError(
            "not JSON: a trace of PyTorch's profiler that is cut off or damaged?"
        ) from None


def _events(records: list[Any]) -> Iterator[TraceEvent]:
    """Yield the events that have a duration."""
    for record in records:
        if not isinstance(record, dict) or record.get("ph") != "X":
            continue
        name, category = str(record.get("name", "")), str(record.get("cat", ""))
        start, duration = (_moment(record.get(key), name) for key in ("ts", "dur"))
        if duration < 0:
            raise InputError(f"event {shortened_repr(name)} has a negative duration")
        fields = record.get("args")
        thread = f"{record.get('pid')}:{record.get('tid')}"
        fields = fields if isinstance(fields, dict) else {}
        yield TraceEvent(name, category.lower(), thread, start, start + duration, fields)


def _moment(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= MAX_MOMENT:
        raise InputError(
            f"event {shortened_repr(name)} has the time {shortened_repr(value)}: microseconds are"
            " expected"
        )
    return float(value)


def _groups(record: Mapping[str, Any], events: Sequence[TraceEvent]) -> ProcessGroups:
    """Return the groups that the trace names, at its beginning or with its calls."""
    job = record.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    listed = job.get("pg_config")
    ranks = {
        str(one.get("pg_name")): group_ranks(one.get("ranks"))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    }
    for event in events:
        if "Process Group Ranks" in event.fields:
            name = str(event.fields.get("Process Group Name"))
            ranks[name] = ranks.get(name) or group_ranks(event.fields["Process Group Ranks"])
    world = job.get("world_size", 0)
    return ProcessGroups(world if type(world) is int and 0 <= world < 1 << 24 else 0, ranks)


def _iteration(events: Sequence[TraceEvent]) -> tuple[float, float]:
    """Return the start and the end of the last iteration, in microseconds."""
    steps = [one for one in events if one.name.startswith(STEP) and "gpu" not in one.category]
    if steps:
        last = max(steps, key=lambda one: one.start)
        return last.start, last.end
    if not events:
        raise InputError("expected events with a duration in the trace")
    return min(one.start for one in events), max(one.end for one in events)


def _unread(names: Sequence[str], read: str) -> tuple[str, ...]:
    """Return the names of calls that are not read: of annotations, or all without these.

    read    how the annotations of the calls that are read begin, "" where none are
    """
    annotations = tuple(one for one in names if ":" in one and "::" not in one)
    if not read:
        return annotations or tuple(names)
    return tuple(one for one in annotations if not one.startswith(read))


def _of_host(events: Sequence[TraceEvent], start: float, end: float) -> IterationParts:
    """Return what computes on a CPU, the calls, and the names of unknown ones."""
    here = [one for one in events if start <= one.start and one.end <= end]
    nccl = call_names(one.name for one in here if one.name.startswith("nccl:"))
    if nccl:
        raise InputError(
            f"the trace has calls of NCCL, such as {shortened_repr(nccl[0])}, and no kernels, which"
            " alone say how long the GPU computes: record it with ProfilerActivity.CUDA, too"
        )
    operators = [one for one in here if one.category == "cpu_op"]
    issued = defaultdict[str, list[float]](list)
    for one in sorted(operators, key=lambda one: -one.start):
        if one.name.startswith("c10d::"):
            issued[operation_of_event(one.name)].append(one.start)
    calls, unknown = list[TimedTraceCall](), list[str]()
    for one in sorted((e for e in here if e.name.startswith("gloo:")), key=lambda e: e.start):
        called = call_of_annotation(one.name, one.fields)
        if not called:
            unknown.append(one.name)
            continue
        waiting = issued[called.operation]
        moment = waiting.pop() if waiting and waiting[-1] <= one.start else one.start
        calls.append(TimedTraceCall(one.name, moment, one.start, one.end, called))
    return _merged(one for one in operators if not one.name.startswith("c10d::")), calls, unknown


def _of_device(
    events: Sequence[TraceEvent], device: Sequence[TraceEvent], start: float, end: float
) -> IterationParts:
    """Return what computes on a GPU, the calls, and the names of kernels of unknown ones."""
    launches = {
        one.fields["correlation"]: one
        for one in events
        if one.category in _LAUNCHES and type(one.fields.get("correlation")) is int
    }
    described = _described(events)
    kernels, calls = list[tuple[float, TraceEvent]](), list[TimedTraceCall]()
    unknown = list[str]()
    for one in device:
        correlation = one.fields.get("correlation")
        launch = launches.get(correlation) if type(correlation) is int else None
        moment = launch.start if launch else one.start
        if not start <= moment <= end:
            continue
        if NAME not in one.fields and not _KERNEL.match(one.name):
            kernels.append((moment, one))
            continue
        called = _call_of_kernel(one, launch, described)
        if called:
            calls.append(TimedTraceCall(one.name, moment, one.start, one.end, called))
        else:
            unknown.append(re.split(r"[(<]", one.name, maxsplit=1)[0])
    return _merged(one for _, one in kernels), _issued_on_device(calls, kernels), unknown


def _call_of_kernel(
    kernel: TraceEvent, launch: TraceEvent | None, described: Mapping[str, Sequence[TraceEvent]]
) -> TracedCall | None:
    """Return the call that a kernel of NCCL carries out."""
    if NAME in kernel.fields:
        return call_of_fields(kernel.fields)
    around = described.get(launch.thread, ()) if launch else ()
    at = bisect_right(around, launch.start, key=lambda one: one.start) - 1 if launch else -1
    if launch and at >= 0 and launch.start <= around[at].end:
        found = around[at]
        if found.name == PARAMETERS:
            return call_of_fields(found.fields)
        return call_of_annotation(found.name, found.fields)
    raise InputError(
        f"{shortened_repr(kernel.name)} has no size, and no {PARAMETERS} is around its"
        " launch: record the trace with ProfilerActivity.CPU, too"
    )


def _described(events: Sequence[TraceEvent]) -> Mapping[str, Sequence[TraceEvent]]:
    """Return what describes calls of NCCL, by thread: parameters, or without these annotations."""
    ordered = sorted(events, key=lambda one: one.start)
    found = defaultdict[str, list[TraceEvent]](list)
    for one in ordered:
        if one.name == PARAMETERS and NAME in one.fields:
            found[one.thread].append(one)
    for one in () if found else ordered:
        if one.name.startswith("nccl:") and "gpu" not in one.category:
            found[one.thread].append(one)
    return found


def _issued_on_device(
    calls: Sequence[TimedTraceCall], kernels: Sequence[tuple[float, TraceEvent]]
) -> list[TimedTraceCall]:
    """Return the calls as issued when the kernels that were launched before them have ended."""
    ordered = sorted(kernels, key=lambda pair: pair[0])
    launched = [moment for moment, _ in ordered]
    ends = list[float]()
    for _, kernel in ordered:
        ends.append(max(kernel.end, ends[-1] if ends else kernel.end))
    moved = []
    for one in calls:
        before = bisect_right(launched, one.issued)
        moment = min(ends[before - 1] if before else one.start, one.start)
        moved.append(TimedTraceCall(one.name, moment, one.start, one.end, one.call))
    return moved


def _merged(events: Iterator[TraceEvent]) -> list[TraceEvent]:
    """Return when at least one event runs, as events in order that do not overlap."""
    merged = list[TraceEvent]()
    for one in sorted(events, key=lambda one: (one.start, -one.end)):
        if merged and one.start <= merged[-1].end:
            last = merged[-1]
            end = max(last.end, one.end)
            merged[-1] = TraceEvent(
                last.name, last.category, last.thread, last.start, end, last.fields
            )
        else:
            merged.append(one)
    return merged


def _steps(
    busy: Sequence[TraceEvent],
    calls: Sequence[TimedTraceCall],
    start: float,
    end: float,
    groups: ProcessGroups,
) -> Iterator[RecordedStep]:
    """Yield the steps of an iteration: computations that end where a call is issued or awaited."""
    moments: list[tuple[float, int, float, TimedTraceCall | None]] = [
        (one.issued, 0, one.issued, one) for one in calls
    ]
    moments += [(begin, 1, until, None) for begin, until in _waits(busy, calls, start, end)]
    ends = [one.end for one in busy]
    running = list[tuple[float, int]]()  # end and number of calls that nothing waited for yet
    count, at, awaited, last = 0, start, tuple[int, ...](), 0
    for moment, _, until, call in sorted(moments, key=lambda one: one[:3]):
        if moment > at or awaited or not count:
            yield _computation(busy, ends, at, moment, awaited)
            count, awaited, last = count + 1, (), count
        at = max(at, until)
        if call is None:
            awaited = tuple(number for ended, number in running if ended <= until)
            running = [one for one in running if one[0] > until]
            continue
        yield _call_step(call, last, groups)
        running.append((call.end, count))
        count += 1
    yield _computation(busy, ends, at, end, awaited)


def _computation(
    busy: Sequence[TraceEvent],
    ends: Sequence[float],
    start: float,
    end: float,
    awaited: tuple[int, ...],
) -> RecordedStep:
    """Return the step from one moment to another, named after what runs first."""
    first = bisect_right(ends, start)
    name = busy[first].name if first < len(busy) else "host"
    return RecordedStep(name, COMPUTE, max(0.0, end - start) / MICROSECONDS, after=awaited)


def _call_step(one: TimedTraceCall, last: int, groups: ProcessGroups) -> RecordedStep:
    call = one.call
    ranks = groups.ranks_of.get(call.group, ())
    group = WORLD if groups.world and len(ranks) == groups.world else call.group
    return RecordedStep(
        one.name, COMMUNICATION, 0.0, call.operation, call.nbytes, group, (last,), call.per_rank
    )


def _waits(
    busy: Sequence[TraceEvent], calls: Sequence[TimedTraceCall], start: float, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the gaps that were spent waiting for calls: from the last computation to the end."""
    ends = sorted(one.end for one in calls)
    before = [start, *(one.end for one in busy)]
    after = [*(one.start for one in busy), end]
    for begin, until in zip(before, after, strict=True):
        at = bisect_right(ends, until) - 1
        if until - begin >= MIN_WAIT and at >= 0 and ends[at] > begin:
            yield begin, ends[at]
