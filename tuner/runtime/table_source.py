"""The request for a table, from arguments and environment, and the fetched table.

Arguments take precedence over the environment, and a file over a service:

    TUNER_TABLE         a table file
    TUNER_SERVICE       base URL of a service, such as http://head:8765
    TUNER_CLUSTER       name of the cluster; optional where the service has one table for this
                        library
    TUNER_TOKEN         access token of the service; or TUNER_TOKEN_FILE, a file that holds it
    TUNER_TIMEOUT       time limit for a service, such as 2s (default: 5s)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.base.errors import InputError, shortened_repr
from tuner.base.units import parse_duration
from tuner.core.table import TuningTable, parse_table, table_record

DEFAULT_TIMEOUT = "5s"
TUNE_AFTER_VARIABLE = "TUNER_TUNE_AFTER"  # how long calls take before a communicator is tuned
MAX_TIMEOUT_S = 3600.0  # seconds
MAX_TABLE_BYTES = 64 * 2**20  # a hundred times the largest table that was ever made
_VERSION = re.compile(r'(?:W/)?"([0-9]{1,18})-')


@dataclass(frozen=True)
class TableRequest:
    """The request of one rank; without table, file and service it accepts what rank 0 gets.

    library     library of this rank, such as `openmpi 5.0.11`; the table must be for it
    table_json  a table passed by the program, as JSON text; "" for none
    path        a table file; None for none
    service     base URL of a service; "" for none
    cluster     name of the cluster; "" for any
    """

    library: str
    table_json: str = ""
    path: Path | None = None
    service: str = ""
    cluster: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    timeout_s: float = 5.0

    @property
    def name(self) -> str:
        """The name of the requested table, equal on ranks with equal requests; "" for none."""
        if self.table_json:
            return f"a table with SHA-256 {sha256_hex(self.table_json)[:16]}"
        if self.path is not None:
            return str(self.path)
        return f"{self.service} cluster {self.cluster}" if self.cluster else self.service

    def parse_and_check(self, text: str | bytes) -> TuningTable:
        """Parse a table; raises InputError where it is invalid or not for this request."""
        table = parse_table(text)
        if table.library != self.library:
            raise InputError(
                f"the table is for {shortened_repr(table.library)}, but this is {self.library}:"
                " tune it"
            )
        if self.cluster and table.cluster.name != self.cluster:
            raise InputError(
                f"the table is of cluster {shortened_repr(table.cluster.name)}, not of"
                f" {shortened_repr(self.cluster)}"
            )
        return table


@dataclass(frozen=True)
class FetchedTable:
    """The text of a table and where it came from.

    etag    ETag of the service's response, "" for a file
    note    a message for the user, where a cached copy replaces a service that is down
    """

    text: str
    origin: str
    etag: str = ""
    note: str = ""

    @property
    def version(self) -> int | None:
        """The service's number for the table, taken from its ETag; None without one."""
        match = _VERSION.match(self.etag)
        return int(match[1]) if match else None


def resolve_request(
    library: str,
    table: TuningTable | Path | str | None = None,
    service: str | None = None,
    cluster: str | None = None,
    token: str | None = None,
    environment: Mapping[str, str] = os.environ,
    directory: Path = Path(),
) -> TableRequest:
    """Complete the arguments of `tune` from the environment.

    directory   base of relative paths

    Raises InputError where both a table and a service are given, and for invalid values.
    """
    if table is not None and service is not None:
        raise InputError("two sources of a table: give either the table or the service")
    if table is None and service is None:
        table = environment.get("TUNER_TABLE") or None
        service = environment.get("TUNER_SERVICE", "") if table is None else None
    token_file = environment.get("TUNER_TOKEN_FILE")
    timeout = parse_duration(environment.get("TUNER_TIMEOUT") or DEFAULT_TIMEOUT)
    if not 0 < timeout <= MAX_TIMEOUT_S:
        raise InputError(
            f"TUNER_TIMEOUT: {timeout:g} s is not a time to wait: write it like {DEFAULT_TIMEOUT}"
        )
    return TableRequest(
        library=library,
        table_json=_content(table) if isinstance(table, TuningTable) else "",
        path=_path(table, directory),
        service=(service or "").rstrip("/").removesuffix("/v1"),
        cluster=cluster or environment.get("TUNER_CLUSTER", ""),
        token=token or environment.get("TUNER_TOKEN", ""),
        token_file=directory / token_file if token_file else None,
        timeout_s=timeout,
    )


def working_directory() -> Path:
    """Return the absolute working directory, or "." where it cannot be determined."""
    try:
        return Path.cwd()
    except OSError:  # deleted, or not readable; a relative path will fail
        return Path()


def _path(table: TuningTable | Path | str | None, directory: Path) -> Path | None:
    if table is None or isinstance(table, TuningTable):
        return None
    if not isinstance(table, str | Path):
        raise InputError(f"expected a table or the path of one, not {shortened_repr(table)}")
    try:
        return (directory / table).absolute()
    except OSError as reason:
        raise InputError(
            f"{shortened_repr(str(table))} is relative to a directory that cannot be found:"
            f" {reason.strerror}"
        ) from None


def _content(table: TuningTable) -> str:
    try:
        return json.dumps(table_record(table), sort_keys=True)
    except (TypeError, ValueError) as reason:
        raise InputError(f"the table's provenance is not JSON: {reason}") from None


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal digits."""
    import hashlib  # slow to import

    return hashlib.sha256(text.encode()).hexdigest()
