"""The parameters of a calibration, as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from tuner.base.units import format_range, format_size, format_time, humanize, parse_size
from tuner.cli.terminal.output import print_cautions, print_table, print_text
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.measurement import cluster_title
from tuner.core.path_classes import PATH_CLASSES
from tuner.topology import HOST, NETWORK, NETWORK_BIDIRECTIONAL, NETWORK_RING

MAX_SHOWN_GAPS = 12
INTERVAL_COLUMNS = ("95 % of alpha", "95 % of 1/beta")
COLUMNS = ("path", "sizes", "alpha", INTERVAL_COLUMNS[0], "1/beta", INTERVAL_COLUMNS[1], "lag")
_SPAN = re.compile(r" \[(\w+), (\w+)\)")  # names of segments in a comparison of calibrations
RATE_PARAMETERS = ("beta", "gamma")  # seconds per byte, shown as rates


def format_estimate(parameter: str, estimate: Estimate | None) -> str:
    """Return an estimate for people, in the unit of its parameter."""
    if estimate is None:
        return "none"
    if parameter.endswith(RATE_PARAMETERS):
        return _rate(estimate)
    if parameter.endswith("lag"):
        return _lag(estimate)
    if parameter.endswith(("limit", "from")):
        return format_size(round(estimate.value))
    if parameter.startswith("capacity"):
        return _speed(estimate.value, estimate.low, estimate.high)
    return _time(estimate)


def parameter_label(parameter: str) -> str:
    """Return the label of a parameter's figure, such as `network, 64KiB to 1MiB: 1/beta`."""
    text = _SPAN.sub(lambda found: f", {format_range(*map(_bound, found.groups()))}", parameter)
    found = re.fullmatch(rf"(.*: )({'|'.join(RATE_PARAMETERS)})", text)
    return f"{found[1]}1/{found[2]}" if found else text


def _bound(text: str) -> float:
    return math.inf if text == "inf" else parse_size(text)


def format_ratio(parameter: str, ratio: float | None) -> str:
    """Return the ratio of the figures that are shown, inverted for parameters shown as rates."""
    if ratio is None or (ratio == 0 and parameter.endswith(RATE_PARAMETERS)):
        return ""
    return f"{1 / ratio if parameter.endswith(RATE_PARAMETERS) else ratio:.3f}"


def _machine(calibration: Calibration) -> str:
    hosts = calibration.provenance.get("measured", {}).get("hosts", ())
    return cluster_title(calibration.cluster, len(hosts))


def _senders(cost: PathCost | None) -> Iterator[str]:
    """Yield sentences on what senders between hosts wait for, where it is unusual."""
    if cost is None:
        return
    if cost.sync_ack_threshold < math.inf:
        size = format_size(round(cost.sync_ack_threshold))
        yield f"senders of about {size} and more wait for an acknowledgement: one latency longer"
    if cost.early_push_limit > cost.eager_limit:
        sizes = f"{format_size(round(cost.eager_limit))} and more"
        if cost.early_push_limit < math.inf:
            sizes += f", below {format_size(round(cost.early_push_limit))},"
        yield (
            f"messages of {sizes} set out at once, but their senders wait until the receiver has"
            " asked for them, too"
        )


def print_calibration(calibration: Calibration) -> None:
    """Print paths, reductions and capacities with their intervals, and what is not determined."""
    _print_paths(calibration)
    if calibration.reduction:
        print_table(
            "reduction",
            ("memory", "launch", "1/gamma"),
            [(m, _time(c.launch), _rate(c.gamma)) for m, c in calibration.reduction.items()],
            wrappable=("launch", "1/gamma"),
        )
    if calibration.capacities:
        print_table(
            "shared",
            ("what", "capacity"),
            [
                (name, format_estimate("capacity", one))
                for name, one in calibration.capacities.items()
            ],
            wrappable=("what", "capacity"),
        )
    print_cautions([*_far_off(calibration), *calibration.borrowed_costs.values()])
    _print_gaps(calibration.provenance.get("undetermined", []))


def _print_paths(calibration: Calibration) -> None:
    """Print the costs of paths, the links between hosts, and what senders wait for."""
    rows = [
        (
            _path(path, memory),
            format_range(round(s.start_bytes), _whole(s.stop_bytes)),
            *_split_interval(_time(s.alpha)),
            *_split_interval(_rate(s.beta)),
            _lag(s.latency_per_byte),
        )
        for (path, memory), cost in calibration.paths.items()
        for s in cost.segments
    ]
    print_table(
        f"{calibration.library} on {_machine(calibration)}",
        COLUMNS,
        rows,
        right=("alpha", "1/beta"),
        droppable=INTERVAL_COLUMNS,
        wrappable=("path", *INTERVAL_COLUMNS, "lag"),
    )
    known = calibration.provenance.get("topology")
    if known and (NETWORK, HOST) in calibration.paths:
        print_text(f"alpha of {NETWORK} comes on top of the links' latencies in {known}")
    links = list(_links(calibration))
    if links:
        print_table(
            "links", ("path", "latency", "rate"), links, wrappable=("path", "latency", "rate")
        )
    for sentence in _senders(calibration.paths.get((NETWORK, HOST))):
        print_text(sentence)


def _print_gaps(gaps: Sequence[str]) -> None:
    """Print what the measurements do not determine."""
    if gaps:
        print_cautions(["these measurements do not determine:"])
    for gap in gaps[:MAX_SHOWN_GAPS]:
        print_text(f"  {humanize(gap)}")
    if len(gaps) > MAX_SHOWN_GAPS:
        print_text(f"  and {len(gaps) - MAX_SHOWN_GAPS} more, see the calibration's provenance")


def _far_off(calibration: Calibration) -> Iterator[str]:
    """Yield a sentence for each path with outliers, which have little weight in its fit."""
    sizes: dict[str, list[int]] = {}
    for line in calibration.provenance.get("fit", []):
        name = _path(line["path"], line["memory"])
        sizes.setdefault(name, []).extend(line.get("outliers", []))
    for name, found in sizes.items():
        if found:
            shown = ", ".join(format_size(size) for size in sorted(found))
            yield f"{name}: far off the line, and counting little: {shown}"


def _links(calibration: Calibration) -> Iterator[tuple[str, str, str]]:
    """Yield name, latency and rate of the links between hosts, without software at their ends."""
    for path, found in calibration.provenance.get("links", {}).items():
        if path == NETWORK or path not in (*PATH_CLASSES, NETWORK_BIDIRECTIONAL, NETWORK_RING):
            latency, rate = Estimate(*found["latency"]), found["bytes_per_second"]
            yield _named(path), _time(latency), _speed(*rate) if rate else ""


def _named(path: str) -> str:
    """Return the name of a path with the rates in it as people write them."""
    return re.sub(r"([\d.]+e[+]?\d+)B/s", lambda found: f"{float(found[1]) / 1e6:g} MB/s", path)


def _path(path: str, memory: str) -> str:
    return _named(path) if memory == HOST else f"{_named(path)} ({memory})"


def _whole(size: float) -> float:
    return size if math.isinf(size) else round(size)


def _split_interval(figure: str) -> tuple[str, str]:
    """Split `5us (4us to 6us)` into `5us` and `4us to 6us`."""
    value, _, interval = figure.partition(" (")
    return value, interval.removesuffix(")")


def _time(estimate: Estimate) -> str:
    low, high = format_time(estimate.low), format_time(estimate.high)
    return f"{format_time(estimate.value)} ({low} to {high})"


def _lag(estimate: Estimate) -> str:
    """Return a lag for people, or "" where it is zero: the ports are then busy all the time."""
    if estimate.value == 0.0:
        return ""
    low, value, high = (
        format_time(1024 * lag) for lag in (estimate.low, estimate.value, estimate.high)
    )
    return f"{value}/KiB ({low} to {high})"


def _rate(estimate: Estimate) -> str:
    """Return bytes per second for an estimate in seconds per byte, with its interval inverted."""
    low, value, high = (
        1 / beta if beta > 0 else math.inf for beta in (estimate.high, estimate.value, estimate.low)
    )
    return _speed(value, low, high)


def _speed(value: float, low: float, high: float) -> str:
    """Return a rate with its interval, in the unit that suits the value."""
    scale, unit = (1e9, "GB/s") if value >= 1e8 else (1e6, "MB/s")
    shown, least, most = (_digits(rate / scale) for rate in (value, low, high))
    return f"{shown} {unit} ({least} to {most})"


def _digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    return format(Decimal(f"{value:.3g}"), "f") if math.isfinite(value) else str(value)
