"""The options of a process group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.core.table import TuningTable


@dataclass(frozen=True)
class Options:
    """Options that say which table a process group follows, as in `tuner.runtime.tune`.

    Pass it as `pg_options` of `init_process_group`; without it the environment decides.
    """

    table: TuningTable | Path | str | None = None
    service: str | None = None
    cluster: str | None = None
    token: str | None = None
    memory: str = "host"
    feedback: bool | None = None
    verbose: bool = False
