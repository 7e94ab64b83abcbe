"""Compare what a tuning gains with what forcing every algorithm could gain.

    python -m tests.field.headroom tuner-out ...

Every algorithm of bcast and allreduce that Open MPI itself lists is forced on
2, 3 and 4 ranks, in launches of a plain C program that take turns with the
default and with each tuning. Every second round confirms algorithms for a call:
those that are certainly faster in every pattern, and by 5 % at least. What the
fastest of them gains is measured in the other rounds, so that luck is not
counted as a gain. Then the halves change places. Tunings are measured in all
rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from random import Random

import numpy as np

from tests.field.calls import Call
from tests.field.check import say
from tests.field.launches import (
    BINARIES,
    NO_TUNING,
    PATTERNS,
    ROOT,
    compile_program,
    launch,
    require_no_tuning,
)
from tests.field.ratios import estimate
from tests.field.tables import DEFAULT, CheckError, Library, Use, read_libraries
from tuner.base.arrays import FloatArray

LIBRARY = "openmpi"
COLLECTIVES = ("allreduce", "bcast")
RANKS = (2, 3, 4)
SIZES = (
    8,
    200,
    1000,
    3000,
    9000,
    24_000,
    60_000,
    150_000,
    400_000,
    1_000_000,
    2_400_000,
    6_000_000,
)
ROUNDS = 28  # each half has as many as a rule of `tuner quickstart`
SECONDS = 0.004  # for each call and pattern of a launch, as in `tuner quickstart`
MIN_GAIN = 1.05  # as there
IGNORED = 0  # the number of Open MPI's own choice


@dataclass(frozen=True)
class Gain:
    """The gains of the best confirmed algorithm and of each tuning in a call, as ratios of times.

    best    what each half of the rounds confirms
    chosen  the tunings' algorithms
    """

    collective: str
    ranks: int
    nbytes: int
    best: str
    best_gain: float
    chosen: tuple[str, ...]
    gains: tuple[float, ...]


def main(words: list[str] | None = None) -> int:
    """Print the gains and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.field.headroom",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directories", type=Path, nargs="+", help="made by 'make tune'")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the gains as JSON")
    options = parser.parse_args(words)
    try:
        require_no_tuning()
        tunings = [read_libraries(one, [LIBRARY])[0] for one in options.directories]
        gains = [g for ranks in RANKS for g in gains_of(tunings, ranks, options.rounds)]
    except CheckError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    print(format_gains(gains))
    if options.json:
        options.json.write_text(json.dumps([vars(one) for one in gains], indent=1) + "\n")
    return 0


def gains_of(tunings: Sequence[Library], ranks: int, rounds: int) -> list[Gain]:
    """Launch all arms on so many ranks, and return the gains in every call."""
    calls = [Call(name, ranks, size, DEFAULT, "other") for name in COLLECTIVES for size in SIZES]
    program = compile_program(LIBRARY, ROOT / "build" / "field")
    numbers = algorithm_numbers()
    arms = {DEFAULT: NO_TUNING}
    arms |= {str(n): forced(numbers, n) for n in range(1, 1 + max(map(max, numbers.values())))}
    arms |= {one.digest: one.use for one in tunings}
    times: dict[str, list[FloatArray]] = {}
    for number in range(rounds):
        say(f"{ranks} ranks, round {number + 1} of {rounds}")
        for arm in Random(f"{ranks} {number}").sample(sorted(arms), len(arms)):
            done = launch(program, arms[arm], ranks, calls, SECONDS)
            table = [[done.seconds[call.word, name] for name in PATTERNS] for call in calls]
            times.setdefault(arm, []).append(np.log(table))
    logs = {arm: np.array(one) for arm, one in times.items()}
    ratios = {arm: logs[DEFAULT] - one for arm, one in logs.items()}
    return [
        _gain(call, {arm: one[:, place] for arm, one in ratios.items()}, numbers, tunings)
        for place, call in enumerate(calls)
    ]


def algorithm_numbers() -> dict[str, dict[int, str]]:
    """Return Open MPI's own number and name of every algorithm, by collective."""
    command = [str(BINARIES[LIBRARY] / "ompi_info"), "--param", "coll", "tuned", "--level", "9"]
    output = subprocess.run(
        [*command, "--parsable"], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, dict[int, str]] = {}
    for name in COLLECTIVES:
        prefix = f"mca:coll:tuned:param:coll_tuned_{name}_algorithm:enumerator:value:"
        rows = (
            line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix)
        )
        pairs = (row.split(":", 1) for row in rows)
        found[name] = {int(number): title for number, title in pairs if int(number) != IGNORED}
    return found


def forced(numbers: dict[str, dict[int, str]], number: int) -> Use:
    """Return how the algorithm of this number is forced, in every collective that has it."""
    words = ["--mca", "coll_tuned_use_dynamic_rules", "1"]
    for name, own in numbers.items():
        if number in own:
            words += ["--mca", f"coll_tuned_{name}_algorithm", str(number)]
    return Use(tuple(words), {})


def _gain(
    call: Call,
    ratios: Mapping[str, FloatArray],
    numbers: Mapping[str, Mapping[int, str]],
    tunings: Sequence[Library],
) -> Gain:
    """Return what the best confirmed algorithm and the tunings gain; the default gains nothing.

    ratios  logarithms of default over forced time, shaped (rounds, patterns), by arm
    """
    titles = {DEFAULT: DEFAULT, **{str(n): name for n, name in numbers[call.collective].items()}}
    best = [best_arm({arm: ratios[arm][half::2] for arm in titles}) for half in (0, 1)]
    found = [float(ratios[arm][1 - half :: 2].mean()) for half, arm in enumerate(best)]
    chosen = tuple(one.algorithm(call.collective, call.ranks, call.nbytes) for one in tunings)
    own = [
        DEFAULT if name == DEFAULT else one.digest
        for name, one in zip(chosen, tunings, strict=True)
    ]
    gains = tuple(exp(ratios[arm].mean()) for arm in own)
    names = "/".join(dict.fromkeys(titles[arm] for arm in best))
    return Gain(call.collective, call.ranks, call.nbytes, names, exp(sum(found) / 2), chosen, gains)


def best_arm(ratios: Mapping[str, FloatArray]) -> str:
    """Return the arm with the largest of the confirmed gains; the default where none is."""
    confirmed = [arm for arm, one in ratios.items() if arm != DEFAULT and is_confirmed(one)]
    return max([DEFAULT, *confirmed], key=lambda arm: ratios[arm].mean())


def is_confirmed(logs: FloatArray) -> bool:
    """Return whether log ratios, shaped (rounds, patterns), show a certain gain in each pattern."""
    certain = all(estimate(column).low > 1 for column in logs.T)
    return certain and exp(float(logs.mean())) >= MIN_GAIN


def format_gains(gains: Sequence[Gain]) -> str:
    """Return a row for each call that can gain or was changed, and the means by ranks."""
    lines = ["", f"{'call':<22}{'best confirmed':<28}{'gain':>5}  gain and algorithm of each table"]
    for one in gains:
        if {one.best, *one.chosen} == {DEFAULT}:
            continue
        told = (f"{gain:.2f} {name}" for gain, name in zip(one.gains, one.chosen, strict=True))
        name = f"{one.collective} {one.ranks} {one.nbytes}"
        lines.append(f"{name:<22}{one.best:<28}{one.best_gain:>5.2f}  {', '.join(told)}")
    lines.append("")
    for ranks in RANKS:
        lines.append(f"{ranks} ranks: {_summary([one for one in gains if one.ranks == ranks])}")
    return "\n".join([*lines, f"all: {_summary(gains)}"])


def _summary(gains: Sequence[Gain]) -> str:
    best = _mean_log([one.best_gain for one in gains])
    tuned = [_mean_log(column) for column in zip(*(one.gains for one in gains), strict=True)]
    told = ", ".join(
        f"{exp(mean):.3f} ({mean / best:.0%})" if best > 0 else f"{exp(mean):.3f}" for mean in tuned
    )
    return f"{len(gains)} calls, {exp(best):.3f} can be gained, the tables gain {told}"


def _mean_log(gains: Sequence[float]) -> float:
    return sum(map(log, gains)) / len(gains)


if __name__ == "__main__":
    sys.exit(main())
