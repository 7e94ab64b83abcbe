"""A launcher on several hosts with the interface of a launcher on this computer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.launch.failures import CompletedRun
from tuner.launch.hosts import Hosts
from tuner.launch.launcher import Launcher

PRELOAD_VARIABLE = "LD_PRELOAD"


@dataclass(frozen=True)
class MultiHostLauncher:
    """A launcher that starts `ppn` ranks on each host, or `ppn` + 1 where more are requested.

    It starts no more where the library's launcher does not bear it (`starts_spare_ranks`).
    """

    launcher: Launcher
    hosts: Hosts
    ppn: int

    @property
    def library(self) -> str:
        return self.launcher.library

    @property
    def python(self) -> Path:
        """The interpreter of the ranks."""
        return self.launcher.python

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        check: bool = True,
        program: Path | None = None,
    ) -> CompletedRun:
        """Run ranks on all hosts, see `Launcher.run`.

        An LD_PRELOAD in `environment` is appended to that of this process.
        """
        more = ranks > self.ppn * len(self.hosts.names) and self.launcher.profile.starts_spare_ranks
        ppn = self.ppn + more
        given = dict(environment or {})
        if PRELOAD_VARIABLE in given:
            given[PRELOAD_VARIABLE] = ":".join(
                filter(None, [os.environ.get(PRELOAD_VARIABLE), given[PRELOAD_VARIABLE]])
            )
        return self.launcher.run(
            ppn * len(self.hosts.names),
            arguments,
            hosts=self.hosts,
            ppn=ppn,
            settings=settings,
            environment=given,
            on_line=on_line,
            timeout=timeout,
            silence_timeout=silence_timeout,
            check=check,
            program=program,
        )
