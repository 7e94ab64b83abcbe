"""The settings of a framework and the algorithms of all calls that make an iteration fastest.

All settings are predicted on a grid of powers, under the given algorithms and under the fastest
known ones; the best are then changed in smaller and smaller steps. All of them share the times of
the calls, so that a call of one signature is simulated once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tuner.base.units import format_size, format_time
from tuner.training.call_times import AlgorithmPolicy
from tuner.training.frameworks.framework import Framework
from tuner.training.frameworks.fusion import BUCKET_ORDERS, MIB, Ddp, Horovod
from tuner.training.frameworks.model_parallel import ModelParallel
from tuner.training.frameworks.parameter_server import ParameterServer
from tuner.training.frameworks.sharded import Zero
from tuner.training.iteration import PredictedIteration, predict_iteration
from tuner.training.policies import FastestKnown
from tuner.training.token_dispatch import TRAINING_DISPATCHERS
from tuner.training.workload import Workload

KIB = 1 << 10
COUNTS = ("servers", "prefetch")  # settings that are numbers and not sizes
MIN_GAIN = 1e-9  # relative gain below which two settings tie, so that the first one stays
TOLERANCE = 5e-4  # relative loss at which a setting stays as it was given
REFINING_FACTORS = (2**0.5, 2**0.25)  # by which numbers are changed around the best of the grid
SIZE_STEP = 256 * KIB  # refined sizes are multiples of it
TIME_STEP = 1e-4  # seconds; refined times are multiples of it
GRID_SHARE = 0.9  # of the progress that the grid counts for
Settings = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]

BUCKETS = tuple(MIB << power for power in range(9))  # 1 MiB to 256 MiB


@dataclass(frozen=True)
class TunedTraining:
    """The result of a search.

    before      the prediction with the given settings and algorithms
    after       the prediction with the best ones
    workload    the workload with the best settings and the policy that chose its algorithms
    changed     the settings that differ from the given ones
    tried       number of combinations that were predicted
    """

    before: PredictedIteration
    after: PredictedIteration
    workload: Workload
    changed: Settings
    tried: int

    @property
    def speedup(self) -> float:
        return self.before.seconds / self.after.seconds


def setting_grid(framework: Framework, ranks: int, nodes: int) -> Grid:
    """Return the values of each setting that is worth trying; none for a framework without any."""
    if isinstance(framework, Horovod):
        levels = (False, True) if 1 < nodes < ranks and ranks % nodes == 0 else (False,)
        cycles = tuple(5e-4 * 2**power for power in range(7))  # to 32 ms
        return {"fusion_threshold": BUCKETS, "cycle_time": cycles, "hierarchical": levels}
    if isinstance(framework, Ddp):
        first = tuple(64 * KIB << power for power in range(0, 9, 2))  # to 16 MiB
        return {"bucket": BUCKETS, "first_bucket": first, "order": BUCKET_ORDERS[::-1]}
    if isinstance(framework, Zero):
        ahead = (1, 2, 4) if framework.stage == 3 else (framework.prefetch,)
        return {"bucket": BUCKETS, "prefetch": ahead}
    if isinstance(framework, ParameterServer):
        return {
            "servers": tuple(1 << power for power in range(nodes.bit_length())),
            "shard": (0, *(64 * KIB << power for power in range(0, 9, 2))),
            "local_aggregation": (False, True) if nodes < ranks else (False,),
        }
    if isinstance(framework, ModelParallel) and framework.expert > 1:
        return {"dispatcher": TRAINING_DISPATCHERS}
    return {}


class TrainingSearch:
    """A search for one workload on one number of ranks.

    Raises InputError as predictions do.
    """

    def __init__(self, workload: Workload, ranks: int) -> None:
        self.workload, self.ranks = workload, ranks
        policies = [workload.policy]
        if not isinstance(workload.policy, FastestKnown):
            policies.append(FastestKnown())
        self._times = [replace(workload, policy=own).call_times(ranks) for own in policies]
        self._known: dict[tuple[int, tuple[Any, ...]], float] = {}

    @property
    def tried(self) -> int:
        return len(self._known)

    def seconds(self, settings: Settings, policy: int) -> float:
        """Return the seconds of an iteration with some settings.

        policy      0 for the given algorithms, -1 for the fastest known ones
        """
        number = policy % len(self._times)
        key = (number, tuple(sorted(settings.items())))
        if key not in self._known:
            self._known[key] = self.predict(settings, policy).seconds
        return self._known[key]

    def predict(self, settings: Settings, policy: int) -> PredictedIteration:
        """Return the prediction with some settings; see `seconds`."""
        changed = self.with_settings(settings)
        return predict_iteration(changed, self.ranks, self._times[policy])

    def with_settings(self, settings: Settings) -> Workload:
        framework = with_settings(self.workload.framework, settings)
        return replace(self.workload, framework=framework)

    def policy(self, number: int) -> AlgorithmPolicy:
        """Return the policy of a number that `seconds` takes."""
        return self._times[number].policy


def with_settings(framework: Framework, settings: Settings) -> Framework:
    """Return a framework with some settings changed."""
    changed: Any = framework
    return replace(changed, **settings) if settings else framework


def tune_training(
    workload: Workload,
    ranks: int,
    on_progress: Callable[[float, str], None] = lambda *_: None,
    grid: Grid | None = None,
) -> TunedTraining:
    """Return the settings and algorithms with the least iteration time; raises InputError.

    They are never slower than the given ones. They are no slower than any combination on the grid
    by more than TOLERANCE, as what hardly matters stays as it was given.

    ranks       number of ranks for which the iteration time counts
    grid        values of each setting, by default those of `setting_grid`
    """
    search = TrainingSearch(workload, ranks)
    nodes = workload.call_times(ranks).nodes
    values = setting_grid(workload.framework, ranks, nodes) if grid is None else grid
    combinations = [dict(zip(values, one, strict=True)) for one in product(*values.values())]
    start: tuple[Settings, int] = ({name: workload.framework.settings[name] for name in values}, 0)
    tries = [(one, policy) for policy in (0, -1) for one in [start[0], *combinations]]
    best = start
    for done, (settings, policy) in enumerate(tries):
        on_progress(GRID_SHARE * done / len(tries), describe_settings(settings))
        best = _faster_of(search, best, (settings, policy))
    for number, factor in enumerate(REFINING_FACTORS):
        on_progress(GRID_SHARE + (1 - GRID_SHARE) * number / len(REFINING_FACTORS), "refining")
        best = _refined(search, best, factor, values)
    return _result(search, start, best)


def _faster_of(
    search: TrainingSearch, one: tuple[Settings, int], other: tuple[Settings, int]
) -> tuple[Settings, int]:
    return other if search.seconds(*other) < search.seconds(*one) * (1 - MIN_GAIN) else one


def _refined(
    search: TrainingSearch, best: tuple[Settings, int], factor: float, grid: Grid
) -> tuple[Settings, int]:
    """Return the best settings after changing one number at a time as long as that gains."""
    while True:
        before = best
        for changed in _neighbours(before[0], factor, grid):
            best = _faster_of(search, best, (changed, before[1]))
        if best == before:
            return best


def _neighbours(settings: Settings, factor: float, grid: Grid) -> Iterator[Settings]:
    """Yield the settings with one size or time multiplied or divided by a factor."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in COUNTS or not value or len(grid[name]) < 2:
            continue
        step = TIME_STEP if isinstance(value, float) else SIZE_STEP
        for moved in (value / factor, value * factor):
            rounded = max(1, round(moved / step)) * step
            yield {**settings, name: round(rounded, 7)}


def _result(
    search: TrainingSearch, start: tuple[Settings, int], best: tuple[Settings, int]
) -> TunedTraining:
    """Return the result, in which settings that hardly matter stay as they were given."""
    settings, policy = dict(best[0]), best[1]
    for name, value in start[0].items():
        kept = {**settings, name: value}
        if search.seconds(kept, policy) <= search.seconds(*best) * (1 + TOLERANCE):
            settings = kept
    if search.seconds(settings, 0) <= search.seconds(*best) * (1 + TOLERANCE):
        policy = 0
    if search.seconds(settings, policy) > search.seconds(*start):
        settings, policy = dict(best[0]), best[1]
    return TunedTraining(
        search.predict(*start),
        search.predict(settings, policy),
        replace(search.with_settings(settings), policy=search.policy(policy)),
        {name: value for name, value in settings.items() if value != start[0][name]},
        search.tried,
    )


def describe_settings(settings: Settings) -> str:
    """Return settings in one line, such as `fusion_threshold=64MiB, cycle_time=2ms`."""
    return ", ".join(f"{name}={_text(name, value)}" for name, value in settings.items())


def _text(name: str, value: Any) -> str:
    if isinstance(value, float):
        return format_time(value)
    is_count = isinstance(value, bool) or not isinstance(value, int) or name in COUNTS
    return str(value) if is_count else format_size(value)
