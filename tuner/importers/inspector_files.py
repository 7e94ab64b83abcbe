"""Discovery and reading of the files that NCCL's Inspector plugin wrote for a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner.base.errors import InputError, UsageError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.base.units import plural
from tuner.importers import inspector, inspector_metrics
from tuner.importers.inspector import NEWEST_KNOWN_VERSION, InspectorFile, InspectorRecord
from tuner.importers.inspector_calls import InspectorCalls
from tuner.importers.inspector_metrics import MetricsFile
from tuner.importers.reading import BenchmarkResult, UserMetadata, option_of
from tuner.importers.streaming import HEAD_BYTES, RawLine, iter_files, read_head
from tuner.importers.text import TextLines

_HEAD_LINES = 100  # lines of a text that are used to detect its format
_NO_COLLECTIVE = "line 1: expected collectives in the file"


def parse_inspector(lines: TextLines, metadata: UserMetadata) -> Iterator[BenchmarkResult]:
    """Yield a result per call of one file; raise InputError with the line number."""
    calls = InspectorCalls()
    reader = select_reader(text_head(lines))
    last = len(lines.lines)
    own = (
        RawLine(i, words.encode("utf-8", "replace"), not lines.truncated or i < last)
        for i, words in lines.numbered()
    )
    for record in reader.records(own):
        calls.add(record, lines.source, "")
    if not calls:
        raise InputError(_NO_COLLECTIVE)
    _check_no_overrides(metadata)
    yield from calls.results(metadata)


def is_inspector_file(path: Path) -> bool:
    """Return whether a file begins like those of the plugin; False where it cannot be read."""
    try:
        return path.is_file() and is_inspector_head(read_head(path))
    except InputError:
        return False


def text_head(lines: TextLines) -> bytes:
    """Return the first bytes of a text without leading white space."""
    begin = "\n".join(line[:HEAD_BYTES] for line in lines.lines[:_HEAD_LINES])
    return begin[:HEAD_BYTES].encode("utf-8", "replace").lstrip()


def is_inspector_head(head: bytes) -> bool:
    """Return whether these are the first bytes of a file of the plugin."""
    return bool(inspector.FIRST_LINE.match(head)) or _is_metrics(head)


def find_inspector_files(folder: Path) -> list[Path]:
    """Return the plugin's files in a folder by name; raise InputError where there are none."""
    try:
        found = [path for path in sorted(folder.iterdir()) if is_inspector_file(path)]
    except OSError as reason:
        raise InputError(f"{folder}: cannot be read: {reason.strerror}") from None
    if not found:
        raise InputError(
            f"{folder} is a folder without files of NCCL's Inspector: name the files in it"
        )
    return found


def read_job(
    paths: Sequence[Path], metadata: UserMetadata, progress: ProgressCallback = no_progress
) -> tuple[list[BenchmarkResult], list[str]]:
    """Return the calls in files of the plugin, and sentences on what is missing in these files.

    paths       files in one folder are of one job: the records of a call on its ranks are merged
    progress    called with the bytes read so far, and in all

    Raises InputError with file and line where a file is damaged.
    """
    calls = InspectorCalls()
    cut, lost, newer = list[str](), 0, ""
    for record, reader, path in iter_records(paths, progress):
        if record is not None:
            calls.add(record, str(path), str(path.parent))
            continue
        lost += reader.dropped_collectives
        cut += [f"{path}: {reader.truncation_reason}"] if reader.truncation_reason else []
        newer = reader.unknown_version or newer
    if not calls:
        raise InputError(f"{paths[0]}: {_NO_COLLECTIVE}")
    _check_no_overrides(metadata)
    readings = list(calls.results(metadata))
    return readings, [*_incomplete(cut, lost), *_later(newer), *_partial(calls)]


def iter_records(
    paths: Sequence[Path], progress: ProgressCallback = no_progress
) -> Iterator[tuple[InspectorRecord | None, InspectorFile | MetricsFile, Path]]:
    """Yield each collective with the reader and path of its file, and None at the end of a file.

    A file that is named twice is read once. Raises InputError with file and line.
    """
    for path, begin, lines in iter_files(paths, progress):
        reader = select_reader(begin)
        try:
            for record in reader.records(lines):
                yield record, reader, path
        except InputError as reason:
            raise InputError(f"{path}: {reason}") from None
        yield None, reader, path


def select_reader(head: bytes) -> InspectorFile | MetricsFile:
    """Return a reader for a file of the plugin with these first bytes."""
    return MetricsFile() if _is_metrics(head) else InspectorFile()


def _is_metrics(begin: bytes) -> bool:
    return bool(inspector_metrics.METRIC_LINE.search(begin))


def _check_no_overrides(metadata: UserMetadata) -> None:
    """Raise UsageError for options that could contradict what the files say about every call."""
    said = [
        option_of(name) for name in ("p", "nodes", "ppn", "collective") if getattr(metadata, name)
    ]
    if said:
        raise UsageError(
            f"files of NCCL's Inspector say what ran on which ranks: leave {', '.join(said)} out"
        )


def _incomplete(cut: Sequence[str], lost: int) -> Iterable[str]:
    if cut:
        more = f" (and {plural(len(cut) - 1, 'other file')})" if len(cut) > 1 else ""
        yield f"{cut[0]}{more}, as a job that was killed leaves it: what is before it was read"
    if lost:
        yield (
            f"{plural(lost, 'collective')} dropped by the plugin before it could write them"
            " (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)"
        )


def _later(newer: str) -> Iterable[str]:
    if newer:
        known = f"v{NEWEST_KNOWN_VERSION[0]}.{NEWEST_KNOWN_VERSION[1]}"
        yield (
            f"format {newer} of NCCL's Inspector is later than {known}, the last one known here:"
            " compare some times with the files before you rely on them"
        )


def _partial(calls: InspectorCalls) -> Iterable[str]:
    if calls.partial_calls:
        yield (
            f"{plural(calls.partial_calls, 'call')} recorded by some of the ranks alone:"
            " these times"
            " may include waiting for ranks that arrived later; give the files of all processes"
        )
