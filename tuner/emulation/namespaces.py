"""Network namespaces and the cables between them, made with `ip`, and tmpfs mounts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.base.errors import InputError
from tuner.emulation.network import MTU

NAMESPACE_DIR = Path("/run/netns")  # where `ip netns` keeps them
TIMEOUT_S = 60.0  # for `ip`
# No frame is ever lost, so TCP must not take a long queue for a loss, and needs no slow start: a
# message takes as long over a new connection as over an old one.
ROUTE_OPTIONS = "rto_min 3s initcwnd 64 initrwnd 64"
SYSCTLS = {
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_early_retrans": "0",
    "ipv4/tcp_rmem": "4096 262144 1048576",
    "ipv4/tcp_wmem": "4096 262144 524288",
}
NO_IPV6 = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"}


def ip_address(host: int) -> str:
    """Return the IP address of a host, given its number."""
    return f"10.77.{host >> 8}.{(host & 255) + 1}"


def mac_address(host: int) -> str:
    """Return the Ethernet address of a host; the switch finds its number in the last two bytes."""
    return f"02:74:6c:00:{host >> 8:02x}:{host & 255:02x}"


def create(hosts: Sequence[str], switch: str) -> None:
    """Create and configure namespaces, with a cable from `eth0` of host N to `pN` of the switch.

    Raises InputError with what `ip` said when the system refuses.
    """
    _ip(f"netns add {name}" for name in [switch, *hosts])
    for name in [switch, *hosts]:
        _set_sysctls(name, NO_IPV6 if name == switch else NO_IPV6 | SYSCTLS)
    _ip(
        f"link add p{number} netns {switch} mtu {MTU} type veth"
        f" peer name eth0 netns {host} mtu {MTU} address {mac_address(number)}"
        for number, host in enumerate(hosts)
    )
    _ip((f"link set p{number} up" for number in range(len(hosts))), switch)
    for number, host in enumerate(hosts):
        _ip(_host_commands(number, len(hosts)), host)


def delete(names: Iterable[str]) -> None:
    """Remove namespaces with all that is in them; raises InputError as `create` does."""
    _ip(f"netns delete {name}" for name in names)


def list_namespaces(prefix: str) -> list[str]:
    """Return the namespaces whose names begin with `prefix`."""
    return sorted(path.name for path in NAMESPACE_DIR.glob(f"{prefix}*"))


def mount_tmpfs(place: Path) -> None:
    """Mount a file system in memory, which the ranks of a host share; raises as `create` does."""
    _run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tuner-emulation", str(place)], "")


def unmount(place: Path) -> None:
    """Unmount it, if it is mounted; raises InputError as `create` does."""
    if place.is_mount():
        _run(["umount", "-l", str(place)], "")


def _host_commands(number: int, hosts: int) -> Iterable[str]:
    """Return the `ip` commands that configure one host.

    Without offloading, frames are what they would be on a wire; all neighbours are known.
    """
    yield "link set lo up"
    yield "link set eth0 gso_max_segs 1 up"
    yield f"addr add {ip_address(number)}/16 dev eth0"
    yield f"route replace 10.77.0.0/16 dev eth0 src {ip_address(number)} {ROUTE_OPTIONS}"
    for other in range(hosts):
        if other != number:
            yield f"neigh replace {ip_address(other)} lladdr {mac_address(other)} dev eth0"


def _set_sysctls(name: str, values: dict[str, str]) -> None:
    """Set kernel parameters that each network namespace has of its own."""
    lines = "; ".join(f"echo '{value}' >/proc/sys/net/{key}" for key, value in values.items())
    _run(["ip", "netns", "exec", name, "sh", "-c", f"set -e; {lines}"], "")


def _ip(lines: Iterable[str], name: str | None = None) -> None:
    inside = [] if name is None else ["-n", name]
    _run(["ip", *inside, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def _run(command: list[str], text: str) -> None:
    if shutil.which(command[0]) is None:
        raise InputError(f"an emulated cluster needs `{command[0]}`: install iproute2 and mount")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"`{command[0]}` did not answer in {TIMEOUT_S:g} s; try again") from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or "no reason given"
        raise InputError(
            f"this system refuses what an emulated cluster needs ({said}); a container needs the"
            " capabilities NET_ADMIN and SYS_ADMIN"
        )
