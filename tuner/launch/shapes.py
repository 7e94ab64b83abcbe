"""A launcher of ranks by shape: a number of nodes and of ranks per node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.launch.failures import CompletedRun
from tuner.launch.hosts import LOCAL_HOST, Hosts
from tuner.launch.launcher import Launcher


@dataclass(frozen=True)
class ShapeLauncher:
    """A launcher that starts `ppn` ranks on each of the first `nodes` hosts."""

    launcher: Launcher
    hosts: Hosts = LOCAL_HOST

    @property
    def is_local(self) -> bool:
        return self.hosts.is_local

    def run(
        self,
        nodes: int,
        ppn: int,
        arguments: Sequence[str],
        *,
        program: Path | None,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        on_line: Callable[[str], float],
        silence_timeout: float,
    ) -> CompletedRun:
        hosts = self.hosts if self.is_local else self.hosts.first(nodes)
        return self.launcher.run(
            nodes * ppn,
            arguments,
            hosts=hosts,
            ppn=ppn,
            settings=settings,
            environment=environment,
            on_line=on_line,
            silence_timeout=silence_timeout,
            program=program,
        )
