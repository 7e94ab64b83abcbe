"""Sweeps: a workload on machines that vary along a few axes, compared by the time of an epoch.

    model: resnet50
    batch: 64
    framework: horovod
    topology: preset:dgx-a100
    vary:
      ranks: [64, 256]
      bandwidth: [200Gb/s, 400Gb/s]
    epoch: 1281167
    cost: {node: 200000, nic: 1500, years: 4}

All keys but `vary`, `epoch` and `cost` are those of a workload. The axes are those of a study but
for `placement` and `nccl_version`; `ranks`, which with `nodes` are those of all nodes; and
`framework`, whose values are frameworks with settings. `epoch` is the number of samples of an
epoch. `cost` has the prices of parts as in a study, which are spread over `years` of use, 4 if left
out; or `gpu_hour`, the price of a GPU for an hour, one or one for each `gpu`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import declared_settings, parse_positive_float, read_record
from tuner.training.compute import find_rate
from tuner.training.frameworks import framework_from_record
from tuner.training.frameworks.framework import Framework
from tuner.training.models import build_model
from tuner.training.workload import Workload, parse_file, workload_from_record
from tuner.training.workload_settings import SweepSettings, parse_ranks
from tuner.whatif.axes import (
    AXIS_FORMATTERS,
    MACHINE_AXES,
    NODE_LINK_AXES,
    UPLINK_AXES,
    AxisValue,
    GridPoint,
    apply_axes,
)
from tuner.whatif.prices import Price, count_parts, machine_price, parse_prices
from tuner.whatif.values import parse_axes

RANKS, FRAMEWORK = "ranks", "framework"
LINK_AXES = {*NODE_LINK_AXES, *UPLINK_AXES}
NAME = "name"  # key of a framework beside its settings
MAX_CONFIGURATIONS = 10_000
DEFAULT_YEARS = 4.0
SECONDS_PER_HOUR = 3600.0
HOURS_PER_YEAR = 8766.0
FORMATTERS: Mapping[str, Callable[[AxisValue], str]] = {
    **AXIS_FORMATTERS,
    RANKS: lambda value: str(int(value)),
    FRAMEWORK: str,
}


@dataclass(frozen=True)
class Sweep:
    """A checked sweep, made by `sweep_from_record`.

    axes        axis -> its values; with nodes only if they vary
    frameworks  framework of each value of the axis FRAMEWORK
    epoch       samples of an epoch; 0 if not given
    prices      price of each part of the machine; see `tuner.whatif.prices`
    hourly      price of a GPU for an hour; None if not given
    years       years of use that the prices of parts are spread over
    """

    workload: Workload
    axes: Mapping[str, tuple[AxisValue, ...]]
    frameworks: Mapping[str, Framework]
    epoch: int
    prices: Mapping[str, Price]
    hourly: Price | None
    years: float

    @cached_property
    def grid(self) -> tuple[GridPoint, ...]:
        return tuple(
            dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())
        )

    def configuration(self, at: GridPoint) -> tuple[Workload, int]:
        """Return the workload on the machine of one configuration, and its number of ranks.

        Raises InputError as `apply_axes` does, and for a GPU whose rate is not known.
        """
        ppn = int(at.get("ppn", self.workload.ppn))
        ranks = int(at[RANKS]) if RANKS in at else int(at["nodes"]) * ppn
        return self._changed_workload(_without_size(at)), ranks

    @cached_property
    def _changed_workload(self) -> Callable[[tuple[tuple[str, AxisValue], ...]], Workload]:
        """Workload with some values of axes; the last one is kept, and with it what it knows."""
        return lru_cache(1)(self._change_workload)

    def _change_workload(self, values: tuple[tuple[str, AxisValue], ...]) -> Workload:
        at = dict(values)
        links = {name: value for name, value in values if name in LINK_AXES}
        ppn = int(at.get("ppn", self.workload.ppn))
        machine = self.workload.machine
        if MACHINE_AXES.keys() & at.keys():
            parts = {name: at[name] for name in MACHINE_AXES.keys() & at.keys()}
            machine = apply_axes(machine, {**parts, "nodes": self._most_nodes(ppn)})
        changed = replace(
            self.workload,
            machine=machine,
            ppn=ppn,
            memory=str(at.get("memory", self.workload.memory)),
            framework=self.frameworks[str(at[FRAMEWORK])]
            if FRAMEWORK in at
            else self.workload.framework,
            link_values=links,
            _known_places={},
            _known_times={},
        )
        if "gpu" not in at:
            return changed
        rate = find_rate(changed.model, str(at["gpu"]), changed.precision, build_model)
        return replace(changed, rate=rate)

    def _most_nodes(self, ppn: int) -> int:
        """Return the largest number of nodes with `ppn` ranks each."""
        if RANKS not in self.axes:
            return int(max(self.axes["nodes"]))
        most = int(max(self.axes[RANKS]))
        return -(-most // min(ppn, most))

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the configurations, those together that differ in their ranks alone."""
        found = defaultdict[tuple[tuple[str, AxisValue], ...], list[int]](list)
        for number, at in enumerate(self.grid):
            found[_without_size(at)].append(number)
        return tuple(map(tuple, found.values()))

    def hourly_cost(self, at: GridPoint) -> float | None:
        """Return what the machine of one configuration costs in an hour; None without prices."""
        if self.hourly is not None:
            _, ranks = self.configuration(at)
            price = self.hourly[at["gpu"]] if isinstance(self.hourly, Mapping) else self.hourly
            return ranks * price
        if not self.prices:
            return None
        workload, ranks = self.configuration(at)
        machine, _ = workload.placement(ranks)
        whole = machine_price(self.prices, count_parts(machine.topology), at)
        return whole / (self.years * HOURS_PER_YEAR)


def _without_size(at: GridPoint) -> tuple[tuple[str, AxisValue], ...]:
    """Return the values of all axes but the numbers of ranks and nodes."""
    return tuple((name, value) for name, value in at.items() if name not in (RANKS, "nodes"))


def read_sweep(path: Path) -> tuple[Sweep, Any]:
    """Read a sweep, and its parsed record; raises InputError that starts with the file's name."""

    def parse(record: Any, directory: Path) -> tuple[Sweep, Any]:
        return sweep_from_record(record, directory), record

    return parse_file(path, parse, "sweep")


def sweep_from_record(record: Any, directory: Path) -> Sweep:
    """Return the sweep of parsed YAML or JSON; raises InputError.

    directory   what the names of files are relative to
    """
    if not isinstance(record, dict):
        raise InputError("the sweep must be a mapping with the keys of a workload and vary")
    if "vary" not in record:
        raise InputError(
            "the sweep needs vary, such as `vary: {bandwidth: [100Gb/s, 200Gb/s]}`; without it,"
            " `tuner training run` predicts the workload"
        )
    keys = record.keys() & declared_settings(SweepSettings).keys()
    settings = read_record(SweepSettings, {key: record[key] for key in keys}, "the sweep")
    vary = settings.vary
    ranks = _ranks(record, vary)
    own = {key: value for key, value in record.items() if key not in keys}
    frameworks = _frameworks(vary[FRAMEWORK]) if FRAMEWORK in vary else {}
    if frameworks:
        if FRAMEWORK in own:
            raise InputError("give framework, or vary it, not both")
        own[FRAMEWORK] = vary[FRAMEWORK][0]
    workload = workload_from_record({**own, RANKS: list(ranks) or 1}, directory)
    if "gpu" in vary and "rate" in record:
        raise InputError("rate holds for one GPU: leave it out where gpu varies")
    axes = _axes(vary, ranks, workload) | ({FRAMEWORK: tuple(frameworks)} if frameworks else {})
    number = math.prod(map(len, axes.values()))
    if number > MAX_CONFIGURATIONS:
        raise InputError(
            f"the sweep has {number} configurations, more than {MAX_CONFIGURATIONS}:"
            " give fewer values"
        )
    costs = _costs(settings.cost or {}, axes, workload)
    return Sweep(workload, axes, frameworks, settings.epoch, *costs)


def _frameworks(entry: Any) -> dict[str, Framework]:
    """Return the frameworks of an axis by the settings in which they differ.

    Raises InputError for what is no list of different frameworks.
    """
    if not isinstance(entry, list) or not entry:
        shown = shortened_repr(entry)
        raise InputError(f"vary: framework must be a list of one or more frameworks, not {shown}")
    records = [{NAME: one} if isinstance(one, str) else one for one in entry]
    found = [framework_from_record(one) for one in records]
    keys = dict.fromkeys(key for one in records for key in one)
    differing = [key for key in keys if len({str(one.get(key)) for one in records}) > 1]
    named = dict[str, Framework]()
    for record, framework in zip(records, found, strict=True):
        words = [_setting_words(key, record[key]) for key in differing if key in record]
        name = ", ".join(words or [str(record[NAME])])
        if framework in named.values() or name in named:
            raise InputError(f"vary: framework: {name} is there twice: leave one out")
        named[name] = framework
    return named


def _setting_words(key: str, value: Any) -> str:
    return str(value) if key == NAME else f"{key.replace('_', ' ')} {value}"


def _ranks(record: Mapping[str, Any], vary: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of ranks, ascending; none where nodes vary."""
    entry = vary.get(RANKS, record.get(RANKS))
    if "nodes" in vary:
        if entry is not None:
            raise InputError("vary nodes or give ranks, not both: with nodes all their ranks train")
        return ()
    if entry is None:
        raise InputError("the sweep needs ranks, or nodes under vary")
    return parse_ranks(RANKS, entry)


def _axes(
    vary: Mapping[str, Any], ranks: tuple[int, ...], workload: Workload
) -> dict[str, tuple[AxisValue, ...]]:
    asked = {name: values for name, values in vary.items() if name not in (RANKS, FRAMEWORK)}
    axes = parse_axes(asked, workload.machine)
    own = {name: values for name, values in axes.items() if name in asked}
    return {RANKS: ranks, **own} if ranks else own


def _costs(
    entry: Mapping[str, Any], axes: Mapping[str, tuple[AxisValue, ...]], workload: Workload
) -> tuple[dict[str, Price], Price | None, float]:
    """Return prices of parts, price of a GPU for an hour, and years of use."""
    parts = {key: value for key, value in entry.items() if key not in ("gpu_hour", "years")}
    years = parse_positive_float("cost: years", entry.get("years", DEFAULT_YEARS))
    if "gpu_hour" not in entry:
        return parse_prices(parts, axes, workload.machine), None, years
    if parts:
        raise InputError("cost: give gpu_hour or prices of parts, not both")
    try:
        hourly = parse_prices({"gpu": entry["gpu_hour"]}, axes, workload.machine)["gpu"]
    except InputError as reason:
        raise InputError(str(reason).replace("cost: gpu", "cost: gpu_hour", 1)) from None
    return {}, hourly, math.inf
