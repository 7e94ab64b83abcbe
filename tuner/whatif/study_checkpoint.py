"""The checkpoint file of a running study, kept beside the study's file.

It has lines of JSON: the first identifies the study and the code, each further one is a task's
number and its seconds. A line that was cut off when the study was killed is dropped. The file is
deleted when the study is done.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tuner.base.code_digest import code_version
from tuner.base.errors import InputError
from tuner.whatif.checked_study import Study
from tuner.whatif.study_tasks import StudyTask, TaskTimes

CODE_VERSION = code_version()
FILE_KIND = {"kind": "partial study"}
HEADER_PREFIX = json.dumps(FILE_KIND)[:-1]


class Checkpoint:
    """The times of tasks evaluated so far, and the file to which more are written, if any."""

    def __init__(
        self, file: IO[str] | None = None, times: dict[int, TaskTimes] | None = None
    ) -> None:
        self._file = file
        self.times = times or {}

    def add(self, number: int, task_times: TaskTimes) -> None:
        """Add the times of a task and write them to the file."""
        self.times[number] = task_times
        if self._file is not None:
            try:
                self._file.write(json.dumps([number, task_times]) + "\n")
                self._file.flush()
            except OSError as reason:
                raise InputError(
                    f"answers cannot be kept beside the study: {reason.strerror}"
                ) from None


OpenCheckpoint = Callable[[Study, Sequence[StudyTask]], Checkpoint]


@contextmanager
def checkpoint_file(path: Path) -> Iterator[OpenCheckpoint]:
    """Open checkpoint files, which are deleted if the context ends without an error.

    The function that it yields opens `path` when it is called first, for the candidates, and a file
    beside it when it is called again, for their limits. It raises InputError when the file belongs
    to another study, when another process is at work on this one, and when the file cannot be
    written.
    """
    with ExitStack() as stack:
        found: list[Checkpoint] = []

        def keep(study: Study, tasks: Sequence[StudyTask]) -> Checkpoint:
            own = checkpoint_paths(path)[len(found)]
            file = stack.enter_context(_open_locked(own))
            header = {
                **FILE_KIND,
                "tuner": CODE_VERSION,
                "study": study.digest,
                "tasks": len(tasks),
            }
            known = _read_times(own, file, header, [len(task.sizes) for task in tasks])
            found.append(Checkpoint(file, known))
            return found[-1]

        try:
            yield keep
        except BaseException:
            if found and not found[-1].times:
                checkpoint_paths(path)[len(found) - 1].unlink()
            raise
        delete_checkpoint(path)


def checkpoint_paths(path: Path) -> tuple[Path, Path]:
    """Return the files for the times of candidates and for those with faster resources."""
    return path, path.with_name(f"{path.name}.limits")


def delete_checkpoint(path: Path) -> None:
    """Delete the files of a checkpoint, if there are any."""
    for own in checkpoint_paths(path):
        own.unlink(missing_ok=True)


@contextmanager
def _open_locked(path: Path) -> Iterator[IO[str]]:
    """Open a file for reading and appending, by one process at a time."""
    try:
        file = path.open("a+", encoding="utf-8", errors="replace")
    except OSError as reason:
        raise InputError(
            f"{path}: answers cannot be kept beside the study: {reason.strerror}; copy it to a"
            " directory of yours"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{path}: another process is at work on this study") from None
        yield file


def _read_times(
    path: Path, file: IO[str], header: dict[str, Any], sizes: list[int]
) -> dict[int, TaskTimes]:
    """Return the times in the file, which is truncated after its last complete line."""
    file.seek(0)
    known: dict[int, TaskTimes] = {}
    whole = 0
    own = json.dumps(header) + "\n"
    first = file.readline(len(own))
    if first == own:
        whole = len(own.encode())
        for number, line in enumerate(file, start=2):
            if not line.endswith("\n"):
                break
            at, answer = _parse_line(path, number, line, sizes)
            known[at] = answer
            whole += len(line.encode())
    elif not own.startswith(first):  # a beginning of the header was cut off and is rewritten
        raise InputError(
            f"{path}: {_describe_foreign_file(first)}: delete the file or give --restart to"
            " start anew"
        )
    file.seek(whole)
    file.truncate()
    if whole == 0:
        file.write(own)
        file.flush()
    return known


def _describe_foreign_file(first: str) -> str:
    """Describe a file with another first line."""
    if first.startswith(HEADER_PREFIX):
        return (
            "holds the answers of another study, of this one before it was changed, or of another"
            " version of tuner"
        )
    return "is in the way of the answers of the study, and was not written by one"


def _parse_line(path: Path, number: int, line: str, sizes: list[int]) -> tuple[int, TaskTimes]:
    try:
        at, seconds = json.loads(line)
        if type(at) is not int or not 0 <= at < len(sizes):
            raise ValueError
        if seconds is not None and not _is_seconds_list(seconds, sizes[at]):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise InputError(
            f"{path}, line {number}: not an answer; give --restart to start anew"
        ) from None
    return at, seconds


def _is_seconds_list(values: Any, number: int) -> bool:
    if not isinstance(values, list) or len(values) != number:
        return False
    return all(
        value is None or (type(value) is float and 0.0 <= value < float("inf")) for value in values
    )
