"""Profiles of calls: which collectives an application calls, how often and with how many bytes.

    {"kind": "profile", "name": "ResNet-50", "library": "openmpi 5.0.11", "calls": [
     {"collective": "allreduce", "nodes": 32, "ppn": 6, "memory": "cuda", "nbytes": 67108864,
      "calls": 2}]}

Sizes are those of the whole buffer, as everywhere. The keys of a call are those of the times of
calls that programs report. The library is that of the recorded program, and left out where no
program was recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import dataclass_from_record, load_json, write_atomically
from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST

KIND = "profile"
MAX_CALLS = 100_000
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class ProfiledCall:
    """Calls of one collective with one size on `nodes` nodes of `ppn` ranks.

    nbytes      bytes of the whole buffer
    calls       how often it is called
    """

    collective: str
    nodes: int
    ppn: int
    nbytes: int
    calls: int
    memory: str = HOST

    def __post_init__(self) -> None:
        if self.collective not in list(Collective):
            raise InputError(
                f"expected a collective ({', '.join(Collective)}), got"
                f" {shortened_repr(self.collective)}"
            )
        if min(self.nodes, self.ppn, self.nbytes, self.calls) < 1:
            raise InputError(f"{self.collective}: nodes, ppn, nbytes and calls are at least 1")


@dataclass(frozen=True)
class CallProfile:
    """The calls of an application.

    name        name of the application
    library     MPI library that it was recorded with, as `openmpi 5.0.11`; "" for none
    """

    name: str
    calls: tuple[ProfiledCall, ...]
    library: str = ""


def write_call_profile(path: Path, profile: CallProfile) -> None:
    """Write a profile, whole or not at all."""
    calls = [asdict(one) for one in profile.calls]
    library = {"library": profile.library} if profile.library else {}
    record = {"kind": KIND, "name": profile.name, **library, "calls": calls}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def read_call_profile(path: Path) -> CallProfile:
    """Return a profile; raise InputError that starts with the file's name."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return _profile(load_json(data))
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except (InputError, ValueError, RecursionError) as reason:
        raise InputError(f"{path}: not a profile of calls: {reason}") from None


def typical_sizes(calls: Sequence[ProfiledCall]) -> tuple[int, ...]:
    """Return the sizes to measure for some calls, ascending, in whole multiples of 4 bytes.

    These are, of the sizes between two powers of two, the one whose calls move most bytes.
    """
    moved = Counter[int]()
    for one in calls:
        moved[max(4, one.nbytes - one.nbytes % 4)] += one.calls * one.nbytes
    typical: dict[int, int] = {}
    for nbytes in sorted(moved, key=lambda nbytes: (moved[nbytes], nbytes)):
        typical[nbytes.bit_length()] = nbytes
    return tuple(sorted(typical.values()))


def _profile(record: Any) -> CallProfile:
    listed = record.get("calls") if isinstance(record, dict) else None
    if not isinstance(listed, list) or record.get("kind") != KIND or len(listed) > MAX_CALLS:
        raise InputError(f"expected kind: {KIND} and a list of at most {MAX_CALLS} calls")
    if not all(isinstance(one, dict) for one in listed):
        raise InputError("each of calls is a mapping with collective, nodes, ppn, nbytes, calls")
    calls = tuple(dataclass_from_record(ProfiledCall, one) for one in listed)
    name, library = record.get("name", ""), record.get("library", "")
    if not isinstance(name, str) or not isinstance(library, str):
        raise InputError("expected texts as name and library")
    return CallProfile(name, calls, library)
