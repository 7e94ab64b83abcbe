"""The files that NCCL's Inspector plugin left of a job: found, streamed and read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner.base.errors import InputError
from tuner.base.progress import Counted, quietly
from tuner.base.units import plural
from tuner.importers import inspector, inspector_metrics
from tuner.importers.inspector import NEWEST, InspectorFile, Record
from tuner.importers.inspector_calls import InspectorCalls
from tuner.importers.inspector_metrics import MetricsFile
from tuner.importers.reading import Reading, Told
from tuner.importers.streaming import BEGIN, Line, beginning, streamed_files
from tuner.importers.text import Lines

_FIRST = 100  # lines of a text that tell whose it is
_NOTHING = "line 1: there is no collective in it"


def parse_inspector(lines: Lines, told: Told) -> Iterator[Reading]:
    """Yield a reading per call of one file. Raises InputError naming the line."""
    calls = InspectorCalls()
    reader = reader_of(begin_of(lines))
    last = len(lines.lines)
    own = (
        Line(i, words.encode("utf-8", "replace"), not lines.cut or i < last)
        for i, words in lines.numbered()
    )
    for record in reader.records(own):
        calls.add(record, lines.source, "")
    if not calls:
        raise InputError(_NOTHING)
    _require_untold(told)
    yield from calls.readings(told)


def is_inspector(path: Path) -> bool:
    """Return whether a file begins as one of the plugin's; False for what cannot be read."""
    try:
        return path.is_file() and begins_inspector(beginning(path))
    except InputError:
        return False


def begin_of(lines: Lines) -> bytes:
    """Return the first bytes of a text."""
    begin = "\n".join(line[:BEGIN] for line in lines.lines[:_FIRST])
    return begin[:BEGIN].encode("utf-8", "replace").lstrip()


def begins_inspector(begin: bytes) -> bool:
    """Return whether these are the first bytes of a file of the plugin's."""
    return bool(inspector.FIRST_LINE.match(begin)) or _is_metrics(begin)


def files_of(folder: Path) -> list[Path]:
    """Return the plugin's files in a folder, by name. Raises InputError where there are none."""
    try:
        found = [path for path in sorted(folder.iterdir()) if is_inspector(path)]
    except OSError as reason:
        raise InputError(f"{folder}: cannot be read: {reason.strerror}") from None
    if not found:
        raise InputError(
            f"{folder} is a folder without files of NCCL's Inspector: name the files in it"
        )
    return found


def read_job(
    paths: Sequence[Path], told: Told, progress: Counted = quietly
) -> tuple[list[Reading], list[str]]:
    """Return the calls that files of the plugin tell of, and sentences on what these files lack.

    paths       files of one folder are of one job: what its ranks recorded of a call is merged
    progress    in bytes

    Raises InputError that names file and line for what is damaged.
    """
    calls = InspectorCalls()
    cut, lost, newer = list[str](), 0, ""
    for record, reader, path in records_of(paths, progress):
        if record is not None:
            calls.add(record, str(path), str(path.parent))
            continue
        lost += reader.lost
        cut += [f"{path}: {reader.cut}"] if reader.cut else []
        newer = reader.newer or newer
    if not calls:
        raise InputError(f"{paths[0]}: {_NOTHING}")
    _require_untold(told)
    readings = list(calls.readings(told))
    return readings, [*_incomplete(cut, lost), *_later(newer), *_partial(calls)]


def records_of(
    paths: Sequence[Path], progress: Counted = quietly
) -> Iterator[tuple[Record | None, InspectorFile | MetricsFile, Path]]:
    """Yield each collective with its file, and None at the end of a file.

    A file that is named twice is read once. Raises InputError that names file and line.
    """
    for path, begin, lines in streamed_files(paths, progress):
        reader = reader_of(begin)
        try:
            for record in reader.records(lines):
                yield record, reader, path
        except InputError as reason:
            raise InputError(f"{path}: {reason}") from None
        yield None, reader, path


def reader_of(begin: bytes) -> InspectorFile | MetricsFile:
    """Return what reads a file of the plugin's that begins so."""
    return MetricsFile() if _is_metrics(begin) else InspectorFile()


def _is_metrics(begin: bytes) -> bool:
    return bool(inspector_metrics.ANY_LINE.search(begin))


def _require_untold(told: Told) -> None:
    """Refuse options that would contradict what the files say of every call; raise InputError."""
    said = [f"--{name}" for name in ("p", "nodes", "ppn", "collective") if getattr(told, name)]
    if said:
        raise InputError(
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
        known = f"v{NEWEST[0]}.{NEWEST[1]}"
        yield (
            f"format {newer} of NCCL's Inspector is later than {known}, the last one known here:"
            " compare some times with the files before you rely on them"
        )


def _partial(calls: InspectorCalls) -> Iterable[str]:
    if calls.partial:
        yield (
            f"{plural(calls.partial, 'call')} recorded by some of the ranks alone: these times"
            " may include waiting for ranks that arrived later; give the files of all processes"
        )
