"""Choosing what a probe measures on one computer, in which order and how long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.collective import Collective
from tuner.probe.device_points import device_calls, device_points
from tuner.probe.plan import Arm, Plan, Point
from tuner.table import Choice
from tuner.topology import NODE, NODE_OVERSUBSCRIBED

COLLECTIVE_SIZES = (4, 64, *(2**k for k in range(10, 23)))  # 1 KiB to 4 MiB: protocols change
PINGPONG_SIZES = (
    0, 4, 64, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384, 32768, 65536, 2**17, 2**18, 2**19,
    2**20, 2**21, 2**22, 2**23,
)  # fmt: skip
BURST_SIZES = (8, 1024, 8192)
BURST_LENGTHS = (1, 33)
REDUCTION_SIZES = (0, 64, 1024, 4096, 16384, 65536, 2**18, 2**20, 2**22, 2**23)

# Rough seconds, used for nothing but dealing out the time budget; measured times correct it.
PER_SAMPLE, PER_MESSAGE, PER_BYTE = 5e-4, 2e-6, 5e-10
SHARE_OF_MESSAGES = 0.12  # of the budget, all that is not a collective


def communicator_sizes(ranks: int) -> tuple[int, ...]:
    """2, 3, 4, 6, 8, 12, 16, ... up to and always including `ranks`."""
    sizes = {2**k * f // 2 for k in range(1, ranks.bit_length() + 1) for f in (2, 3)} | {ranks}
    return tuple(sorted(p for p in sizes if 2 <= p <= ranks))


Candidates = Callable[[Collective, int, int], Sequence[Choice]]
SettingsOf = Callable[[Collective, Choice], Mapping[str, int | str]]


def make_plan(
    library: str,
    ranks: int,
    cores: int,
    target: float,
    operators: str,
    launches: int,
    sizes: Sequence[int],
    candidates: Candidates,
    settings: SettingsOf,
    parts: Collection[str],
) -> Plan:
    """What needs a GPU first, as without one its time is left for the others; then messages and
    reductions, then collectives from few ranks to many, small to large.

    Every launch measures all collectives anew; messages are measured in the first one.
    """
    once = tuple(_collective_points(ranks, sizes, candidates, settings))
    share = SHARE_OF_MESSAGES / (1 - SHARE_OF_MESSAGES) * launches * sum(q.weight for q in once)
    points: list[Point] = []
    calls: list[Point] = []
    if "devices" in parts:
        points += _scaled(list(device_points(1, ranks)), share)
        calls += device_calls(once)
    if "messages" in parts:
        points += _scaled(list(_message_points(ranks, cores)), share)
    if "collectives" in parts:
        calls += once
    points += [replace(point, launch=n) for n in range(launches) for point in calls]
    return Plan(
        library, ranks, cores, target, operators, tuple(points), devices="devices" in parts
    )  # fmt: skip


def _scaled(points: list[Point], weight: float) -> Iterator[Point]:
    """Points of this weight altogether."""
    whole = sum(point.weight for point in points)
    return (replace(point, weight=weight * point.weight / whole) for point in points)


def _message_points(ranks: int, cores: int) -> Iterator[Point]:
    """Weights here are relative to one another."""
    yield Point("call", "proc_null", 1, 0, (Arm(),), 0.02)
    yield Point("reduction", "sum_float32", 1, 0, _ladder(REDUCTION_SIZES), 0.2)
    yield Point("eager", NODE, 2, 0, (Arm(),), 0.1)
    bursts = tuple(Arm(params={"messages": count}) for count in BURST_LENGTHS)
    for p in sorted({2, min(ranks, cores) // 2 * 2, ranks // 2 * 2} - {0}):
        subject = NODE if p <= max(cores, 2) else NODE_OVERSUBSCRIBED
        for nbytes in BURST_SIZES:
            yield Point("burst", subject, p, nbytes, bursts, 0.05)
        yield Point("pingpong", subject, p, 0, _ladder(PINGPONG_SIZES), 1.0)


def _ladder(sizes: Sequence[int]) -> tuple[Arm, ...]:
    return tuple(Arm(nbytes=nbytes) for nbytes in sizes)


def _collective_points(
    ranks: int, sizes: Sequence[int], candidates: Candidates, settings: SettingsOf
) -> Iterator[Point]:
    for p in communicator_sizes(ranks):
        for collective in (Collective.BCAST, Collective.ALLREDUCE):
            for nbytes in sorted(sizes):
                arms = tuple(
                    Arm(choice.algorithm, dict(choice.params), dict(settings(collective, choice)))
                    for choice in candidates(collective, p, nbytes)
                )
                sample = PER_SAMPLE + p * (PER_MESSAGE + PER_BYTE * nbytes)
                yield Point("collective", str(collective), p, nbytes, arms, len(arms) * sample)
