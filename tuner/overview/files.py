"""Overviews of several files, and what these tell together."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.importers import UserMetadata
from tuner.overview.overview import Overview
from tuner.overview.recognition import open_file
from tuner.overview.time_ratios import TimeComparison, compare_overviews

NOT_READ = "not read"
MAX_RANKS = 512  # up to which a service predicts times, which takes seconds


def open_files(
    references: Sequence[str], told: UserMetadata, *, is_trusted: bool = True
) -> list[Overview]:
    """Return the overviews of files and machines; one that cannot be read is named as such.

    Raises InputError where none can be read.
    """
    found, problems = list[Overview](), list[InputError]()
    for reference in references:
        try:
            found.append(open_file(reference, told, is_trusted=is_trusted))
        except InputError as reason:
            problems.append(reason)
            found.append(Overview(reference, NOT_READ, [str(reason)]))
    if len(problems) == len(references):
        raise problems[0]
    return found


def overviews_record(
    found: Sequence[Overview], compared: Sequence[TimeComparison]
) -> dict[str, Any]:
    """Return overviews and comparisons as JSON data."""
    return {
        "files": [one.record() for one in found],
        "comparisons": [each.record() for each in compared],
    }


def open_sent_files(
    files: Iterable[tuple[str, bytes]], machines: Sequence[str], told: UserMetadata
) -> dict[str, Any]:
    """Return the overviews of files that anybody may have sent, as JSON data.

    files       names without a directory, and contents
    machines    machines as `preset:NAME`, to compare results with
    told        what the sender says of results whose file does not

    Raises InputError for a file that cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, (name, content) in enumerate(files):  # names may occur twice
            paths.append(Path(folder, str(number), name))
            paths[-1].parent.mkdir()
            paths[-1].write_bytes(content)
        place = re.compile(re.escape(folder) + r"/\d+/")
        try:
            found = open_files([*map(str, paths)], told, is_trusted=False)
            found += [open_file(name, told) for name in machines]
            record = overviews_record(found, compare_overviews(found, MAX_RANKS))
        except InputError as reason:
            raise InputError(place.sub("", str(reason))) from None
        return dict(json.loads(place.sub("", json.dumps(record))))
