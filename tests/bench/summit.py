"""Summit's measured allreduce against its own ping-pongs: python -m tests.bench.summit

First, do the presets give back the ping-pongs that they come from, and others that they do not:
sizes nobody fitted, and several messages at once.

Then allreduce. Measured: raw data of the BenchPress study (Bienz et al., arXiv 2010.10378),
Spectrum MPI, in-place maximum of floats in GPU memory, 6 GPUs per node. `library` is its CUDA-aware
allreduce, `explicit` the same with the copies to the host and back written out (median of three
jobs). Jobs of the same call differ by 5 % (median) and up to 46 %.

Predicted: preset `summit`; no number is fitted to an allreduce. Copies cost what one takes while 40
processes use the node's GPUs, as in these jobs. What no ping-pong tells is assumed: that a core
reduces 8 GB/s. Nor does one tell what the library does besides copying: at 64 B it takes 9 to 12 us
more than `explicit` on up to 48 GPUs, and that much too little is predicted.

Which algorithm Spectrum MPI runs is not published. Three hypotheses: Open MPI's fixed decision
before 4.1, as of the time, the one since, and recursive doubling at all sizes. The last was chosen
with the table in view: from 512 KiB times grow with the ranks as it does, while halving and rings
hardly grow. It describes; it confirms nothing.

Takes half a minute: all our algorithms compete in every cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from statistics import median

from tuner import algorithms
from tuner.algorithms import staged
from tuner.base.units import format_size
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.schedule import Round, Schedule
from tuner.machines import Machine, preset, with_nics
from tuner.prediction.call_candidates import build_schedule, list_candidates
from tuner.sim import simulate
from tuner.topology import CUDA, HOST, Placement

KIB = 1 << 10
MIB = 1 << 20
ALLREDUCE = Collective.ALLREDUCE
PPN = {"summit": 6, "sierra": 4, "dgx-a100": 8}
FIT, POINTS, AT_ONCE = "fit", "points", "several at once"


@dataclass(frozen=True)
class Sent:
    """`pairs` ranks from 0 on send to as many from `to` on, all at once: bytes -> us.

    The presets come from `basis` FIT and POINTS of one pair, not from messages AT_ONCE.
    """

    machine: str
    what: str
    memory: str
    to: int
    basis: str
    us: Mapping[int, float]
    pairs: int = 1


def fit(small: float, alpha: float, rate: float, *sizes: int) -> dict[int, float]:
    """What fits say: us of 4 B, and us + bytes / (GB/s) of the sizes."""
    return {4: small, **{n: alpha + n / rate / 1e3 for n in sizes}}


def at_rate(gigabytes: float, pairs: int) -> dict[int, float]:
    """64 messages of 4 MiB per pair, GB/s of all pairs together."""
    return {256 * MIB: pairs * 256 * MIB / gigabytes / 1e3}


MEDIUM = 64 * KIB
LARGE = 512 * KIB
SENT = [
    Sent("summit", "GPUs of a socket", CUDA, 1, FIT, fit(17.4, 16.6, 51.0, MEDIUM, LARGE)),
    Sent("summit", "GPUs across sockets", CUDA, 3, FIT, fit(18.8, 18.0, 46.0, MEDIUM, LARGE)),
    Sent(
        "summit",
        "GPUs off node",
        CUDA,
        6,
        POINTS,
        {4: 6.2, KIB: 6.4, 8 * KIB: 8.2, MEDIUM: 14.1, 256 * KIB: 30.5, LARGE: 105.8},
    ),
    Sent("summit", "CPUs off node", HOST, 6, FIT, fit(1.5, 6.2, 11.0, MEDIUM, LARGE)),
    Sent("summit", "CPUs off node", HOST, 6, POINTS, {KIB: 2.3, 8 * KIB: 5.1, MEDIUM: 12.1}),
    Sent(
        "summit",
        "cores of a socket",
        HOST,
        1,
        POINTS,
        {4: 0.5, KIB: 0.78, 8 * KIB: 1.53, MEDIUM: 7.36, 256 * KIB: 21.3, LARGE: 37.1},
    ),
    Sent(
        "summit",
        "cores across sockets",
        HOST,
        3,
        POINTS,
        {4: 0.95, KIB: 1.43, 8 * KIB: 2.93, MEDIUM: 15.9, 256 * KIB: 46.3, LARGE: 83.2},
    ),
    Sent(
        "summit", "CPUs off node", HOST, 6, AT_ONCE, {MEDIUM: 13.3, 256 * KIB: 40.7, LARGE: 73.9}, 3
    ),
    Sent(
        "summit", "GPUs off node", CUDA, 6, AT_ONCE, {MEDIUM: 20.4, 256 * KIB: 42.2, LARGE: 117}, 3
    ),
    Sent(
        "summit", "GPUs off node", CUDA, 6, AT_ONCE, {MEDIUM: 24.7, 256 * KIB: 99.8, LARGE: 235}, 6
    ),
    Sent("sierra", "GPUs of a socket", CUDA, 1, FIT, fit(0.73, 15.0, 68.0, 256 * KIB, LARGE)),
    Sent("sierra", "GPUs across sockets", CUDA, 2, FIT, fit(1.1, 16.0, 43.0, 256 * KIB, LARGE)),
    Sent("sierra", "GPUs off node", CUDA, 4, FIT, fit(2.15, 6.9, 18.6, MEDIUM, LARGE)),
    Sent("sierra", "CPUs off node", HOST, 4, FIT, fit(1.6, 6.8, 20.0, MEDIUM, LARGE)),
    Sent(
        "dgx-a100",
        "CPUs off node",
        HOST,
        8,
        POINTS,
        {8: 1.47, 8 * KIB: 4.24, MEDIUM: 9.62, MIB: 28.94, 4 * MIB: 97.56},
    ),
    Sent(
        "dgx-a100",
        "GPUs off node",
        CUDA,
        8,
        POINTS,
        {8: 3.29, 8 * KIB: 4.88, MEDIUM: 10.67, MIB: 74.45, 4 * MIB: 280.76},
    ),
    Sent("dgx-a100", "GPUs of a node", CUDA, 1, FIT, {4: 3.2, **at_rate(273.8, 1)}),
    Sent("dgx-a100", "CPUs off node", HOST, 8, AT_ONCE, at_rate(94.27, 4), 4),
    Sent("dgx-a100", "CPUs off node", HOST, 8, AT_ONCE, at_rate(92.86, 8), 8),
    Sent("dgx-a100", "GPUs off node", CUDA, 8, AT_ONCE, at_rate(39.02, 4), 4),
    Sent("dgx-a100", "GPUs off node", CUDA, 8, AT_ONCE, at_rate(38.95, 8), 8),
]

SIZES = (64, 64 * KIB, 512 * KIB, 2 * MIB)
LIBRARY: dict[int, tuple[float, ...]] = {  # GPUs -> us at each of SIZES
    12: (47, 120, 501),
    24: (47, 143, 716),
    48: (51, 232, 971),
    96: (58, 191, 1215),
    192: (60, 177, 1618, 5296),
}
EXPLICIT: dict[int, tuple[float, ...]] = {
    12: (35.5, 117, 488, 1890),
    24: (37.9, 143, 589, 2186),
    48: (41.2, 157, 999, 3762),
    96: (58.7, 191, 1199, 4671),
    192: (65.1, 227, 1929, 5539),
}
CROWDED = PathCost.from_alpha_beta(
    13.5e-6, 1 / 30e9
)  # memcpy_mult of the study, 40 processes, one copying
DOUBLING, HALVING, RING = "recursive_doubling", "rabenseifner", "ring"
# Open MPI since 4.1, operators that commute: ranks below -> (bytes below, algorithm)
LADDERS: dict[int, tuple[tuple[float, str], ...]] = {
    16: ((8 * KIB, DOUBLING), (inf, HALVING)),
    32: ((64, RING), (4 * KIB, DOUBLING), (inf, HALVING)),
    64: ((128, RING), (inf, HALVING)),
    128: ((256 * KIB, DOUBLING), (inf, HALVING)),
    256: ((128 * KIB, "nonoverlapping"), (256 * KIB, DOUBLING), (inf, HALVING)),
}  # its rings of fewer elements than ranks are recursive doubling


def ping_pongs() -> None:
    """Every message, then the medians per machine and basis."""
    rows, errors = [], defaultdict[tuple[str, str], list[float]](list)
    for sent in SENT:
        for nbytes, us in sent.us.items():
            expected = 1e6 * seconds(sent, nbytes)
            error = expected / us - 1
            errors[sent.machine, sent.basis].append(error)
            rows.append(
                (
                    sent.machine,
                    sent.what,
                    sent.basis,
                    str(sent.pairs),
                    format_size(nbytes),
                    f"{us:.2f}",
                    f"{expected:.2f}",
                    percent(error),
                )
            )
    titles = ("machine", "path", "basis", "pairs", "size", "us", "preset", "error")
    print_table("ping-pongs", titles, rows, titles[3:])
    for (machine, basis), found in errors.items():
        print(f"{machine}, {basis}: {summary(found)}")


def seconds(sent: Sent, nbytes: int) -> float:
    """What the preset says; the A100 nodes measured have 4 NICs."""
    machine = preset(sent.machine, 2)
    if sent.machine == "dgx-a100":
        machine = with_nics(machine, 4)
    placement = Placement.block(machine.topology, PPN[sent.machine])
    one = Round.of(range(sent.pairs), range(sent.to, sent.to + sent.pairs), 0, 0)
    schedule = Schedule(ALLREDUCE, placement.p, 1, lambda: iter([one]))
    return simulate(schedule, placement, machine.calibration, nbytes, memory=sent.memory)


def before_4_1(p: int, nbytes: int) -> str:
    """Open MPI until December 2020; up to 1 MiB per rank, which is all there is here."""
    return DOUBLING if nbytes < 10_000 else RING


def since_4_1(p: int, nbytes: int) -> str:
    """Open MPI 4.1 and later."""
    ladder = next(rules for ranks, rules in LADDERS.items() if p < ranks)
    name = next(name for below, name in ladder if nbytes < below)
    return DOUBLING if name == RING and nbytes // 4 < p else name


def always(p: int, nbytes: int) -> str:
    """Recursive doubling."""
    return DOUBLING


HYPOTHESES: dict[str, Callable[[int, int], str]] = {
    "before 4.1": before_4_1,
    "since 4.1": since_4_1,
    "doubling": always,
}


@cache
def place(p: int) -> tuple[Placement, Calibration]:
    """p ranks, one per GPU, and what their messages and copies cost."""
    machine: Machine = preset("summit", p // PPN["summit"])
    paths = {**machine.calibration.paths, ("staging", CUDA): CROWDED}
    return (
        Placement.block(machine.topology, PPN["summit"]),
        replace(machine.calibration, paths=paths),
    )


@cache
def predicted(p: int, nbytes: int, name: str, reducing: float = 0.0) -> float:
    """us of the algorithm on host copies; `reducing` in GB/s replaces the preset's rate."""
    placement, calibration = place(p)
    if reducing:
        launch = calibration.reduction[HOST].launch
        host = ReductionCost(launch, Estimate.exact(1e-9 / reducing))
        calibration = replace(calibration, reduction={**calibration.reduction, HOST: host})
    whole = algorithms.build(ALLREDUCE, name, p, nbytes=nbytes, verify_schedule=False)
    schedule = staged.stage_through_host(whole, 1)
    return 1e6 * simulate(schedule, placement, calibration, nbytes, 4, memory=CUDA)


def best_of_ours(p: int, nbytes: int) -> tuple[float, str]:
    """us and name of the fastest of all that run on device buffers."""
    placement, calibration = place(p)
    ppn = PPN["summit"]
    names = algorithms.algorithm_names(ALLREDUCE, {"gpu"})
    return min(
        (
            1e6
            * simulate(
                build_schedule(ALLREDUCE, way, p, nbytes),
                placement,
                calibration,
                nbytes,
                4,
                memory=CUDA,
            ),
            str(way),
        )
        for way in list_candidates(ALLREDUCE, names, p // ppn, ppn, nbytes)
    )


def cells(measured: Mapping[int, Sequence[float]]) -> Iterator[tuple[int, int, float]]:
    """GPUs, bytes, us."""
    for p, row in measured.items():
        for nbytes, us in zip(SIZES, row, strict=False):  # 2 MiB is missing in most rows
            yield p, nbytes, us


def allreduce() -> None:
    """Every cell, then the medians."""
    library = {(p, nbytes): us for p, nbytes, us in cells(LIBRARY)}
    rows = []
    for p, nbytes, explicit in cells(EXPLICIT):
        us = library.get((p, nbytes))
        row = [str(p), format_size(nbytes), f"{us:.0f}" if us else "", f"{explicit:.0f}"]
        for choice in HYPOTHESES.values():
            name = choice(p, nbytes)
            expected = predicted(p, nbytes, name)
            row += [name, f"{expected:.0f}", percent(expected / us - 1) if us else ""]
        fastest, way = best_of_ours(p, nbytes)
        gain = (us or explicit) / fastest
        rows.append((*row, percent(expected / explicit - 1), way, f"{fastest:.0f}", f"{gain:.1f}"))
    titles = (
        "GPUs",
        "size",
        "library",
        "explicit",
        *(column for name in HYPOTHESES for column in (name, "us", "error")),
        "against explicit",
        "best of ours",
        "us",
        "times faster",
    )
    right = [title for title in titles if title not in (*HYPOTHESES, "best of ours")]
    print_table("allreduce on Summit, us", titles, rows, right)


def medians() -> None:
    """Of the errors: per hypothesis, per size, and how they depend on what was assumed."""
    for title, measured in (("library", LIBRARY), ("explicit", EXPLICIT)):
        for name, choice in HYPOTHESES.items():
            errors = defaultdict[int, list[float]](list)
            for p, nbytes, us in cells(measured):
                errors[nbytes].append(predicted(p, nbytes, choice(p, nbytes)) / us - 1)
            each = ", ".join(f"{format_size(n)}: {middle(some)}" for n, some in errors.items())
            print(
                f"{title}, {name}: {summary([e for some in errors.values() for e in some])}; {each}"
            )
        for rate in (4.0, 16.0):
            other = [predicted(p, n, DOUBLING, rate) / us - 1 for p, n, us in cells(measured)]
            print(f"{title}, doubling, reducing {rate:.0f} GB/s: {summary(other)}")


def middle(errors: Sequence[float]) -> str:
    """Median of the sizes of the errors."""
    return f"{100 * median(map(abs, errors)):.0f} %"


def summary(errors: Sequence[float]) -> str:
    """How many, their median, and the worst."""
    worst = percent(max(errors, key=abs))
    return f"{len(errors)} cells, median error {middle(errors)}, worst {worst}"


def percent(share: float) -> str:
    """With its sign."""
    return f"{100 * share:+.0f} %"


if __name__ == "__main__":
    ping_pongs()
    allreduce()
    medians()
