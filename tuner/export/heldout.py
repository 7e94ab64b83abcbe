"""What a table gains at sizes that were not probed: the real library with its file and without.

Open MPI decides by the file or by itself for each communicator, after a control variable at its
creation, so both are timed alternately in each launch. MPICH reads its file when it starts:
launches with and without it alternate, and their samples are paired in the order they were taken.
Either is done in several launches, since the cores that ranks get differ from one to the next.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tuner import libraries
from tuner.collective import Collective
from tuner.export.ladders import by_ranks
from tuner.export.prove import TIMEOUT, Starter
from tuner.files import write_atomically
from tuner.gain import over_launches, paired_gain
from tuner.progress import Counted, quietly
from tuner.rank_program import rank_program
from tuner.table import Rule, TuningTable

PROGRAM = rank_program("tuner.probe.heldout")
ITEM = 4  # bytes: probed collectives work on 4-byte elements
TARGET = 0.02  # relative half-width of the medians at which a point is done
SEED = 20240229
LAUNCHES = 6
Arms = Sequence[Mapping[str, int]]  # control variables of each arm
Samples = list[list[list[float]]]  # point -> arm -> seconds
Settings = Mapping[str, str]  # what a launch is started with
Launch = Callable[[Settings, Arms, float], Samples]  # settings, arms, seconds


@dataclass(frozen=True)
class Heldout:
    """One size that was not probed. Typical times in seconds.

    algorithm   what the table says there
    ratio       default_s / tuned_s: above 1 the table is faster
    ci95        interval of the ratio, from paired samples of several launches
    """

    collective: Collective
    p: int
    nbytes: int
    algorithm: str
    default_s: float
    tuned_s: float
    ratio: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class Point:
    """A call to time, and the rule that is responsible for it."""

    rule: Rule
    nbytes: int


def points(table: TuningTable, operators: str = "any") -> list[Point]:
    """Sizes between neighbouring probed sizes of each ladder, none of them a power of two.

    Sums commute, so allreduce is judged by the rules that the file has for `operators`.
    """
    found = []
    for ladders in by_ranks(table, operators).values():
        for ladder in ladders.values():
            probed = sorted({n for rule in ladder for n in rule.evidence.nbytes})
            for lower, upper in pairwise(probed):
                nbytes = between(lower, upper)
                if lower < nbytes < upper:
                    rule = next(r for r in ladder if r.lo <= nbytes < r.hi)
                    found.append(Point(rule, nbytes))
    return found


def between(lower: int, upper: int) -> int:
    """Near the geometric mean, a whole number of elements, and no power of two if possible."""
    middle = int(math.sqrt(lower * upper)) // ITEM * ITEM
    aside = int(lower ** (1 / 3) * upper ** (2 / 3)) // ITEM * ITEM
    return aside if middle & (middle - 1) == 0 and aside > lower else middle


def heldout(
    table: TuningTable,
    starter: Starter,
    directory: Path,
    activation: Mapping[str, str],
    *,
    operators: str = "any",
    seconds: float = 60.0,
    cores: int = 1,
    progress: Counted = quietly,
) -> list[Heldout]:
    """Time tuned against default at every point of `points(table, operators)`.

    activation  settings under which the library follows the emitted file (`activation` of the
                runtime's proof module)
    seconds     for all points together
    cores       of this computer; more ranks than cores yield while they wait

    Raises InputError where the environment decides what the default runs, ProbeError when the ranks
    fail.
    """
    libraries.require_unset(libraries.named(starter.library).DECIDING)
    wanted = points(table, operators)
    if not wanted:
        return []
    switched = starter.library == "openmpi"
    once = _switched if switched else _restarted
    total, done = len(wanted) * LAUNCHES * (1 if switched else 2), 0

    def launch(settings: Mapping[str, str], arms: Arms, share: float) -> Samples:
        nonlocal done

        def counted(now: int) -> None:
            progress(done + now, total)

        samples = _time(wanted, starter, directory, settings, arms, share, cores, counted)
        done += len(wanted)
        return samples

    rounds = [once(launch, activation, seconds / LAUNCHES, turn) for turn in range(LAUNCHES)]
    return [_judge(point, [series[i] for series in rounds]) for i, point in enumerate(wanted)]


def _switched(launch: Launch, activation: Settings, seconds: float, _turn: int) -> Samples:
    """Default and tuned in one launch of Open MPI."""
    switch = "coll_tuned_use_dynamic_rules"
    return launch(activation, [{switch: 0}, {switch: 1}], seconds)


def _restarted(launch: Launch, activation: Settings, seconds: float, turn: int) -> Samples:
    """Default and tuned in two launches of MPICH; they take turns in being first."""
    plain = {name: v for name, v in activation.items() if not name.endswith("JSON_FILE")}
    order = [plain, activation] if turn % 2 == 0 else [activation, plain]
    pair = [launch(settings, [{}], seconds / 2) for settings in order]
    default, tuned = pair if turn % 2 == 0 else pair[::-1]
    return [[*d, *t] for d, t in zip(default, tuned, strict=True)]


def _time(
    wanted: Sequence[Point], starter: Starter, directory: Path, settings: Mapping[str, str],
    arms: Arms, seconds: float, cores: int, counted: Callable[[int], None],
) -> Samples:  # fmt: skip
    """One launch: point -> arm -> samples."""
    calls = [
        {"collective": str(point.rule.key.collective), "p": point.rule.key.p,
         "nbytes": point.nbytes, "seconds": seconds / len(wanted)}
        for point in wanted
    ]  # fmt: skip
    path = directory / "heldout.json"
    order = {"cores": cores, "target": TARGET, "seed": SEED, "arms": arms, "points": calls}
    write_atomically(path, json.dumps(order))
    samples: dict[int, list[list[float]]] = {}

    def note(line: str) -> None:
        if line.startswith('{"point"'):
            record = json.loads(line)
            samples[record["point"]] = record["samples"]
            counted(len(samples))

    ranks = max(point.rule.key.p for point in wanted)
    starter.run(
        ranks, [*PROGRAM, str(path)], settings=settings, on_line=note,
        timeout=TIMEOUT + 3 * seconds,
    )  # fmt: skip
    return [samples[i] for i in range(len(wanted))]


def _judge(point: Point, rounds: Sequence[Sequence[Sequence[float]]]) -> Heldout:
    """From the samples of default and tuned in every launch."""
    default, tuned = list[Sequence[float]](), list[Sequence[float]]()
    for series in rounds:
        pairs = min(len(series[0]), len(series[1]))
        default.append(series[0][:pairs])
        tuned.append(series[1][:pairs])
    ratio, low, high = paired_gain(default, tuned)
    key, choice = point.rule.key, str(point.rule.choice)
    default_s, tuned_s = over_launches(default)[0], over_launches(tuned)[0]
    return Heldout(
        key.collective, key.p, point.nbytes, choice, default_s, tuned_s, ratio, (low, high)
    )
