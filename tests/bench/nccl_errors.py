"""Measured times of NCCL on one node against predictions, by size, machine and collective.

    python -m tests.bench.nccl_errors [CSV...]

CSV has a row for each time (columns system, collective, gpus, size_bytes, time_us, and
recorded_version and dtype where they are known). The default is that of the reference data
(TUNER_SHARED, else ../shared): times of nccl-tests out of place, from ai-dynamo/aiconfigurator.
Rows of other machines and collectives than those known here are counted and left out. Each call
counts in what NCCL of that version would choose by itself for that datatype: the current version
and half where they are not known.

Prints errors with the constants as they are; with those fitted to the other machines with GPUs of
the same generation (where there are none, with those of the generation before); and with these
calibrated by about 20 times of the machine itself, for its other rows. Then come all-to-alls with
factors for their links and channels fitted to all other machines, and the constants that all
machines of each generation give, and the factors that all machines give. Last is how low errors
could get: the spread of repeated rows, their jumps beside the next smaller and the next larger
size, and lines fitted to every collective on every number of GPUs in each algorithm and protocol.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tuner.cli.terminal.output import print_table, print_text
from tuner.core.collective import Collective
from tuner.machines import Machine, preset, with_gpu
from tuner.mpi_libraries import nccl
from tuner.mpi_libraries.nccl.constants import ADA, BLACKWELL_PCIE
from tuner.mpi_libraries.nccl.fitted import least_absolute
from tuner.topology import NcclCosts, Placement

SHARED = Path(os.environ.get("TUNER_SHARED", Path(__file__).parents[3] / "shared"))
DEFAULT_DATA = SHARED / "data/aiconfigurator/nccl_one_node.csv"
MACHINES: dict[str, Callable[[], Machine]] = {
    "a100_sxm": lambda: preset("dgx-a100", 1),
    "h100_sxm": lambda: preset("dgx-h100", 1),
    "h200_sxm": lambda: preset("hgx-h200", 1),
    "b200_sxm": lambda: with_gpu(preset("dgx-h100", 1), "B200"),
    "b300_sxm": lambda: preset("dgx-b300", 1),
    "gb200": lambda: preset("gb200-nvl72", 1),
    "gb300": lambda: preset("gb300-nvl72", 1),
    "l40s": lambda: preset("l40s", 1),
    "rtx_pro_6000_server": lambda: preset("rtx-pro-6000", 1),
}
COLLECTIVES = {
    "all_reduce": Collective.ALLREDUCE,
    "all_gather": Collective.ALLGATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALLTOALL,
}
EXCHANGE = "alltoall"  # has constants of its own
WITHOUT_NVLINK = (ADA, BLACKWELL_PCIE)  # compute capabilities
# What NVSwitches sum: ncclNvlsSupported in src/include/device.h of 2.18 to 2.30
NVSWITCH_TYPES = ("half", "bfloat16", "float", "double", "int32", "uint32", "int64", "uint64")
BANDS = {"to 64 KiB": 1 << 16, "to 1 MiB": 1 << 20, "to 16 MiB": 1 << 24, "above": sys.maxsize}


@dataclass(frozen=True)
class Row:
    """A measured time in seconds of a call of `nbytes` of the whole buffer.

    version     of those whose choice is known
    dtype       as nccl-tests calls it
    """

    system: str
    collective: str
    gpus: int
    nbytes: int
    seconds: float
    version: str = nccl.CURRENT_VERSION
    dtype: str = "half"

    @property
    def call(self) -> tuple[str, int, str, int, str, bool]:
        of = COLLECTIVES[self.collective]
        on_switches = self.dtype in NVSWITCH_TYPES or not of.is_reduction
        return (*self.curve, self.nbytes, self.version, on_switches)

    @property
    def curve(self) -> tuple[str, int, str]:
        return self.system, self.gpus, self.collective

    @property
    def band(self) -> str:
        return next(name for name, most in BANDS.items() if self.nbytes <= most)


def read_rows(paths: Iterable[Path]) -> tuple[list[Row], Counter[str]]:
    """The rows of known machines and collectives, and how many others there are of each kind."""
    found, others = list[Row](), Counter[str]()
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for one in csv.DictReader(file):
                if one["system"] not in MACHINES or one["collective"] not in COLLECTIVES:
                    others[f"{one['system']} {one['collective']}"] += 1
                    continue
                size, time = int(one["size_bytes"]), float(one["time_us"]) * 1e-6
                version = nccl.version_of(f"nccl {one.get('recorded_version', '')}")
                call = one["system"], one["collective"], int(one["gpus"]), size
                found.append(Row(*call, time, version, one.get("dtype") or "half"))
    return found, others


class ExchangeCosts(NamedTuple):
    """Factors of the seconds of all-to-alls that links, and the channels of a rank, bound."""

    links: float = 1.0
    channels: float = 1.0


OWN = ExchangeCosts()


@cache
def predictor_of(
    system: str, gpus: int, version: str = nccl.CURRENT_VERSION, on_switches: bool = True
) -> nccl.NcclPredictor:
    """NCCL on some GPUs of one node of a machine, whose switches may reduce."""
    topology = MACHINES[system]().topology
    if not on_switches:
        rest = topology.capabilities - {"nvswitch_reduction"}
        topology = replace(topology, capabilities=rest)
    return nccl.NcclPredictor(Placement.block(topology, gpus), version=version)


@cache
def chosen_way(
    system: str, gpus: int, collective: str, nbytes: int, version: str, on_switches: bool
) -> nccl.AlgoProto:
    """Return what NCCL of a version would choose."""
    predictor = predictor_of(system, gpus, version, on_switches)
    return predictor.chosen_algo_proto(COLLECTIVES[collective], nbytes)


@cache
def terms(
    system: str, gpus: int, collective: str, nbytes: int, version: str, on_switches: bool
) -> nccl.NcclTerms:
    """Return the parts of the time of what NCCL of a version would choose."""
    predictor = predictor_of(system, gpus, version, on_switches)
    way = chosen_way(system, gpus, collective, nbytes, version, on_switches)
    return predictor.terms(COLLECTIVES[collective], way, nbytes)


def error(row: Row, costs: NcclCosts, exchange: ExchangeCosts = OWN) -> float:
    """Relative error of a prediction, negative where it is too fast."""
    found = terms(*row.call)
    seconds = found.seconds(costs)
    if row.collective == EXCHANGE:
        seconds += float(np.dot(exchange_parts(found), np.subtract(exchange, OWN)))
    return seconds / row.seconds - 1


def exchange_parts(found: nccl.NcclTerms) -> tuple[float, float]:
    """Return the seconds of an all-to-all on one node that links and that channels bound."""
    of_channels = found.bounds[nccl.NCCL_CHANNELS] <= min(found.bounds.values())
    return found.transfer * (not of_channels), found.transfer * of_channels


def exchange_fitted_to(rows: Iterable[Row], costs: Mapping[str, NcclCosts]) -> ExchangeCosts:
    """The factors for all-to-alls with the least mean relative error, given costs of GPUs."""
    own = [row for row in rows if row.collective == EXCHANGE]
    found = [terms(*row.call) for row in own]
    times = np.array([row.seconds for row in own])
    of = [costs[row.system] for row in own]
    parts = np.array([exchange_parts(one) for one in found])
    whole = np.array([one.seconds(cost) for one, cost in zip(found, of, strict=True)])
    rest = 1 - (whole - parts @ np.array(OWN)) / times
    return ExchangeCosts(*map(float, least_absolute(parts / times[:, None], rest)))


def fitted_to(rows: Iterable[Row], before: NcclCosts) -> NcclCosts:
    """The costs of GPUs that fit the collectives for which NCCL chooses an algorithm."""
    own = [row for row in rows if row.collective != EXCHANGE]
    samples = [(terms(*row.call), row.seconds) for row in own]
    return nccl.fit_costs(samples, before)


def generation(system: str) -> int:
    return predictor_of(system, 2).system.compute_capability


def costs_before(system: str) -> NcclCosts:
    """Return the costs of the GPUs with NVLink before this generation, for unmeasured ones."""
    apart = (generation(system), *WITHOUT_NVLINK)
    others = {g: costs for g, costs in nccl.COSTS_OF_GPUS.items() if g not in apart}
    return nccl.table_row(others, generation(system))


def held_out_costs(system: str, rows: Sequence[Row]) -> NcclCosts:
    """Return costs fitted to other machines of this generation; the default without any."""
    own = generation(system)
    others = [row for row in rows if row.system != system and generation(row.system) == own]
    return fitted_to(others, costs_before(system)) if others else costs_before(system)


def calibrating_runs(rows: Sequence[Row]) -> list[Row]:
    """Allreduce on two GPUs and on all of a machine, every second size: about 20 times in all."""
    gpus, sizes = {row.gpus for row in rows}, sorted({row.nbytes for row in rows})
    first = dict[tuple[int, int], Row]()
    for row in rows:
        if row.gpus in (2, max(gpus)) and row.collective == "all_reduce":
            first.setdefault((row.gpus, row.nbytes), row)
    return [row for row in first.values() if row.nbytes in sizes[::2]]


def formatted(errors: Sequence[float]) -> str:
    """Median and 95th percentile of absolute errors in percent."""
    if len(errors) < 2:
        return ""
    sizes = list(map(abs, errors))
    return f"{100 * median(sizes):.1f} / {100 * quantiles(sizes, n=20)[-1]:.1f}"


def fitted_constants(rows: Sequence[Row]) -> dict[int, NcclCosts]:
    """The constants of each generation of GPUs, fitted to all machines that have such."""
    found = dict[int, list[Row]]()
    for row in rows:
        found.setdefault(generation(row.system), []).append(row)
    return {g: fitted_to(own, costs_before(own[0].system)) for g, own in sorted(found.items())}


def print_errors(
    title: str,
    rows: Sequence[Row],
    costs: Mapping[str, NcclCosts],
    exchange: Mapping[str, ExchangeCosts] = MappingProxyType({}),
) -> None:
    """A line for each machine, and one for each collective on it, with a column for each band.

    All-to-alls have a line of their own beside that of all other collectives of a machine.
    """
    lines = list[tuple[str, ...]]()
    systems = dict.fromkeys(row.system for row in rows)
    groups = [(system, name) for system in systems for name in ("", *COLLECTIVES)]
    for system, name in [*groups, ("all", ""), ("all", EXCHANGE)]:
        own = [
            (row.band, error(row, costs[row.system], exchange.get(row.system, OWN)))
            for row in rows
            if system in ("all", row.system)
            and (name == row.collective or not (name or row.collective == EXCHANGE))
        ]
        columns = (formatted([e for of, e in own if of == band]) for band in BANDS)
        if own:
            lines.append((system, name or f"all but {EXCHANGE}", str(len(own)), *columns))
    print_table(title, ("machine", "collective", "rows", *BANDS), lines, right=("rows", *BANDS))


def print_exchange_errors(rows: Sequence[Row], costs: Mapping[str, NcclCosts]) -> None:
    """All-to-alls with their factors fitted to all other machines, where there are some."""
    own = [row for row in rows if row.collective == EXCHANGE]
    others = {one: [row for row in own if row.system != one] for one in costs}
    fitted = {one: exchange_fitted_to(those, costs) for one, those in others.items() if those}
    if fitted:
        held_out = [row for row in own if row.system in fitted]
        title = "all-to-all, factors for its links and channels fitted to the other machines"
        print_errors(title, held_out, costs, fitted)
        print_text(f"all-to-all, fitted to all: {exchange_fitted_to(own, costs)}")


def spreads(rows: Iterable[Row]) -> list[tuple[Row, float]]:
    """Rows that were measured several times, relative to their median."""
    found = dict[tuple[object, ...], list[Row]]()
    for row in rows:
        found.setdefault((*row.call, row.dtype), []).append(row)
    several = [own for own in found.values() if len(own) > 1]
    return [
        (row, row.seconds / median(one.seconds for one in own) - 1)
        for own in several
        for row in own
    ]


def jumps(rows: Sequence[Row]) -> list[tuple[Row, float]]:
    """Rows relative to half and twice their size, each by its prediction, in the same protocol.

    A jump is the ratio to the geometric mean of both neighbours, minus one: no cost that grows
    smoothly has any.
    """
    first = {(*row.call, row.dtype): row for row in reversed(rows)}
    found = list[tuple[Row, float]]()
    for row in first.values():
        beside = [replace(row, nbytes=size) for size in (row.nbytes // 2, 2 * row.nbytes)]
        known = [first.get((*one.call, one.dtype)) for one in beside]
        three = [row, *(one for one in known if one)]
        if len(three) == 3 and len({chosen_way(*one.call) for one in three}) == 1:
            own, less, more = (one.seconds / _seconds_as_they_are(one) for one in three)
            found.append((row, float(own / np.sqrt(less * more)) - 1))
    return found


def _seconds_as_they_are(row: Row) -> float:
    return terms(*row.call).seconds(predictor_of(row.system, 2).costs)


def errors_of_lines(rows: Iterable[Row], by_type: bool) -> list[tuple[Row, float]]:
    """Errors of latency + bytes / bandwidth fitted to the rows of each curve and protocol.

    by_type     each datatype has a line of its own
    """
    groups = dict[tuple[object, ...], list[Row]]()
    for row in rows:
        key = (*row.curve, chosen_way(*row.call), by_type and row.dtype)
        groups.setdefault(key, []).append(row)
    found = list[tuple[Row, float]]()
    for own in groups.values():
        times = np.array([row.seconds for row in own])
        scale = np.array([times.min(), times.max() / max(row.nbytes for row in own)])
        columns = np.array([(1, row.nbytes) for row in own]) * scale
        line = columns @ least_absolute(columns / times[:, None], np.ones(len(own)))
        found += zip(own, map(float, line / times - 1), strict=True)
    return found


def print_floor(rows: Sequence[Row]) -> None:
    """Print how low all errors but those of all-to-alls could get, by machine and measure."""
    rows = [row for row in rows if row.collective != EXCHANGE]
    measures = {
        "repeated rows": spreads(rows),
        "jumps": jumps(rows),
        "lines": errors_of_lines(rows, by_type=False),
        "lines by type": errors_of_lines(rows, by_type=True),
    }
    lines = list[tuple[str, ...]]()
    for system in dict.fromkeys(row.system for row in rows):
        for name, found in measures.items():
            own = [(row.band, value) for row, value in found if row.system == system]
            columns = (formatted([value for of, value in own if of == band]) for band in BANDS)
            if own:
                lines.append((system, name, str(len(own)), *columns))
    title = "how low errors could get, median / 95th percentile in %"
    print_table(title, ("machine", "measure", "rows", *BANDS), lines, right=("rows", *BANDS))


def main(paths: Sequence[Path]) -> None:
    if missing := [path for path in paths if not path.is_file()]:
        print_text(f"{missing[0]} is not there: name a file, or set TUNER_SHARED")
        return
    rows, others = read_rows(paths)
    by_system = {one: [row for row in rows if row.system == one] for one in MACHINES}
    known = {one: own for one, own in by_system.items() if own}
    default = {one: predictor_of(one, 2).costs for one in known}
    print_errors("median / 95th percentile in %, constants as they are", rows, default)
    held_out = {one: held_out_costs(one, rows) for one in known}
    print_errors("constants of other machines, or of the GPUs before", rows, held_out)
    runs = {one: calibrating_runs(own) for one, own in known.items()}
    calibrated = {one: fitted_to(own, held_out[one]) for one, own in runs.items() if own}
    rest = [row for row in rows if row.system in calibrated and row not in runs[row.system]]
    print_errors(
        "these calibrated by about 20 times of allreduce, the other rows", rest, calibrated
    )
    print_exchange_errors(rows, default)
    for generation_, costs in fitted_constants(rows).items():
        print_text(f"fitted to all of compute capability {generation_}: {costs}")
    print_floor(rows)
    if others:
        print_text(f"left out: {', '.join(f'{n} of {name}' for name, n in others.items())}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [DEFAULT_DATA])
