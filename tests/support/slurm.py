"""A real Slurm on an emulated cluster: its controller on the first host, a daemon on every host.

Debian's packages are installed into a copy of this computer's files (`tests.support.overlay`), so
nothing of them is left behind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.overlay import Overlay
from tests.support.waiting import patience, until
from tuner.emulation import EmulatedCluster, launch

PACKAGES = ("slurm-wlm", "slurm-wlm-basic-plugins", "libpmix-dev")
SPOOL = "/var/spool/slurm"
# Slurm keeps a rank's PMIx files in TmpFS, which hosts that share a file system must not share.
_CONFIGURATION = f"""
ClusterName=emulated
SlurmctldHost={{first}}({{address}})
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={SPOOL}
SlurmctldPidFile={SPOOL}/controller.pid
SlurmctldLogFile={SPOOL}/controller.log
SlurmdSpoolDir={SPOOL}/%n
TmpFS={SPOOL}/%n
SlurmdPidFile={SPOOL}/%n.pid
SlurmdLogFile={SPOOL}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
{{nodes}}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm.

    home    a directory that its hosts share with this computer
    """

    cluster: EmulatedCluster
    overlay: Overlay
    home: Path

    @property
    def first(self) -> str:
        """The host that users log in to."""
        return self.cluster.network.hosts[0]

    def words(self, host: str, command: Sequence[str | Path]) -> list[str]:
        """Return the words that run a command on a host, with Debian's packages there."""
        return self.overlay.words([*launch.host_command(self.cluster, host), *map(str, command)])

    def run(self, *command: str | Path, timeout: float | None = None) -> str:
        """Run a command on the first host and return its output; raises where it fails."""
        ended = subprocess.run(
            self.words(self.first, command),
            capture_output=True,
            text=True,
            timeout=timeout or patience(),
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def submit(
        self,
        script: Path,
        folder: Path,
        options: Sequence[str],
        arguments: Sequence[str | Path],
        environment: Mapping[str, str],
        timeout: float,
    ) -> str:
        """Submit a script, wait for its end and return what it wrote.

        environment     of the user, which jobs inherit

        Raises AssertionError where it fails.
        """
        out = folder / f"{script.stem}.log"
        variables = [f"{name}={value}" for name, value in environment.items()]
        submit = ["sbatch", "--wait", f"--output={out}", f"--chdir={folder}", *options]
        try:
            self.run("env", *variables, *submit, script, *arguments, timeout=timeout)
        except AssertionError as reason:
            said = out.read_text(encoding="utf-8") if out.exists() else "no output"
            raise AssertionError(f"{reason}\n{said}") from None
        return out.read_text(encoding="utf-8")


@contextmanager
def started(cluster: EmulatedCluster, place: Path, cores: int) -> Iterator[Slurm]:
    """Install Slurm, start it on the hosts of an emulated cluster that is up, and end it.

    place   an empty directory
    cores   that each host is said to have

    Raises OverlayError where this computer cannot have a copy of its files or the packages.
    """
    with ExitStack() as stack:
        copy, home = place / "copy", place / "home"
        for directory in (copy, home):
            directory.mkdir()
        overlay = Overlay(copy)
        stack.callback(overlay.close)
        for directory in (Path("/run"), home):
            overlay.bind(directory, always=True)
        overlay.install(PACKAGES)
        slurm = Slurm(cluster, overlay, home)
        hosts = cluster.network.hosts
        overlay.write("/etc/slurm/slurm.conf", configuration(cluster, cores))
        slurm.run("mkdir", "-p", SPOOL, *(f"{SPOOL}/{host}" for host in hosts))
        _start(slurm, slurm.first, ["slurmctld", "-D"], stack)
        for host in hosts:
            _start(slurm, host, ["slurmd", "-D", "-N", host], stack)
        _wait(slurm, len(hosts))
        yield slurm


def configuration(cluster: EmulatedCluster, cores: int) -> str:
    """Return Slurm's configuration of the hosts of an emulated cluster."""
    lines = (cluster.directory / "hosts").read_text(encoding="utf-8").splitlines()
    addresses = {name: address for address, name in map(str.split, lines)}
    hosts = cluster.network.hosts
    nodes = "\n".join(f"NodeName={host} NodeAddr={addresses[host]} CPUs={cores}" for host in hosts)
    return _CONFIGURATION.format(first=hosts[0], address=addresses[hosts[0]], nodes=nodes)


def _start(slurm: Slurm, host: str, command: Sequence[str], stack: ExitStack) -> None:
    daemon = subprocess.Popen(
        slurm.words(host, command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(daemon.wait, patience())
    stack.callback(daemon.terminate)


def _wait(slurm: Slurm, hosts: int) -> None:
    """Return when all hosts are idle."""

    def states() -> list[str]:
        asked = subprocess.run(
            slurm.words(slurm.first, ["sinfo", "--noheader", "--Node", "--format=%T"]),
            capture_output=True,
            text=True,
            timeout=patience(),
            check=False,
        )
        return asked.stdout.split()

    until(lambda: states() == ["idle"] * hosts)
