"""A writable copy of this computer's files that nobody else sees: an overlay in a mount namespace.

Nothing is left of it when the process that holds the namespace ends, and that ends with its
standard input, so at the latest with the tests.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import patience

SIZE = "4g"  # of memory at most, for what is written
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# $1 is an empty directory. Files that containers put over those of their image are copied.
_MOUNT = f"""
set -e
mount -t tmpfs -o size={SIZE} tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
for tree in /proc /dev /sys; do mount --rbind "$tree" "$1/root$tree"; done
for file in /etc/resolv.conf /etc/hosts; do
    cat "$file" >"$1/copy" && cat "$1/copy" >"$1/root$file"
done
echo mounted
exec cat
"""


class OverlayError(Exception):
    """This computer cannot have an overlay; the text says why."""


class Overlay:
    """The copy, from its making to `close`.

    Raises OverlayError where it cannot be made.
    """

    def __init__(self, place: Path) -> None:
        if os.geteuid() != 0:
            raise OverlayError("an overlay of the file system needs root: run the tests with sudo")
        command = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(place)]
        self.root = place / "root"
        self._has_lists = False  # of the packages that there are
        self._holder = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            _, said = self._holder.communicate()
            raise OverlayError(f"an overlay of the file system cannot be mounted: {said.strip()}")

    def bind(self, directory: Path, *, always: bool = False) -> None:
        """Show a directory of another file system than the root's in the copy, too.

        always      also one of the root's, so that its mounts are there and changes reach it
        """
        if always or directory.stat().st_dev != Path("/").stat().st_dev:
            inside = self.root / directory.relative_to("/")
            self._enter(
                [
                    "sh",
                    "-c",
                    'mkdir -p "$2" && mount --rbind "$1" "$2"',
                    "sh",
                    str(directory),
                    str(inside),
                ]
            ).check_returncode()

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout: float, folder: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy, with nothing but this environment, in this folder."""
        words = [f"{name}={value}" for name, value in {"PATH": PATH, **environment}.items()]
        return self._enter(
            [
                "chroot",
                str(self.root),
                "env",
                "--ignore-environment",
                f"--chdir={folder}",
                *words,
                *command,
            ],
            timeout,
        )

    def install(self, packages: Sequence[str], timeout: float = patience(60)) -> None:
        """Install packages of Debian; raises OverlayError where they cannot be had."""
        try:
            installation = ["install", "--yes", "--no-install-recommends", *packages]
            for command in (installation,) if self._has_lists else (["update"], installation):
                ended = self.run(
                    ["apt-get", *command], {"DEBIAN_FRONTEND": "noninteractive"}, timeout, "/"
                )
                if ended.returncode != 0:
                    raise OverlayError(f"apt-get {command[0]} fails: {ended.stderr.strip()[-300:]}")
                self._has_lists = True
        except subprocess.TimeoutExpired:
            raise OverlayError(f"apt-get did not end within {timeout:g} s") from None

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the words that run a command in the copy, with the caller's environment."""
        return [*self._entering, "chroot", str(self.root), *command]

    def write(self, file: str, text: str) -> None:
        """Write a file of the copy."""
        inside = str(self.root / file.lstrip("/"))
        self._enter(["tee", inside], text=text).check_returncode()

    def close(self) -> None:
        """Unmount all of it."""
        self._holder.communicate()

    def _enter(
        self, command: Sequence[str], timeout: float = patience(), text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._entering, *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            input=text,
        )

    @property
    def _entering(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]
