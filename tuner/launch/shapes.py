"""A launcher of ranks by shape: a number of nodes and of ranks per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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

    def run(self, nodes: int, ppn: int, arguments: Sequence[str], **known: Any) -> CompletedRun:
        """Run ranks on the first hosts, see `Launcher.run`."""
        hosts = self.hosts if self.is_local else self.hosts.first(nodes)
        return self.launcher.run(nodes * ppn, arguments, hosts=hosts, ppn=ppn, **known)
