"""The hosts that ranks may run on: from a list, from the batch system, or only this computer."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.base import hostlist
from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import plural

MAX_HOSTS = 100_000
MAX_SHOWN_HOSTS = 8  # in messages
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Hosts:
    """The hosts on which ranks may run.

    names   names in the order in which they are filled; empty for this computer
    slots   ranks that each host takes; 0 if unknown
    """

    names: tuple[str, ...] = ()
    slots: int = 0

    def __str__(self) -> str:
        """Return the names for a sentence, shortened if there are many."""
        return format_hosts(self.names) if self.names else "this computer"

    @property
    def is_local(self) -> bool:
        return not self.names

    def first(self, count: int) -> Hosts:
        """Return the first `count` hosts; raises InputError when there are fewer."""
        if not 1 <= count <= len(self.names):
            raise InputError(
                f"{plural(count, 'host')} asked for, {len(self.names)} there: name more"
            )
        return Hosts(self.names[:count], self.slots)


LOCAL_HOST = Hosts()


def format_hosts(names: Sequence[str]) -> str:
    """Return names such as `a, b` for a sentence; after MAX_SHOWN_HOSTS only how many more."""
    more = f" and {len(names) - MAX_SHOWN_HOSTS} more" if len(names) > MAX_SHOWN_HOSTS else ""
    return ", ".join(names[:MAX_SHOWN_HOSTS]) + more


def parse_hosts(text: str) -> Hosts:
    """Read `node1,node2:4` or `n[0-511]:4` from a command line.

    Raises InputError for an invalid list and for a name given twice.
    """
    try:
        entries = [
            (name, slots)
            for names, slots in map(
                _split_slots, hostlist.split_hostlist(re.sub(r"\s*,\s*", ",", text))
            )
            for name in hostlist.expand_hostlist(names, MAX_HOSTS)
        ]
    except InputError as reason:
        raise InputError(f"--hosts: {reason}; write it like a,b or a:4 or n[0-511]:4") from None
    _check_names([name for name, _ in entries], "--hosts")
    twice = [name for name, times in Counter(name for name, _ in entries).items() if times > 1]
    if twice:
        raise InputError(
            f"--hosts names {shortened_repr(twice[0])} twice: name a host once, with its ranks as"
            f" {twice[0]}:2"
        )
    return _merge_entries(entries)


def _split_slots(word: str) -> tuple[str, int]:
    """Split `n[0-3]:4` into names and the ranks on each."""
    match = re.fullmatch(r"(.+?)(?::(\d+))?", word)
    assert match is not None
    return match[1], int(match[2] or 0)


def read_hosts(path: Path | str) -> Hosts:
    """Read a host file with lines such as `node1`, `node1:4` or `node1 slots=4`.

    # begins a comment. Where hosts are repeated, a host that is listed k times without a number
    takes k ranks. Raises InputError naming the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as reason:
        raise InputError(f"{path}: cannot be read as a list of hosts: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: cannot be read as a list of hosts: no text in it") from None
    entries = [
        _parse_entry(content, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if (content := line.partition("#")[0].strip())
    ]
    if not entries:
        raise InputError(f"{path}: no host in it; write one name a line")
    return _merge_entries(entries)


def hosts_from_environment(environ: Mapping[str, str] = os.environ) -> Hosts:
    """Return the hosts that Slurm, LSF or PBS gave to this job; `LOCAL_HOST` outside of a job.

    Slurm: SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE; LSF: LSB_MCPU_HOSTS, LSB_HOSTS; PBS and its
    variants: PBS_NODEFILE. Raises InputError for an invalid variable.
    """
    if names := environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST"):
        per_node = environ.get("SLURM_NTASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE", "0")
        return Hosts(expand_host_list(names), min(_parse_counts(per_node), default=0))
    if pairs := environ.get("LSB_MCPU_HOSTS"):
        words = pairs.split()
        return _merge_entries(
            _without_batch_host(list(zip(words[::2], map(_parse_count, words[1::2]), strict=False)))
        )
    if names := environ.get("LSB_HOSTS"):
        return _merge_entries(_without_batch_host(list(Counter(names.split()).items())))
    if file := environ.get("PBS_NODEFILE"):
        return read_hosts(Path(file))
    return LOCAL_HOST


def expand_host_list(text: str) -> tuple[str, ...]:
    """Return the names of a Slurm host list such as `node[01-03,7],login`; raises InputError."""
    try:
        names = hostlist.expand_hostlist(text, MAX_HOSTS)
    except InputError as reason:
        raise InputError(f"the host list is wrong: {reason}") from None
    _check_names(names, "the host list")
    return tuple(names)


def _parse_counts(text: str) -> list[int]:
    """Return the distinct counts of Slurm's notation: 4 and 3 for `4(x2),3`."""
    return [_parse_count(part.partition("(")[0]) for part in text.split(",")]


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise InputError(f"expected a number of ranks for a host, not {text!r}")
    return int(text)


def _without_batch_host(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return LSF's hosts without the first one if it only runs the job's script.

    LSF lists that host first, with one slot; ranks do not run there.
    """
    rest = [slots for _, slots in pairs[1:]]
    return pairs[1:] if rest and pairs[0][1] == 1 < min(rest) else pairs


def _parse_entry(text: str, where: str) -> tuple[str, int]:
    match = re.fullmatch(
        r"([^\s:]+)(?::(\d+)|\s+slots\s*=\s*(\d+))?(?:\s+max_slots\s*=\s*\d+)?", text.strip()
    )
    if match is None or not _NAME.fullmatch(match[1]):
        raise InputError(
            f"{where}: {shortened_repr(text)} is not a host: write NAME, NAME:4 or NAME slots=4"
        )
    return match[1], int(match[2] or match[3] or 0)


def _merge_entries(entries: Iterable[tuple[str, int]]) -> Hosts:
    slots: dict[str, int] = {}
    times: Counter[str] = Counter()
    for name, count in entries:
        slots[name] = slots.get(name, 0) + count
        times[name] += 1
    _check_names(list(slots), "the host list")
    repeated = max(times.values()) > 1
    return Hosts(
        tuple(slots), min(slots[name] or (times[name] if repeated else 0) for name in slots)
    )


def _check_names(names: list[str], where: str) -> None:
    odd = [name for name in names if not _NAME.fullmatch(name)]
    if odd or not names:
        raise InputError(f"{where} names {shortened_repr(odd[0]) if odd else 'no host'}: check it")
