"""JSON output of nccl-tests (option -J), with the times of single iterations where they are given.

It is usually written on one line; then every error is on line 1 and names the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tuner.base.errors import InputError, shortened_repr
from tuner.core.measurement import MAX_SAMPLE_S
from tuner.importers.nccl_tests import NcclTestsRun, format_version, make_result, program_in
from tuner.importers.reading import BenchmarkResult, UserMetadata
from tuner.importers.text import INT64_LIMIT, TextLines

RESULT_START = re.compile(r'"size"\s*:')  # begins a result and occurs nowhere else
MAX_MICROSECONDS = 1e6 * MAX_SAMPLE_S
BUFFER_MODES = ("out_of_place", "in_place")
FORCED_ALGORITHM = re.compile(r"NCCL_ALGO=([A-Za-z]{1,20})")


def parse_json(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield one result per JSON result; raise InputError with the line and the result."""
    content = "\n".join(lines.lines)
    record = _load_json(content)
    if record.get("kind") == "table":
        raise InputError(
            "line 1: a tuning table, no results: `tuner evaluate RESULTS --table FILE`"
            " scores it on results"
        )
    results = record.get("results")
    if not isinstance(results, list) or not results:
        raise InputError(
            "line 1: no `results` as nccl-tests writes them: this is another file, or"
            " the run did not finish"
        )
    run, algorithm = _run(record), _algorithm(record)
    metadata = replace(metadata, algorithm=metadata.algorithm or algorithm)
    begins = [content.count("\n", 0, match.start()) + 1 for match in RESULT_START.finditer(content)]
    for i, result in enumerate(results):
        line = begins[i] if len(begins) == len(results) else 1
        yield _reading(lines.source, line, i + 1, result, run, metadata)


def _load_json(content: str) -> dict[str, Any]:
    try:
        record = json.loads(content, parse_constant=_no_constant)
    except json.JSONDecodeError as reason:
        raise InputError(
            f"line {reason.lineno}: damaged or cut off at character {reason.colno}: {reason.msg}"
        ) from None
    except (ValueError, RecursionError):
        raise InputError("line 1: not JSON that nccl-tests writes") from None
    if not isinstance(record, dict):
        raise InputError("line 1: not JSON that nccl-tests writes")
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _run(record: Mapping[str, Any]) -> NcclTestsRun:
    """Return the program, its library and its ranks, as far as the record has them."""
    arguments, version = record.get("args"), record.get("nccl_version")
    called = str(arguments[0])[:4096] if isinstance(arguments, list) and arguments else ""
    run = NcclTestsRun(program_in(called))
    if type(version) is int and 0 < version < 10**6:
        run.library = format_version(version)
    about = record.get("config")
    devices = about.get("devices") if isinstance(about, dict) else None
    for device in devices if isinstance(devices, list) else ():
        rank, group, host = (
            device.get(name) if isinstance(device, dict) else None
            for name in ("rank", "group", "hostname")
        )
        if type(rank) is not int or not isinstance(host, str):
            raise InputError(
                f"line 1: not a device with rank and hostname: {shortened_repr(device)}"
            )
        gpu = " ".join(str(value)[:200] for name, value in device.items() if name != "hostname")
        run.add_rank(rank, group if type(group) is int else 0, host, gpu)
    return run


def _algorithm(record: Mapping[str, Any]) -> str:
    """Return the one algorithm that the environment allowed, or "" for NCCL's own selection."""
    environment = record.get("env")
    for variable in environment if isinstance(environment, list) else ():
        if isinstance(variable, str) and (forced := FORCED_ALGORITHM.fullmatch(variable)):
            return forced[1].lower()
    return ""


def _reading(
    source: str, line: int, number: int, result: Any, run: NcclTestsRun, metadata: UserMetadata
) -> BenchmarkResult:
    where = f"line {line}: result {number}"
    size = result.get("size") if isinstance(result, dict) else None
    if type(size) is not int or not 0 <= size < INT64_LIMIT:
        raise InputError(f"{where}: the size cannot be {shortened_repr(size)}")
    values = [_samples_and_check(result, place, where, run) for place in BUFFER_MODES]
    operands = [str(result[name])[:80] for name in ("type", "redop") if name in result]
    return make_result(source, line, size, operands, values, run, metadata)


def _samples_and_check(
    result: Mapping[str, Any], place: str, where: str, run: NcclTestsRun
) -> tuple[tuple[float, ...], bool]:
    """Return the samples in seconds, and whether the result of the collective was wrong.

    The samples are those of the single iterations where they are given.
    """
    about, single = result.get(place), result.get(f"{place}_per_iter")
    if about is None:
        return (), False
    if not isinstance(about, dict):
        raise InputError(f"{where}: {place} cannot be {shortened_repr(about)}")
    run.is_cpu_time = run.is_cpu_time or "cpu_time" in about
    wrong = _seconds(about.get("nwrong"), f"{where}: nwrong")
    times = single.get("times_us") if isinstance(single, dict) else None
    if isinstance(times, list) and times:
        each = [_seconds(time, f"{where}: a time") for time in times]
        return tuple(value for part in each for value in part), bool(wrong and wrong[0] > 0)
    time = about.get("time", about.get("cpu_time"))
    return _seconds(time, f"{where}: the time"), bool(wrong and wrong[0] > 0)


def _seconds(value: Any, what: str) -> tuple[float, ...]:
    """Return a time in microseconds as seconds in a tuple, which is empty for "nan" and null."""
    if value is None or value == "nan":
        return ()
    if type(value) not in (int, float) or not 0 <= value <= MAX_MICROSECONDS:
        raise InputError(f"{what} cannot be {shortened_repr(value)}")
    return (value / 1e6,)
